# SPDX-License-Identifier: Apache-2.0
"""A directory that mirrors a run elsewhere: each file has its size from the beginning, and its
bytes when they are read.

Evidence asks for bytes just before it reads them, once it has compared the size with what the job
and the verifier's own states allow. So sizes cost nothing, nothing unchallenged is brought, and
what is judged are files of the verifier's own that nobody else writes to. Bytes that were dropped
for room are brought again: digests bind them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from .._base._errors import LimitError, MissingError, PotlError, StorageError, UsageError
from . import _source
from ._source import Sizes, Source

_Range = tuple[str, int, int]


class Mirror:
    """Belongs to one process.

    Args:
        source: Where the run lies.
        sizes: What is there.
        root: An empty directory of the verifier's own.
        room: Bytes that may lie here at a time, without those of the log.

    Raises:
        LimitError: A file cannot have the size that it is said to have.
    """

    def __init__(self, source: Source, sizes: Sizes, *, root: Path, room: int) -> None:
        self._source = source
        self._sizes = sizes
        self._room = room
        self.directory = root / "run"
        self._here: dict[_Range, None] = {}  # oldest first
        self._lock = threading.Lock()
        for folder in (_source.CHECKPOINTS, _source.ROUNDING):
            (self.directory / folder).mkdir(parents=True)
        for name, size in sizes.items():
            self._empty(name, size)

    def fetch(self, name: str, offset: int, size: int) -> None:
        """Brings bytes of a file."""
        with self._lock:
            wanted = (name, offset, size)
            if wanted in self._here:
                self._here[wanted] = self._here.pop(wanted)
                return
            self._make_room(name, size)
            # A log grows: what is here of it stays.
            begin = at = self._log_here(size) if name == _source.LOG else offset
            with self._path(name).open("r+b", buffering=0) as file:

                def write(piece: bytes) -> None:
                    nonlocal at
                    if len(piece) > offset + size - at:
                        raise StorageError(f"{name}: more bytes come than were asked for", "")
                    while piece:
                        with _written(self._path(name)):
                            count = os.pwrite(file.fileno(), piece, at)
                        at, piece = at + count, piece[count:]

                try:
                    self._source.read(name, begin, offset + size - begin, write)
                except BaseException as error:
                    self._drop(name)
                    if isinstance(error, PotlError) and not isinstance(error, MissingError):
                        # Whatever kind it is of, it must say nothing about the run.
                        raise StorageError(error.message, error.remedy) from error
                    raise
            if at != offset + size:
                self._drop(name)
                raise StorageError(f"{name}: {at - offset} bytes came instead of {size}", "")
            self._here[wanted] = None

    def renew(self, sizes: Sizes, *, log_bytes: int, afresh: bool) -> None:
        """What is there by now. What was brought stays, as far as nobody wrote there since.

        Args:
            sizes: Of all files.
            log_bytes: Of the log, so many stay: whole records. The rest of a crash is taken back.
            afresh: Whether everything else is brought again.
        """
        with self._lock:
            before, self._sizes = self._sizes, sizes
            for name in before.keys() - sizes.keys():
                self._path(name).unlink()
            # Rounding logs, too, are only appended to; records bind their parts.
            stays = {
                name
                for name, size in sizes.items()
                if before.get(name) == size
                or (_source.rounding_of(name) is not None and before.get(name, size) < size)
            }
            stays = set() if afresh else stays - {_source.LOG}
            self._here = {one: None for one in self._here if one[0] in stays}
            self._here[_source.LOG, 0, log_bytes] = None
            for name, size in sizes.items():
                if name == _source.LOG or name in stays:
                    self._resize(name, size, "ab")
                else:
                    self._empty(name, size)

    def _log_here(self, size: int) -> int:
        """How many of the first bytes of the log are here, if it has this size."""
        held = (n for name, _, n in self._here if name == _source.LOG and n <= size)
        return max(held, default=0)

    def copy_from(self, other: Path) -> None:
        """Takes over from a mirror of the same run what every process reads, as far as it is there:
        a file that nobody read is as long as a server says, and a copy would have its zeros.
        """
        for name in (_source.LOG, _source.TELEMETRY):
            if name in self._sizes and _is_whole(other / name):
                shutil.copyfile(other / name, self._path(name))
                self._here[name, 0, self._sizes[name]] = None

    def _make_room(self, name: str, size: int) -> None:
        if name == _source.LOG:
            return
        if size > self._room:
            raise StorageError(
                f"{name} has {size} bytes, and {self._room} may be held here",
                "raise cache_bytes, and see that the folder for temporary files has the room",
            )
        held = sum(length for one, _, length in self._here if one != _source.LOG)
        for old in list(self._here):
            if held + size <= self._room:
                break
            if old[0] == _source.LOG or old not in self._here:
                continue
            held -= sum(length for one, _, length in self._here if one == old[0])
            self._drop(old[0])

    def _drop(self, name: str) -> None:
        self._here = {one: None for one in self._here if one[0] != name}
        self._empty(name, self._sizes[name])

    def _empty(self, name: str, size: int) -> None:
        self._resize(name, size, "wb")

    def _resize(self, name: str, size: int, mode: str) -> None:
        with _written(self._path(name)), self._path(name).open(mode) as file:
            try:
                os.truncate(file.fileno(), size)
            except (OSError, OverflowError) as error:
                if getattr(error, "errno", None) not in (None, errno.EFBIG, errno.EINVAL):
                    raise
                raise LimitError(f"{name} is said to have {size} bytes: {error}", "") from error

    def _path(self, name: str) -> Path:
        assert _source.is_of_a_run(name), name
        return self.directory / name


def write_at(path: Path, at: int, data: bytes) -> None:
    """Writes at a place of a file, which is made where there is none.

    Raises:
        StorageError: There is no room. A part may be there.
    """
    with _written(path):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while data:
                count = os.pwrite(file, data, at)
                at, data = at + count, data[count:]
        finally:
            os.close(file)


@contextlib.contextmanager
def _written(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"{path} cannot be written: {error.strerror}",
            "see that there is room in the folder for temporary files: TMPDIR names another one, "
            "and cache_bytes what may lie there",
        ) from error


def _is_whole(path: Path) -> bool:
    """Whether all of a file takes room. One that is compressed may seem not to be."""
    about = path.stat()
    return about.st_blocks * 512 >= about.st_size


def sizes_of(directory: Path) -> Sizes:
    """What a mirror says of the run."""
    found = (path for path in directory.rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix(): path.stat().st_size for path in found}


def new_root() -> tempfile.TemporaryDirectory[str]:
    """A directory of the verifier's own."""
    try:
        return tempfile.TemporaryDirectory(prefix="potl-mirror-", ignore_cleanup_errors=True)
    except OSError as error:
        raise UsageError(
            f"there is no folder for temporary files: {error}", "set TMPDIR to one"
        ) from error
