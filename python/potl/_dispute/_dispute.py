# SPDX-License-Identifier: Apache-2.0
"""`dispute`: two parties, a referee, and the transcript that anybody can judge again."""

from __future__ import annotations

import time
from typing import Literal

from .. import _core
from .._base._errors import MismatchError, UsageError
from ._answers import to_json
from ._evidence import DisputeEvidence, Verdict, judge
from ._party import Party
from ._referee import Referee

_TURN_SECONDS = 3600.0


def dispute(
    *, trainer: Party, auditor: Party, referee: Referee, turn_seconds: float = _TURN_SECONDS
) -> Verdict:
    """Finds the first step and operator at which two committed runs of one job differ, and who of
    both is wrong there.

    Args:
        trainer: With the run.
        auditor: With its repetition (`potl.audit` with `to_the_end=True`).
        referee: With the agreed task.
        turn_seconds: A party that does not move for so long has lost.

    Example:
        >>> verdict = potl.dispute(  # doctest: +SKIP
        ...     trainer=potl.Party("runs/1", job=job, task=build, key="trainer.pem"),
        ...     auditor=potl.Party("audits/1", job=job, task=build),
        ...     referee=potl.Referee(job, task=build),
        ... )
        >>> verdict.winner, verdict.step, verdict.operator  # doctest: +SKIP

    Raises:
        UsageError: The parties are of different jobs.
        MismatchError: The job pins another key of the trainer.
    """
    if len({one.job.id for one in (trainer, auditor, referee)}) > 1:
        raise UsageError("the parties and the referee have different jobs", "give them one")
    keys = {"trainer": trainer.key, "auditor": auditor.key, "referee": referee.key}
    public = {name: key.public_key for name, key in keys.items()}
    if referee.job.core.trainer not in (None, public["trainer"].raw):
        raise MismatchError("the job pins another key of the trainer")
    setting = _core.DisputeSetting(referee.job.core, **public)
    desk = _core.DisputeReferee.open(
        setting,
        trainer=trainer.note,
        auditor=auditor.note,
        turn_ms=int(turn_seconds * 1000),
        key=referee.key,
        at=_now(),
    )
    first = desk.transcript.splitlines()[0]
    players: list[tuple[Literal["trainer", "auditor"], _core.DisputePlayer]] = [
        ("trainer", _player(setting, "trainer", trainer, first)),
        ("auditor", _player(setting, "auditor", auditor, first)),
    ]
    while desk.proceedings.verdict is None:
        for line in _lines(desk, referee, players):
            for _, player in players:
                player.follow(line)
    pem = {name: key.to_pem() for name, key in public.items()}
    evidence = DisputeEvidence(referee.job.id, pem, desk.transcript)
    return judge(evidence, job=referee.job, keys=public)


def _lines(
    desk: _core.DisputeReferee,
    referee: Referee,
    players: list[tuple[Literal["trainer", "auditor"], _core.DisputePlayer]],
) -> list[str]:
    """What happens next."""
    now = desk.proceedings
    if now.is_referees_turn:
        return [desk.decide(referee.decide(now), at=_now())]
    for name, player in players:
        try:
            message = player.next_message()
        except Exception as error:
            # What fails in this program is not the fault of whoever it stands for.
            why = f"the {name} could not answer: {type(error).__name__}: {error}"[:1000]
            ruling = _core.DisputeRuling("referee", evidence=to_json({"undecided": why}))
            return [desk.decide(ruling, at=_now())]
        if message is not None:
            line = desk.receive(name, message.encode(), at=_now())
            return [] if line is None else [line]
    expected = now.expected
    assert expected is not None
    line = desk.tick(at=expected.deadline + 1)
    return [] if line is None else [line]


def _player(
    setting: _core.DisputeSetting, name: Literal["trainer", "auditor"], party: Party, first: str
) -> _core.DisputePlayer:
    return _core.DisputePlayer(
        setting,
        name,
        key=party.key,
        first_line=first,
        claim=party.claim,
        opening=party.opening,
        answer=party.answer,
    )


def _now() -> int:
    return time.time_ns() // 1_000_000
