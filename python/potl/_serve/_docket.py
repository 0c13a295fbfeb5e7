# SPDX-License-Identifier: Apache-2.0
"""The disputes that a referee holds, each in a file of its own.

Whose turn it is has its whole time: time in which the referee worked, stood still or was away
counts against nobody. A message is taken when it has come, not when somebody has time to read it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from .. import _core
from .._base._errors import LimitError, MalformedError, MismatchError, StorageError, UsageError
from .._dispute._away import digest_of, name_of
from .._dispute._referee import Referee
from .._dispute._seat import NAMES, Name, about_of, setting_of
from .._dispute._table import Clock, Store, Table, away_seconds, require_turn
from .._dispute._there import PIECE
from ._limits import first_of
from ._worker import Worker

T = TypeVar("T")
# While a request waits: Waits.one of it.
Waiting: TypeAlias = Callable[[], contextlib.AbstractContextManager[asyncio.Event]]

_log = logging.getLogger("potl")

_MOST_DISPUTES = 256
# So long does a party count as there after it has asked.
_PRESENT_SECONDS = 10.0
_ENDING = ".lines"


class Dispute:
    """One of them. Its table is there as long as it goes on; its file is what is read.

    Args:
        path: The file.
        about: What the trainer's commitment is known by.
        seat: Makes the table with what the file holds.
    """

    def __init__(self, path: Path, about: str, seat: Callable[[Store], Table]) -> None:
        self._path, self.about, self._seat = path, about, seat
        self._store: Store | None = None
        self._table: Table | None = None
        self._ends = [0]
        self.lock = asyncio.Lock()
        self.changed = asyncio.Event()
        self.is_over = self.is_referees_turn = self.was_away = self.is_deciding = False
        self.deadline: int | None = None
        self.message_bytes = 0
        self._is_moving = False

    @property
    def count(self) -> int:
        """Lines that are on the disk."""
        return len(self._ends) - 1

    @property
    def is_open(self) -> bool:
        """Whether it has a table."""
        return self._table is not None

    def move(self, what: Callable[[Table], object]) -> None:
        """Does something at the table. After an error it goes on from the file."""
        self._is_moving = True
        try:
            if self.was_away:
                # Read again as after a crash: whose turn it is gets its time again.
                self.was_away = False
                self._leave()
            if self._table is None:
                self._store = Store(self._path)
                self._table = self._seat(self._store)
            what(self._table)
            self._look_at(self._table)
        except BaseException:
            self._leave()
            raise
        finally:
            self._is_moving = False

    def close(self) -> None:
        """Leaves the table, unless a thread still sits there."""
        if not self._is_moving:
            self._leave()

    def _leave(self) -> None:
        if self._store is not None:
            self._store.close()
        self._store = self._table = None

    def read(self, after: int) -> bytes:
        """Lines behind the first `after`: some of them, at least one where there is one."""
        last = after
        while last < self.count and (
            last == after or self._ends[last + 1] - self._ends[after] <= PIECE
        ):
            last += 1
        with self._path.open("rb") as file:
            file.seek(self._ends[after])
            return file.read(self._ends[last] - self._ends[after])

    def _look_at(self, table: Table) -> None:
        for line in table.lines[self.count :]:
            self._ends.append(self._ends[-1] + len(line.encode()) + 1)
        now = table.now
        self.is_over, self.is_referees_turn = now.verdict is not None, now.is_referees_turn
        self.deadline = None if now.expected is None else now.expected.deadline
        self.message_bytes = now.message_bytes
        if self.is_over:
            self._leave()


class Docket:
    """Disputes about one job between two keys.

    Args:
        referee: Makes who decides; each dispute has one of its own.
        keys: Of both parties.
        folder: Where the lines are kept. What is there is gone on with.
        turn_seconds: A party that does not move for so long has lost.
        clock: For the times in the transcripts.

    Raises:
        UsageError: Another process holds the folder.
        MalformedError, MismatchError: A file in it is not a dispute about this job, between these
            keys, of this referee.
    """

    def __init__(
        self,
        referee: Callable[[], Referee],
        *,
        keys: Mapping[Name, _core.PublicKey],
        folder: str | os.PathLike[str],
        turn_seconds: float,
        clock: Clock,
    ) -> None:
        require_turn(turn_seconds)
        self._referee_of, self._turn_seconds, self.clock = referee, turn_seconds, clock
        self.referee, self.keys = referee(), keys
        own = self.referee.key.public_key
        if len({keys["trainer"].raw, keys["auditor"].raw, own.raw}) != 3:
            raise UsageError("trainer, auditor and referee have one key together", "")
        self._setting = setting_of(self.referee.job, keys, own)
        self.turn_ms = int(turn_seconds * 1000)
        self._away_ms = max(1, int(1000 * away_seconds(turn_seconds)))
        self._looked = clock.now()
        self._worker, self._tasks = Worker("referee"), set[asyncio.Task[Any]]()
        self._waiting: dict[Name, tuple[str, str | None, float]] = {}
        self._opening, self._opened = asyncio.Lock(), asyncio.Event()
        self._folder = Path(folder)
        self.disputes: dict[str, Dispute] = {}
        _core.create_directory(str(folder))
        self._held = _core.DirectoryLock(
            str(folder), f"another referee holds {folder}", "end it first"
        )
        try:
            self._go_on()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Gives the folder back."""
        for one in self.disputes.values():
            one.close()
        self._held.release()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Clocks go, and what is to be decided is."""
        self._looked = self.clock.now()
        ticking = asyncio.create_task(self._keep_time())
        try:
            yield
        finally:
            ticking.cancel()
            self._worker.end()

    # ------------------------------------------------------------------ what a party asks for

    async def join(
        self, who: Name, note: str, about: str | None, *, wait: float, waiting: Waiting
    ) -> str | None:
        """The name of the dispute of a party that is there, as soon as there is one.

        Args:
            who: Somebody who has shown that he is that.
            note: The commitment that the dispute is about.
            about: The only commitment of the trainer that it disputes about, as `about_of` names
                it; None for any.
            wait: Seconds that it may take until the other party is there.
            waiting: Entered while it waits. Its event is set when that is enough.

        Raises:
            MismatchError, MalformedError: This is not a commitment of that party to this job.
            LimitError: There are too many disputes.
        """
        await asyncio.to_thread(self._require_commitment, who, note)
        clock = asyncio.get_running_loop().time
        until = clock() + wait
        is_enough = False
        while True:
            opened = self._opened
            found = await asyncio.shield(self._spawn(self._found(who, note, about, until)))
            if found is not None:
                self._waiting.pop(who, None)  # it was told, and may leave
            if found is not None or clock() >= until or is_enough:
                return found
            with waiting() as enough:
                await first_of(opened, enough, seconds=until - clock())
                is_enough = enough.is_set()

    @staticmethod
    async def lines(dispute: Dispute, after: int, *, wait: float, waiting: Waiting) -> bytes:
        """Lines behind the first `after`, once there is one, or when it is enough."""
        loop = asyncio.get_running_loop()
        until, is_enough = loop.time() + wait, False
        while dispute.count <= after and loop.time() < until and not is_enough:
            with waiting() as enough:
                await first_of(dispute.changed, enough, seconds=until - loop.time())
                is_enough = enough.is_set()
        return await asyncio.to_thread(dispute.read, after) if after < dispute.count else b""

    async def receive(self, dispute: Dispute, message: bytes) -> None:
        """What somebody sent. Nobody's is what no party signed with a line as its parent."""
        came = self.look()

        def take(table: Table) -> None:
            name = table.author(message)
            if name is not None:
                table.receive(name, message, came)

        # In the referee's turn nobody is to move. Who is early sends it again.
        if not dispute.is_over and not dispute.is_deciding:
            await asyncio.shield(self._spawn(self._move(dispute, take)))

    def look(self) -> int:
        """How late it is."""
        now = self.clock.now()
        if now - self._looked > self._away_ms:
            for one in self.disputes.values():
                # A decision gives the next one its whole time.
                one.was_away |= not one.is_deciding
        self._looked = now
        return now

    # ------------------------------------------------------------------ moves

    async def _keep_time(self) -> None:
        while True:
            now = self.look()
            for one in list(self.disputes.values()):
                if one.is_over or one.lock.locked():
                    continue
                late = one.deadline is not None and now > one.deadline
                if one.is_referees_turn:
                    self._spawn(self._decide(one))
                elif late or one.was_away or not one.is_open:
                    self._spawn(self._move(one, Table.tick))
            await asyncio.sleep(self._away_ms / 4000)

    async def _move(self, dispute: Dispute, what: Callable[[Table], object]) -> None:
        async with dispute.lock:
            await self._done(dispute, lambda: asyncio.to_thread(dispute.move, what))
        if dispute.is_referees_turn:
            self._spawn(self._decide(dispute))

    async def _decide(self, dispute: Dispute) -> None:
        async with dispute.lock:
            while dispute.is_referees_turn and not dispute.is_over:
                dispute.is_deciding = True
                try:
                    await self._done(dispute, lambda: self._worker.start(dispute.move, _decided))
                finally:
                    dispute.is_deciding = False

    @staticmethod
    async def _done(dispute: Dispute, work: Callable[[], Awaitable[None]]) -> None:
        if dispute.is_over:
            return
        try:
            await work()
        except Exception:
            _log.exception("a dispute goes on from its file")
            raise
        finally:
            changed, dispute.changed = dispute.changed, asyncio.Event()
            changed.set()

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Goes on whoever waits for it. What fails is in the log, and is tried again."""

        def ended(one: asyncio.Task[T]) -> None:
            self._tasks.discard(one)
            if not one.cancelled():
                one.exception()

        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(ended)
        return task

    # ------------------------------------------------------------------ who disputes with whom

    def _with(self, who: Name, note: str) -> list[str]:
        """Disputes about a commitment, those that were opened first first."""
        digest, place = digest_of(note), NAMES.index(who)
        return [one for one in self.disputes if one.split("-")[place] == digest]

    async def _found(self, who: Name, note: str, about: str | None, until: float) -> str | None:
        """One that goes on; else one with who is there now; else the last one. Who is told of one
        that goes on waits for no other: it would be silent there. None begins that is about another
        commitment than a party holds, for the same reason.
        """
        async with self._opening:
            own = self._with(who, note)
            running = [one for one in own if not self.disputes[one].is_over]
            if running:
                return running[0]
            self._waiting[who] = (note, about, until + _PRESENT_SECONDS)
            other: Name = "auditor" if who == "trainer" else "trainer"
            its_note, its_about, present = self._waiting.get(other, ("", None, 0.0))
            notes: dict[Name, str] = {who: note, other: its_note}
            is_wanted = {about, its_about} <= {None, about_of(notes["trainer"])}
            if not is_wanted or present < asyncio.get_running_loop().time():
                told = [one for one in own if about in (None, self.disputes[one].about)]
                return told[-1] if told else None
            name = name_of(notes)
            if name not in self.disputes:
                await self._open(name, notes)
            return name

    async def _open(self, name: str, notes: Mapping[Name, str]) -> None:
        if len(self.disputes) >= _MOST_DISPUTES:
            raise LimitError(f"{_MOST_DISPUTES} disputes are held here, and no more")
        dispute = self._dispute(name, notes)
        await self._done(dispute, lambda: asyncio.to_thread(dispute.move, lambda _: None))
        self.disputes[name] = dispute
        self._waiting.clear()
        opened, self._opened = self._opened, asyncio.Event()
        opened.set()

    def _dispute(self, name: str, notes: Mapping[Name, str]) -> Dispute:
        def seat(store: Store) -> Table:
            return Table(
                self._setting,
                self._referee_of(),
                notes,
                turn_seconds=self._turn_seconds,
                store=store,
                clock=self.clock,
            )

        return Dispute(self._folder / (name + _ENDING), about_of(notes["trainer"]), seat)

    def _require_commitment(self, who: Name, note: str) -> None:
        """Of a dispute with itself both commitments are the party's."""
        key, referee = self.keys[who], self.referee.key
        setting = setting_of(self.referee.job, {"trainer": key, "auditor": key}, referee.public_key)
        _core.DisputeReferee.open(setting, trainer=note, auditor=note, turn_ms=1, key=referee, at=0)

    def _go_on(self) -> None:
        """With what is in the folder."""
        found = []
        for path in self._folder.glob("*" + _ENDING):
            with contextlib.closing(Store(path)) as store:
                first = store.text.partition("\n")[0]
            if not first:
                path.unlink()  # a crash came before the first line, which nobody has seen
                continue
            at, notes = _begun(first)
            name = path.name.removesuffix(_ENDING)
            if name != name_of(notes):
                raise MismatchError(f"{path} is another dispute than its name says")
            found.append((at, name, notes))
        for _, name, notes in sorted(found, key=lambda one: one[:2]):
            self.disputes[name] = dispute = self._dispute(name, notes)
            dispute.move(lambda _: None)


def _decided(table: Table) -> None:
    try:
        table.decide()
    except StorageError:
        raise
    except Exception as error:
        # What the referee cannot do is nobody's fault.
        table.give_up(f"{type(error).__name__}: {error}")


def _begun(line: str) -> tuple[int, dict[Name, str]]:
    """When a dispute began, and about which commitments. The table looks at all of it."""
    try:
        found = json.loads(line)
        return int(found["at"]), {name: str(found["entry"][name]) for name in NAMES}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise MalformedError("this is not a transcript of a dispute") from error
