# SPDX-License-Identifier: Apache-2.0
"""A run elsewhere that is still trained: its logs here, growing as they do there."""

from __future__ import annotations

import contextlib
import hashlib
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from .._base._errors import LimitError, PotlError, StorageError
from .._record._records import CHAIN, HEAD, MAX_RECORD
from . import _source
from ._mirror import new_root, write_at
from ._remote import AnyRun, Remote, as_remote, require_few

if TYPE_CHECKING:
    from .. import _core
    from ._source import Source

_POLL_SECONDS = 1.0
_PIECE = 8 << 20
# Bytes of a log before its version.
_MAGIC = 8


class Followed:
    """A run whose logs are read as they grow.

    Attributes:
        directory: Where they lie: the run directory, or one of the reader's own.
        remote: Of a run elsewhere: where it is.
    """

    def __init__(self, directory: Path, remote: Remote | None = None) -> None:
        self.directory, self.remote = directory, remote

    def check(self) -> None:
        """Raises what keeps the logs from coming."""


class _Copy(Followed):
    """Only its own thread talks to the source."""

    def __init__(
        self, root: Path, remote: Remote, source: Source, job: _core.Job, timeout: float
    ) -> None:
        super().__init__(root, remote)
        self._from, self._job = remote, job
        self._source, self._most, self._timeout = source, remote.cache_bytes, timeout
        self._sizes: dict[str, int] = {}
        self._chain = b""  # behind the records that are here
        self._trouble: PotlError | None = None  # of the last time that it asked
        self._ended = threading.Event()
        (root / _source.ROUNDING).mkdir()

    def check(self) -> None:
        if self._trouble is not None:
            raise self._trouble

    def bring(self) -> None:
        """What is there by now. Rounding logs come before the records that bind them."""
        listed = self._source.sizes()
        # Those that are here already, too: it may name others each time.
        require_few(self._from, {*listed, *self._sizes}, self._job)
        names = [name for name in listed if _source.rounding_of(name) is not None]
        for name in (*names, _source.LOG):
            self._bring(name, listed.get(name, 0))

    def _bring(self, name: str, size: int) -> None:
        self._sizes.setdefault(name, 0)
        write_at(self.directory / name, 0, b"")
        while (have := self._sizes[name]) < size and not self._ended.is_set():
            length = min(size - have, _PIECE)
            held = sum(self._sizes.values())
            if held + length > self._most:
                raise LimitError(
                    f"the logs of the run have more than {self._most} bytes",
                    "raise cache_bytes",
                )
            parts: list[bytes] = []
            self._source.read(name, have, length, parts.append)
            more = b"".join(parts)
            # A trainer that resumes takes back what a crash left of a record, zeros included.
            kept, chain = len(more), self._chain
            if name == _source.LOG:
                kept, chain = _whole(more, have, chain)
            write_at(self.directory / name, have, more[:kept])
            # Not before: on a full disk it is brought again, once there is room.
            self._sizes[name], self._chain = have + kept, chain
            if not kept or have + len(more) >= size:
                return

    def go_on(self) -> None:
        """Brings what comes, until it is ended or nobody answered for too long."""
        answered = time.monotonic()
        while not self._ended.wait(_POLL_SECONDS):
            try:
                self.bring()
                answered, self._trouble = time.monotonic(), None
            except StorageError as error:
                # Also before its time is over: whoever waits for the log may give up sooner.
                self._trouble = error
                if time.monotonic() - answered > self._timeout:
                    return
            except PotlError as error:
                self._trouble = error
                return

    def end(self) -> None:
        self._ended.set()


@contextlib.contextmanager
def followed(run: AnyRun, *, job: _core.Job, timeout: float) -> Iterator[Followed]:
    """The logs of a run.

    Args:
        run: What a user names.
        job: The reader's own, which says how many files there can be.
        timeout: Seconds that they are followed without an answer; 0: as they are now.

    Raises:
        StorageError: Nobody answers.
        LimitError: They are larger than what may lie here, or more.
    """
    remote = as_remote(run)
    if remote is None:
        yield Followed(Path(getattr(run, "path", run)))  # type: ignore[arg-type]
        return
    with new_root() as root, contextlib.closing(remote._source(job)) as source:
        copy = _Copy(Path(root), remote, source, job, timeout)
        copy.bring()
        thread = threading.Thread(target=copy.go_on, daemon=True)
        if timeout > 0:
            thread.start()
        try:
            yield copy
        finally:
            copy.end()
            if timeout > 0:
                thread.join()


def _whole(more: bytes, at: int, before: bytes) -> tuple[int, bytes]:
    """How many of the bytes from a place in a log on are whole records. What cannot begin one
    counts, too: whoever reads the log says what is wrong with it. Zeros to the end are no records:
    after a power cut a file may have its new size, and not what was written.

    Args:
        more: The bytes.
        at: The place.
        before: The chain value there.

    Returns:
        So many, and the chain value behind them.
    """
    written = len(more.rstrip(b"\0"))
    end = 0
    if at == 0:
        if len(more) < HEAD or written <= _MAGIC:
            return 0, before
        end, before = HEAD, hashlib.sha256(more[:HEAD]).digest()
    while len(more) - end >= 4:
        (size,) = struct.unpack_from("<I", more, end)
        if size > MAX_RECORD:
            return len(more), before
        if len(more) - end < 4 + size + CHAIN:
            break
        chain = end + 4 + size
        if chain + CHAIN > written:
            # Zeros, or one digest in 256.
            follows = hashlib.sha256(before + more[end + 4 : chain]).digest()
            if more[chain : chain + CHAIN] != follows:
                break
        before, end = more[chain : chain + CHAIN], chain + CHAIN
    return end, before
