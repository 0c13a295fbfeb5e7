# SPDX-License-Identifier: Apache-2.0
"""`dispute`: two parties, a referee, and the transcript that anybody can judge again."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from .. import _core
from .._base._errors import MalformedError, MismatchError, UsageError
from .._record._inputs import as_job
from ._answers import to_json
from ._party import Party
from ._referee import Referee, facts_of

if TYPE_CHECKING:
    from .._job._job import Job
    from .._task._task import Task

_FORMAT = "potl-dispute-evidence-v1"
_MOST_EVIDENCE = 256 << 20
_TURN_SECONDS = 3600.0


@dataclass(frozen=True)
class DisputeEvidence:
    """A dispute that anybody can judge again: the signed transcript and the keys.

    Attributes:
        job: Id of the job.
        keys: PEM of the public keys of "trainer", "auditor" and "referee".
        transcript: docs/format/dispute.md.
    """

    job: bytes
    keys: dict[str, str]
    transcript: str

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes it as JSON."""
        document = {
            "format": _FORMAT,
            "job": self.job.hex(),
            "keys": self.keys,
            "transcript": self.transcript,
        }
        _core.write_file(os.fspath(path), json.dumps(document, indent=1).encode())

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> DisputeEvidence:
        """Reads what `write` wrote.

        Raises:
            MalformedError: It is something else.
        """
        try:
            found = json.loads(_core.read_file(os.fspath(path), max_bytes=_MOST_EVIDENCE))
            keys = found["keys"]
            if found["format"] != _FORMAT or set(keys) != {"trainer", "auditor", "referee"}:
                raise ValueError
            if not all(isinstance(one, str) for one in (*keys.values(), found["transcript"])):
                raise ValueError
            return cls(bytes.fromhex(found["job"]), dict(keys), found["transcript"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise MalformedError(f"{os.fspath(path)} is no evidence of a dispute") from error


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """How a dispute ended.

    Attributes:
        winner: "trainer" or "auditor"; None where neither is right, both agree, or the referee
            could not decide.
        trainer_wrong: Whether the trainer lost.
        auditor_wrong: Whether the auditor lost.
        why: "agreement", "value" (recomputed, it is another one), "structure" (an operator that
            the agreed program does not have), "opening", "silence", "garbage", "commitment",
            "contradiction", "other_run", "other_parent", "other_place", or "referee".
        step: The first step that differs; 0 where none was found.
        operator: Its number in the step, from 0, and its name; None where it did not come to that.
        element: The element of its result that was recomputed, in logical order; None without one.
        facts: What the referee saw.
        moves: Messages of the parties.
        believed: Decisions of the referee that were not computed again.
        unknown_keys: Of whom the keys are the word of the evidence alone. Who made the keys of all
            three can have made up a dispute; of the referee alone, the times.
        evidence: The transcript with its keys.
    """

    winner: Literal["trainer", "auditor"] | None
    trainer_wrong: bool
    auditor_wrong: bool
    why: str
    step: int
    operator: tuple[int, str] | None
    element: int | None
    facts: dict[str, object]
    moves: int
    believed: int
    unknown_keys: tuple[str, ...]
    evidence: DisputeEvidence

    def lines(self) -> list[str]:
        """The verdict for people."""
        unwon = _UNWON.get(self.why, "both are wrong")
        who = unwon if self.winner is None else f"the {self.winner} is right"
        out = [f"{who}: {_WHY[self.why]}"]
        if self.step:
            where = "" if self.operator is None else ", operator {} ({})".format(*self.operator)
            place = "" if self.element is None else f", element {self.element}"
            out.append(f"step {self.step}{where}{place}")
        for name in ("true", "trainer", "auditor", "undecided"):
            if name in self.facts:
                out.append(f"{name}: {self.facts[name]}")
        out.append(
            f"{self.moves} messages; "
            + (
                f"{self.believed} decisions of the referee are believed"
                if self.believed
                else "the referee's decisions were computed again"
            )
        )
        if self.unknown_keys:
            out.append(f"nothing vouches for the keys of: {', '.join(self.unknown_keys)}")
        return out


_UNWON = {"agreement": "no dispute", "referee": "undecided"}
_WHY = {
    "agreement": "both committed to the same final state",
    "value": "computed again, the value is another one",
    "structure": "the agreed program has another operator there",
    "opening": "what was opened does not fit what was claimed",
    "silence": "no message came in time",
    "garbage": "what came is no message",
    "commitment": "a claim is not that of the commitment",
    "contradiction": "two messages for one place",
    "other_run": "a message was about another run",
    "other_parent": "a message answered another one",
    "other_place": "a message was about another place",
    "referee": "the referee could not decide, and convicts nobody",
}


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


def judge(
    evidence: DisputeEvidence | str | os.PathLike[str],
    *,
    job: Job | str | os.PathLike[str],
    task: Callable[[], Task] | str | None = None,
    keys: Mapping[str, _core.PublicKey | str | os.PathLike[str]] | None = None,
) -> Verdict:
    """Judges a dispute again from its evidence.

    Args:
        evidence: Or its file.
        job: What was agreed.
        task: With it what the referee decided is computed again as well. Without it the referee is
            believed, and `believed` counts how often.
        keys: Public keys that you have from somebody you trust, or their files, of "trainer",
            "auditor", "referee". The trainer's may also stand in the job.

    Raises:
        MalformedError, MismatchError: It is not the transcript of a dispute about this job.
        MissingError: It has no verdict.
    """
    if not isinstance(evidence, DisputeEvidence):
        evidence = DisputeEvidence.read(evidence)
    agreed = as_job(job)
    if evidence.job != agreed.id:
        raise MismatchError("the evidence is about another job")
    own = {name: _core.PublicKey.from_pem(pem) for name, pem in evidence.keys.items()}
    setting = _core.DisputeSetting(agreed.core, **own)
    known = {name: _raw(key) for name, key in (keys or {}).items()}
    if agreed.core.trainer is not None:
        known["trainer"] = agreed.core.trainer
    for name, raw in known.items():
        if name not in own:
            raise UsageError(
                f"nobody in a dispute is called {name}", "use trainer, auditor, referee"
            )
        if own[name].raw != raw:
            raise MismatchError(f"the evidence is signed with another key of the {name}")
    again = None if task is None else Referee(agreed, task=task).disagrees
    found = _core.judge_dispute(setting, evidence.transcript, again)
    facts, moves = _facts(evidence.transcript)
    number, element = facts.get("operator"), facts.get("element")
    return Verdict(
        winner=found.verdict.winner,
        trainer_wrong=found.verdict.trainer_wrong,
        auditor_wrong=found.verdict.auditor_wrong,
        why=found.verdict.why,
        step=found.step,
        operator=(number, str(facts.get("name"))) if isinstance(number, int) else None,
        element=element if isinstance(element, int) else None,
        facts=facts,
        moves=moves,
        believed=found.believed,
        unknown_keys=tuple(name for name in own if name not in known),
        evidence=evidence,
    )


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


def _facts(transcript: str) -> tuple[dict[str, object], int]:
    """What the ruling says that the referee saw, and how many messages there are."""
    import base64

    entries = [json.loads(line)["entry"] for line in transcript.splitlines()]
    moves = sum(entry["kind"] == "message" for entry in entries)
    evidence = entries[-1].get("evidence", "")
    return facts_of(base64.b64decode(evidence)), moves


def _raw(key: _core.PublicKey | str | os.PathLike[str]) -> bytes:
    if isinstance(key, _core.PublicKey):
        return bytes(key.raw)
    pem = _core.read_file(os.fspath(key), max_bytes=1 << 16).decode("ascii", "backslashreplace")
    return bytes(_core.PublicKey.from_pem(pem).raw)


def _now() -> int:
    return time.time_ns() // 1_000_000
