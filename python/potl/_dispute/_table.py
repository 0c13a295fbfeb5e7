# SPDX-License-Identifier: Apache-2.0
"""The referee's desk, every line of which is on the disk before anybody sees it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from .. import _core
from .._base._errors import (
    LimitError,
    MalformedError,
    MissingError,
    PotlError,
    StorageError,
    UsageError,
)
from ._answers import to_json
from ._referee import Referee
from ._seat import Name, require_about

if TYPE_CHECKING:
    from typing_extensions import Self

MOST_STORED = 256 << 20
# Of each line, and so of a transcript: in canonical JSON this is the first member.
_BEGINNING = b'{"at":'


class Clock(Protocol):
    """What says how late it is."""

    def now(self) -> int:
        """Milliseconds since 1970."""

    def sleep(self, seconds: float) -> None:
        """Waits."""


class SystemClock:
    """The machine's."""

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class WatchedClock(SystemClock):
    """The machine's, and whether this process stood still: a lid was closed, or Ctrl-Z pressed.

    A thread of its own looks at it all the time, so that no party can feign that by being slow.

    Args:
        away_seconds: Not to have looked for longer is to have been away.
    """

    def __init__(self, away_seconds: float) -> None:
        self._most, self._looked, self._away = int(1000 * away_seconds), self.now(), False
        self._lock, self._end = threading.Lock(), threading.Event()

    def was_away(self) -> bool:
        """Whether it was, since this was last asked."""
        self._look()
        with self._lock:
            out, self._away = self._away, False
        return out

    def __enter__(self) -> Self:
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()

    def _watch(self) -> None:
        while not self._end.wait(self._most / 4000):
            self._look()

    def _look(self) -> None:
        with self._lock:
            now = self.now()
            self._away |= now - self._looked > self._most
            self._looked = now


class Table:
    """A dispute from its first line to its verdict.

    Args:
        setting: Job and keys.
        referee: Who decides.
        notes: The commitments of both.
        turn_seconds: A party that does not move for so long has lost.
        store: Where each line is kept. What is there already is gone on with.
        clock: For the times in the transcript.

    Raises:
        UsageError: What is stored is of another dispute.
        MalformedError, MismatchError: It is none of this job and these keys, or a commitment is not
            that of its party.
    """

    def __init__(
        self,
        setting: _core.DisputeSetting,
        referee: Referee,
        notes: Mapping[Name, str],
        *,
        turn_seconds: float,
        store: Store | None,
        clock: Clock,
    ) -> None:
        require_turn(turn_seconds)
        self._referee, self._store, self.clock = referee, store, clock
        text = "" if store is None else store.text
        if text:
            self._desk = _core.DisputeReferee.resume(setting, text, key=referee.key, at=clock.now())
            require_about(text.partition("\n")[0], notes)
        else:
            self._desk = _core.DisputeReferee.open(
                setting,
                trainer=notes["trainer"],
                auditor=notes["auditor"],
                turn_ms=int(turn_seconds * 1000),
                key=referee.key,
                at=clock.now(),
            )
        # What another process decided, this one has to compute before it decides more.
        self._decided_before = bool(text)
        self._setting = setting
        # Those that are stored, and what was added to them just now.
        self.lines: list[str] = []
        at = 0
        for line in self._desk.transcript.split("\n")[:-1]:
            at += len(line) + 1
            self._take(line, stored=at <= len(text))

    @property
    def now(self) -> _core.DisputeProceedings:
        """How far it is."""
        return self._desk.proceedings

    @property
    def transcript(self) -> str:
        """All lines."""
        return self._desk.transcript

    def author(self, message: bytes) -> Name | None:
        """Who signed a message for this dispute."""
        return self._desk.author(message)

    def receive(self, name: Name, message: bytes, at: int | None = None) -> bool:
        """A party's message, and when it came if that is not now. Whether it changed anything."""
        came = self.clock.now() if at is None else at
        return self._took(self._desk.receive(name, message, at=came))

    def tick(self, at: int = 0) -> bool:
        """Looks at the clock, or at what is said to be its time."""
        return self._took(self._desk.tick(at=max(at, self.clock.now())))

    def restart(self) -> None:
        """The referee was away: whose turn it is gets its whole time again."""
        size = len(self.transcript)
        self._desk = _core.DisputeReferee.resume(
            self._setting, self.transcript, key=self._referee.key, at=self.clock.now()
        )
        self._take(self.transcript[size:-1])

    def decide(self) -> None:
        """The referee's turn."""
        if self._decided_before:
            try:
                _core.judge_dispute(self._setting, self.transcript, self._referee._disagrees)
            except MissingError:  # there is no verdict yet
                self._decided_before = False
            except PotlError as error:
                self.give_up(f"what was decided is not computed again: {error.message}")
                return
        made = self._referee._decide(self._desk.proceedings)
        self._take(self._desk.decide(made, at=self.clock.now()))

    def give_up(self, why: str) -> None:
        """Ends without a conviction."""
        ruling = _core.DisputeRuling("referee", evidence=to_json({"undecided": why[:1000]}))
        self._take(self._desk.decide(ruling, at=self.clock.now()))

    def _took(self, line: str | None) -> bool:
        if line is not None:
            self._take(line)
        return line is not None

    def _take(self, line: str, *, stored: bool = False) -> None:
        if self._store is not None and not stored:
            self._store.append(line)
        self.lines.append(line)


TURN_SECONDS = 3600.0
"""A party that does not move for so long has lost, unless another time is said."""


def require_turn(seconds: float) -> None:
    """Raises UsageError where nobody could move in that time."""
    if not 0.001 <= seconds <= 10**9:
        raise UsageError("turn_seconds is not a time that a party could have", "")


def away_seconds(turn_seconds: float) -> float:
    """A referee that has not looked at its clock for longer was away, suspended for example."""
    return min(5.0, turn_seconds / 2)


class Store:
    """A file of lines, for one process at a time. What a crash left of a last line is cut off.

    Raises:
        MalformedError: It holds something else, of which nothing is cut off.
        UsageError, LimitError, StorageError: Another process has it, or it cannot be used.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            self._file = os.open(self._path, flags, 0o600)
        except OSError as error:
            raise StorageError(f"{self._path} cannot be written: {error}", "") from error
        try:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise UsageError(
                    f"another referee goes on with {self._path}", "end it first"
                ) from error
            if os.fstat(self._file).st_size > MOST_STORED:
                raise LimitError(f"{self._path} is too large for a transcript", "")
            raw = _core.read_file(self._path, max_bytes=MOST_STORED)
            # After a power cut a file may have its new size, and not what was written.
            if not _BEGINNING.startswith(raw[: len(_BEGINNING)].rstrip(b"\0")):
                raise MalformedError(
                    f"{self._path} is no transcript of a dispute", "name another file"
                )
            whole = raw[: raw.rfind(b"\n") + 1]
            os.ftruncate(self._file, len(whole))
            os.lseek(self._file, 0, os.SEEK_END)
            self.text = whole.decode("utf-8", "backslashreplace")
            _core.sync_directory(str(Path(self._path).resolve().parent))
        except BaseException:
            os.close(self._file)
            raise

    def append(self, line: str) -> None:
        """Durable when it returns."""
        left = memoryview((line + "\n").encode())
        try:
            while left:
                left = left[os.write(self._file, left) :]
            os.fdatasync(self._file)
        except OSError as error:
            raise StorageError(f"{self._path} cannot be written: {error}", "") from error

    def close(self) -> None:
        """Lets others go on with it."""
        os.close(self._file)


@contextlib.contextmanager
def stored(path: str | os.PathLike[str] | None) -> Iterator[Store | None]:
    """A file of lines, where one is wanted."""
    if path is None:
        yield None
        return
    with contextlib.closing(Store(path)) as store:
        yield store
