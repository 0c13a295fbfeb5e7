# SPDX-License-Identifier: Apache-2.0
"""A run that is still trained, looked at again and again, on a disk or elsewhere.

What was brought is not brought again. A trainer only appends to a log, so what was read of it has
to stay: each record is chained to those before it, and the chain value behind the last record that
was read stands for all of them.
"""

from __future__ import annotations

import abc
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from .._base._errors import MismatchError, MissingError, StorageError
from .._record._records import CHAIN, HEAD
from . import _source
from ._mirror import Mirror, new_root
from ._remote import AnyRun, Place, Remote, as_remote, require_few

if TYPE_CHECKING:
    from .. import _core
    from ._source import Sizes, Source


class Growing(abc.ABC):
    """Where a run is looked at.

    Attributes:
        name: What the user calls it.
        remote: Of a run elsewhere: where it is.
    """

    def __init__(self, name: str, remote: Remote | None = None) -> None:
        self.name, self.remote = name, remote
        self._end, self._chain = 0, b""

    def look(self, *, afresh: bool = False) -> Place:
        """The run as it is now, until the next look.

        Args:
            afresh: Whether states that were brought are brought again.

        Raises:
            MissingError: There is no run yet.
            StorageError: Nobody answers, or the run is gone.
            MismatchError: The log lacks what was read of it.
            LimitError: The run has more files than its job can make.
        """
        size = self._log_bytes()
        if size is None:
            if self._end:
                raise StorageError(f"the run {self.name} is not there any more", "")
            raise MissingError(f"there is no run {self.name} yet", "check the path")
        if self._end and (size < self._end or self._chain_value(self._end) != self._chain):
            raise MismatchError(
                f"the log of {self.name} is not the one that was read before: it became shorter, "
                "or earlier records changed",
                "ask the trainer what happened, and watch the run from its beginning",
            )
        return self._place(afresh)

    def keep(self, place: Place, end: int) -> None:
        """Says what was read: the log, up to the end of a record."""
        if end >= HEAD + CHAIN:
            self._end, self._chain = end, _part(place.directory, end - CHAIN)

    @abc.abstractmethod
    def _log_bytes(self) -> int | None: ...

    @abc.abstractmethod
    def _chain_value(self, end: int) -> bytes: ...

    @abc.abstractmethod
    def _place(self, afresh: bool) -> Place: ...


class _OnDisk(Growing):
    def __init__(self, directory: Path) -> None:
        super().__init__(str(directory))
        self._directory = directory

    def _log_bytes(self) -> int | None:
        try:
            return os.lstat(self._directory / _source.LOG).st_size
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise StorageError(f"{self.name} cannot be read: {error.strerror}", "") from error

    def _chain_value(self, end: int) -> bytes:
        return _part(self._directory, end - CHAIN)

    def _place(self, afresh: bool) -> Place:
        return Place.of(self._directory)


class _Elsewhere(Growing):
    def __init__(self, remote: Remote, job: _core.Job, root: Path) -> None:
        super().__init__(remote.url, remote)
        self._from, self._job, self._root = remote, job, root
        self._source: Source | None = None
        self._mirror: Mirror | None = None
        self._sizes: Sizes = {}

    def close(self) -> None:
        """Ends connections."""
        if self._source is not None:
            self._source.close()

    def _connected(self) -> Source:
        if self._source is None:
            self._source = self._from._source(self._job)
        return self._source

    def _log_bytes(self) -> int | None:
        self._sizes = self._connected().sizes()
        require_few(self._from, self._sizes, self._job)
        return self._sizes.get(_source.LOG)

    def _chain_value(self, end: int) -> bytes:
        parts: list[bytes] = []
        self._connected().read(_source.LOG, end - CHAIN, CHAIN, parts.append)
        return b"".join(parts)

    def _place(self, afresh: bool) -> Place:
        if self._mirror is None:
            room = self._from.cache_bytes
            self._mirror = Mirror(self._connected(), self._sizes, root=self._root, room=room)
        else:
            self._mirror.renew(self._sizes, log_bytes=self._end, afresh=afresh)
        return Place(self._mirror.directory, self._mirror.fetch, self.name, self._from)


@contextlib.contextmanager
def growing(run: AnyRun, job: _core.Job) -> Iterator[Growing]:
    """A run that is looked at while it grows. It need not be there yet.

    Args:
        run: What a user names.
        job: The verifier's own, which says how many files there can be.
    """
    remote = as_remote(run)
    if remote is None:
        yield _OnDisk(Path(getattr(run, "path", run)))  # type: ignore[arg-type]
        return
    with new_root() as root, contextlib.closing(_Elsewhere(remote, job, Path(root))) as place:
        yield place


def _part(directory: Path, offset: int) -> bytes:
    """A chain value in a log; fewer bytes where the log has no more."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        file = os.open(directory / _source.LOG, flags)
        try:
            return os.pread(file, CHAIN, offset)
        finally:
            os.close(file)
    except OSError as error:
        raise StorageError(f"{directory} cannot be read: {error.strerror}", "") from error
