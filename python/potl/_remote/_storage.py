# SPDX-License-Identifier: Apache-2.0
"""A run on storage that fsspec reaches: S3 and what is like it, or anything else with a URL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .._base._errors import MalformedError, MissingError, StorageError, UsageError
from . import _source
from ._source import Sizes, Write

_PIECE = 8 << 20


class Storage:
    """Reads a run through fsspec.

    Args:
        url: Such as "s3://bucket/runs/1".
        options: What the file system takes, such as credentials.
    """

    def __init__(self, url: str, options: Mapping[str, object]) -> None:
        try:
            import fsspec  # type: ignore[import-untyped]
        except ImportError as error:
            raise UsageError(
                f"reading {url} needs fsspec", 'pip install "potl[storage]"'
            ) from error
        try:
            # Any: fsspec says nothing of its types. A listing that somebody kept is an older one.
            file_system: Any
            file_system, self._root = fsspec.core.url_to_fs(
                url, use_listings_cache=False, skip_instance_cache=True, **options
            )
        except (ImportError, ValueError) as error:
            raise UsageError(f"{url} cannot be read: {error}", "") from error
        except OSError as error:  # some connect at once
            raise StorageError(f"{url} is not reached: {error}", "check the address") from error
        self._files = file_system
        self._url = url

    def sizes(self) -> Sizes:
        found = _source.known(self._listed())
        if _source.LOG not in found:
            raise MissingError(f"there is no run at {self._url}: {_source.LOG} is missing", "")
        return found

    def read(self, name: str, offset: int, size: int, write: Write) -> None:
        for start in range(offset, offset + size, _PIECE):
            end = min(start + _PIECE, offset + size)
            try:
                piece: bytes = self._asked(
                    self._files.cat_file, self._path(name), start=start, end=end
                )
            except FileNotFoundError as error:
                if name != _source.LOG and self._log_is_there():
                    raise MissingError(f"{self._url} has no {name} any more", "") from error
                raise StorageError(f"there is no run at {self._url} any more", "") from error
            write(piece)

    def close(self) -> None:
        """Nothing is held."""

    def _log_is_there(self) -> bool:
        return bool(self._asked(self._files.isfile, self._path(_source.LOG)))

    def _listed(self) -> Iterator[tuple[str, int]]:
        for folder in ("", _source.CHECKPOINTS, _source.ROUNDING):
            try:
                entries = self._asked(self._files.ls, self._path(folder), detail=True, refresh=True)
            except (FileNotFoundError, NotADirectoryError):
                continue
            for entry in entries:
                last = str(entry["name"]).rstrip("/").rpartition("/")[2]
                name = f"{folder}/{last}" if folder else last
                # As on a disk: docs/decisions/0008.
                if entry.get("islink") and (_source.is_of_a_run(name) or not folder):
                    raise MalformedError(f"{self._url}: {name} is a symbolic link", "")
                if entry["type"] != "file":
                    continue
                size = entry.get("size")
                if not isinstance(size, int) or size < 0:
                    raise StorageError(f"{self._url} does not say how large {name} is", "")
                yield name, size

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}" if name else self._root

    # What a driver raises for its network is its own affair; only "not there" has one meaning.
    def _asked(self, call: Callable[..., Any], path: str, **options: object) -> Any:
        try:
            return call(path, **options)
        except (FileNotFoundError, NotADirectoryError):
            raise
        except Exception as error:
            raise StorageError(f"{self._url}: {type(error).__name__}: {error}", "") from error
