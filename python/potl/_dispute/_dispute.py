# SPDX-License-Identifier: Apache-2.0
"""`dispute`: a referee asks two parties, in this program or elsewhere, until one is wrong."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from .. import _core
from .._base._errors import MismatchError, MissingError, UsageError
from .._base._public_key import public_key
from .._remote._remote import Remote, is_url
from ._audit import Audit
from ._evidence import RULED, DisputeEvidence, Verdict, judge
from ._party import Party
from ._seat import NAMES, Name, Seat, require_about, require_held, setting_of
from ._table import TURN_SECONDS, Clock, Table, WatchedClock, away_seconds, require_turn, stored
from ._there import There

if TYPE_CHECKING:
    from ._referee import Referee

_AGAIN_SECONDS = 0.1

Keys = Mapping[str, _core.PublicKey | str | os.PathLike[str]]


class Watched(Clock, Protocol):
    """A clock that notices when nobody looks at it."""

    def was_away(self) -> bool:
        """Whether the referee stood still, since this was last asked."""


class Side(Protocol):
    """A party as the referee sees it."""

    @property
    def note(self) -> str:
        """Its commitment."""

    def message(
        self,
        lines: Sequence[str],
        left: Callable[[], float],
        *,
        author: Callable[[bytes], Name | None],
        most: int,
    ) -> bytes | None:
        """What it says after these lines; None: nothing, and its time is over."""


class Here:
    """A party in this program."""

    def __init__(
        self, party: Party, *, keys: Mapping[Name, _core.PublicKey], referee: _core.PublicKey
    ) -> None:
        self.note = party.note
        self._keys = keys
        self._seat = Seat(party, referee)
        self._heard = 0

    def message(
        self,
        lines: Sequence[str],
        left: Callable[[], float],
        *,
        author: Callable[[bytes], Name | None],
        most: int,
    ) -> bytes | None:
        """The message after these lines."""
        self._heard = self._seat.hear(self._keys, self._heard, lines[self._heard :])
        message = self._seat.message()
        return None if message is None else message.encode()


def dispute(
    *,
    trainer: Party | Remote | str,
    auditor: Party | Audit | Remote | str,
    referee: Referee,
    keys: Keys | None = None,
    commitment: object = None,
    turn_seconds: float = TURN_SECONDS,
    transcript: str | os.PathLike[str] | None = None,
) -> Verdict:
    """Finds the first step and operator at which two committed runs of one job differ, and who of
    both is wrong there.

    A party is in this program, or at a URL that `potl serve --disputes` serves. One that is
    elsewhere is asked again, whatever a network does, until its time is over.

    Args:
        trainer: With the run.
        auditor: With its repetition (`potl.audit` with `to_the_end=True`), or what `potl.audit`
            returned: then the rest is repeated first, if it stopped at a difference.
        referee: With the agreed task.
        keys: Public keys of "trainer" and "auditor", or their files: of a party at a URL, unless
            the job pins the trainer's. A server is not believed who it is.
        commitment: The trainer's, as you hold it. Without it a trainer that signed two chooses
            about which one it disputes.
        turn_seconds: A party that does not move for so long has lost.
        transcript: File that keeps the lines. After a crash the dispute goes on with it.

    Example:
        >>> verdict = potl.dispute(  # doctest: +SKIP
        ...     trainer="https://trainer.example",
        ...     auditor=potl.Party("audits/1", job=job, task=build),
        ...     referee=potl.Referee(job, task=build, key="referee.pem"),
        ...     transcript="dispute.jsonl",
        ... )
        >>> verdict.winner, verdict.step, verdict.operator  # doctest: +SKIP

    Raises:
        JobMismatch: The task of a party here, or of the referee, is not that of the job.
        UsageError: The parties are of different jobs, or a key is not known.
        MismatchError: The job pins another key of the trainer, a commitment is not its party's,
            or the trainer's is another one than you hold.
        StorageError: Nobody answers at a URL, before the first line.
    """
    require_turn(turn_seconds)
    with WatchedClock(away_seconds(turn_seconds)) as clock:
        return play(
            {"trainer": trainer, "auditor": auditor},
            referee,
            keys=keys or {},
            commitment=commitment,
            turn_seconds=turn_seconds,
            transcript=transcript,
            clock=clock,
        )


def play(
    parties: Mapping[Name, Party | Audit | Remote | str],
    referee: Referee,
    *,
    keys: Keys,
    commitment: object = None,
    turn_seconds: float,
    transcript: str | os.PathLike[str] | None,
    clock: Watched,
) -> Verdict:
    """`dispute` by a clock."""
    chosen = {name: _chosen(party, referee) for name, party in parties.items()}
    here = {name: one for name, one in chosen.items() if isinstance(one, Party)}
    if any(one.job.id != referee.job.id for one in here.values()):
        raise UsageError("the parties and the referee have different jobs", "give them one")
    for party in here.values():
        with party.open():  # found out later, it would leave the dispute undecided
            pass
    public = public_keys(referee, {name: one.key.public_key for name, one in here.items()}, keys)
    own = referee.key.public_key
    with contextlib.ExitStack() as held:
        store = held.enter_context(stored(transcript))
        if store is not None and store.text:
            with contextlib.suppress(MissingError):  # there is no verdict yet
                found = verdict_of(store.text, referee, public, commitment)
                # Nobody is asked, as whoever lost may be gone.
                require_about(
                    store.text.partition("\n")[0], {name: one.note for name, one in here.items()}
                )
                return found
        referee._require_task()
        sides: dict[Name, Side] = {}
        for name in NAMES:
            one = chosen[name]
            if isinstance(one, Party):
                if one is not parties[name]:
                    held.enter_context(contextlib.closing(one))
                sides[name] = Here(one, keys=public, referee=own)
            else:
                job = referee.job.id.hex()
                there = There(one, name, job=job, keys=public, referee=own, clock=clock)
                sides[name] = held.enter_context(contextlib.closing(there))
        require_held(sides["trainer"].note, commitment)
        table = Table(
            setting_of(referee.job, public, own),
            referee,
            {name: side.note for name, side in sides.items()},
            turn_seconds=turn_seconds,
            store=store,
            clock=clock,
        )
        while table.now.verdict is None:
            _move(table, sides, clock)
    return verdict_of(table.transcript, referee, public, commitment)


def public_keys(
    referee: Referee, own: Mapping[Name, _core.PublicKey], keys: Keys
) -> dict[Name, _core.PublicKey]:
    """The keys of both parties, as the referee knows them.

    Raises:
        UsageError: One is not known, or named for nobody.
        MismatchError: One is another one's.
    """
    if not keys.keys() <= set(NAMES):
        raise UsageError("keys are of the trainer and the auditor", "")
    pinned = referee.job.core.trainer
    found: dict[Name, _core.PublicKey] = {}
    for name in NAMES:
        said = [own[name]] if name in own else []
        if name == "trainer" and pinned is not None:
            said.append(_core.PublicKey.from_raw(pinned))
        if name in keys:
            said.append(public_key(keys[name]))
        if not said:
            raise UsageError(
                f"nobody but its server says which key the {name} has",
                f'pass keys={{"{name}": ...}} or --{name}-key',
            )
        if len({one.raw for one in said}) > 1:
            whose = "the job pins" if name == "trainer" and pinned is not None else "you know"
            raise MismatchError(f"{whose} another key of the {name}")
        found[name] = said[0]
    return found


def verdict_of(
    transcript: str,
    referee: Referee,
    keys: Mapping[Name, _core.PublicKey],
    commitment: object = None,
) -> Verdict:
    """What came of it, as anybody judges it."""
    public = {str(name): key for name, key in keys.items()}
    public["referee"] = referee.key.public_key
    pem = {name: key.to_pem() for name, key in public.items()}
    evidence = DisputeEvidence(referee.job.id, pem, transcript)
    found = judge(evidence, job=referee.job, keys=public, commitment=commitment)
    # Nobody has to believe decisions of his own.
    return replace(found, believed=0, recomputed=found.why in RULED)


def _move(table: Table, sides: Mapping[Name, Side], clock: Watched) -> None:
    """What happens next."""
    now = table.now
    expected = now.expected
    if expected is None:
        table.decide()
        return

    def left() -> float:
        return (expected.deadline - clock.now()) / 1000

    try:
        message = sides[expected.who].message(
            table.lines, left, author=table.author, most=now.message_bytes
        )
    except Exception as error:
        # What fails in this program is not the fault of whoever it stands for.
        table.give_up(f"the {expected.who} could not answer: {type(error).__name__}: {error}")
        return
    if clock.was_away():
        table.restart()
    if message is None:
        table.tick(expected.deadline + 1)
    elif not table.receive(expected.who, message):
        clock.sleep(_AGAIN_SECONDS)


def _chosen(party: Party | Audit | Remote | str, referee: Referee) -> Party | Remote:
    if isinstance(party, Audit):
        whole = party if party.commitment is not None else party.finish()
        return Party(whole.log, job=referee.job, task=referee.build, key=whole.key)
    if isinstance(party, str):
        if not is_url(party):
            raise UsageError(f'"{party}" is not a URL', "pass a potl.Party for a directory")
        party = Remote(party)
    return party
