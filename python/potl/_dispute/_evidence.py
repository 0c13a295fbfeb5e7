# SPDX-License-Identifier: Apache-2.0
"""`judge`: the evidence of a dispute, and what follows from it for whoever reads it. Torch is
imported where something is computed again, and not before.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from .. import _core
from .._base._errors import MalformedError, MismatchError, PotlError, UsageError
from .._base._public_key import public_key
from .._record._inputs import as_job
from ._seat import notes_in, require_held

if TYPE_CHECKING:
    from .._job._job import Job
    from .._task._task import Task

_FORMAT = "potl-dispute-evidence-v1"
_MOST_EVIDENCE = 256 << 20
# Parsed values take many times the bytes of their text, and whoever wrote the file chose how many
# there are. So no more is parsed here than the keys, in front of the transcript, and a ruling, of
# which the evidence has 1 MiB before base64.
_MOST_HEAD, _MOST_RULING = 16 << 10, 2 << 20
_TRANSCRIPT = b'"transcript":'


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
        """Writes it as canonical JSON (RFC 8785)."""
        _core.write_file(os.fspath(path), self._canonical())

    @classmethod
    def _require_place(cls, path: str | os.PathLike[str]) -> None:
        """Refuses a file that `write` would fail at after a long dispute, or that would be lost.

        Raises:
            UsageError: There is no folder for it, or something else has its name.
        """
        place = Path(path)
        folder = place.absolute().parent
        if not folder.is_dir():
            raise UsageError(f"there is no folder {folder}", "make it, or name another one")
        if not os.path.lexists(place):
            return
        try:
            cls.read(place)
        except (PotlError, OSError) as error:
            raise UsageError(
                f"{place} exists and is no evidence of a dispute", "name another file"
            ) from error

    def _canonical(self) -> bytes:
        document = {
            "format": _FORMAT,
            "job": self.job.hex(),
            "keys": self.keys,
            "transcript": self.transcript,
        }
        return _core.canonical_json(document)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> DisputeEvidence:
        """Reads what `write` wrote, byte for byte: of no dispute there are two files.

        Raises:
            MalformedError: It is something else.
        """
        text = _core.read_file(os.fspath(path), max_bytes=_MOST_EVIDENCE)
        head, _, rest = text.partition(_TRANSCRIPT)
        try:
            if len(head) > _MOST_HEAD or not rest.startswith(b'"') or not rest.endswith(b"}"):
                raise ValueError
            found = {
                **json.loads(head + _TRANSCRIPT + b"null}"),
                "transcript": json.loads(rest[:-1]),
            }
            keys = found["keys"]
            if set(keys) != {"trainer", "auditor", "referee"}:
                raise ValueError
            if not all(isinstance(one, str) for one in (*keys.values(), found["transcript"])):
                raise ValueError
            read = cls(bytes.fromhex(found["job"]), dict(keys), found["transcript"])
            same = read._canonical() == text and all(
                _core.PublicKey.from_pem(pem).to_pem() == pem for pem in keys.values()
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise MalformedError(
                f"{os.fspath(path)} is not evidence of a dispute",
                "potl dispute writes it; a run is a folder, and potl job show shows a job",
            ) from error
        if not same:
            raise MalformedError(f"{os.fspath(path)} is evidence of a dispute, but not as written")
        return read


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
        believed: Decisions of a referee elsewhere that were not computed again. The times, and who
            sent what nobody signed for this dispute, are believed in any case.
        recomputed: Whether the ruling was: the element, what was opened, or with the task the
            operator. False also where the rules of the game ended it.
        unknown_keys: Of whom the keys are the word of the evidence alone. Who made the keys of all
            three can have made up a dispute; of the referee alone, the times.
        commitments: SHA-256 of the texts of both commitments.
        holds_commitment: Whether the trainer's was compared with one that you hold.
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
    recomputed: bool
    unknown_keys: tuple[str, ...]
    commitments: dict[str, str]
    holds_commitment: bool
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
        if self.winner == "trainer":
            out.append("not shown: the trainer's other steps. A dispute is no verification")
        if self.why != "agreement":  # there was nothing to decide
            said = "all decisions of the referee were computed here"
            if self.believed:
                said = f"{self.believed} decisions of the referee are believed"
                if self.recomputed:
                    said += ", its ruling was computed again"
                elif self.why in RULED:
                    said += ", also who is right: the task decides that"
            # Also where everything else was computed here.
            said += _TRUSTED.get(self.why, "")
            out.append(f"{self.moves} messages; {said}")
        if self.unknown_keys:
            out.append(f"nothing vouches for the keys of: {', '.join(self.unknown_keys)}")
        if not self.holds_commitment:
            about = self.commitments["trainer"][:16]
            out.append(f"about the trainer's commitment {about}...: see that you hold that one")
        return out

    def document(self) -> dict[str, object]:
        """The verdict for programs."""
        return {
            "winner": self.winner,
            "trainer_wrong": self.trainer_wrong,
            "auditor_wrong": self.auditor_wrong,
            "why": self.why,
            "step": self.step,
            "operator": self.operator,
            "element": self.element,
            "facts": self.facts,
            "moves": self.moves,
            "believed": self.believed,
            "recomputed": self.recomputed,
            "unknown_keys": self.unknown_keys,
            "commitments": self.commitments,
            "holds_commitment": self.holds_commitment,
            "keys": self.evidence.keys,
        }


# What a referee rules; everything else follows from the rules of the game.
RULED = ("value", "structure", "opening")
# What no line shows, whoever computes: docs/format/dispute.md.
_TRUSTED = {
    "silence": "; the silence was measured by the referee's clock alone",
    **dict.fromkeys(
        ("garbage", "other_run", "other_parent"),
        "; who sent what nobody signed for this dispute is the referee's word",
    ),
}
_UNWON = {"agreement": "no dispute", "referee": "undecided"}
_WHY = {
    "agreement": "both committed to the same final state",
    "value": "computed again, the value is another one",
    "structure": "the agreed program has another operator there",
    "opening": "what was opened does not fit what was claimed",
    "silence": "no message came in time",
    "garbage": "what came is not a message",
    "commitment": "a claim is not that of the commitment",
    "contradiction": "two messages for one place",
    "other_run": "a message was about another run",
    "other_parent": "a message answered another one",
    "other_place": "a message was about another place",
    "referee": "the referee could not decide, and convicts nobody",
}


def judge(
    evidence: DisputeEvidence | str | os.PathLike[str],
    *,
    job: Job | str | os.PathLike[str],
    task: Callable[[], Task] | str | None = None,
    keys: Mapping[str, _core.PublicKey | str | os.PathLike[str]] | None = None,
    commitment: object = None,
) -> Verdict:
    """Judges a dispute again from its evidence.

    Args:
        evidence: Or its file.
        job: What was agreed.
        task: With it everything that the referee decided is computed again. Without it that is done
            as far as the evidence says what is right, which for most operators is the element that
            the ruling is about; which operators the agreed program has is believed. `believed`
            counts how often.
        keys: Public keys that you have from somebody you trust, or their files, of "trainer",
            "auditor", "referee". The trainer's may also stand in the job.
        commitment: The trainer's, as you hold it. Without it a trainer that signed two can have
            disputed about the other one.

    Raises:
        JobMismatch: The task is not that of the job.
        MalformedError, MismatchError: It is not the transcript of a dispute about this job, or
            about that commitment.
        MissingError: It has no verdict.
    """
    if not isinstance(evidence, DisputeEvidence):
        evidence = DisputeEvidence.read(evidence)
    agreed = as_job(job)
    if evidence.job != agreed.id:
        raise MismatchError("the evidence is about another job")
    own = {name: _core.PublicKey.from_pem(pem) for name, pem in evidence.keys.items()}
    setting = _core.DisputeSetting(agreed.core, **own)
    known = {name: public_key(key).raw for name, key in (keys or {}).items()}
    if agreed.core.trainer is not None:
        known["trainer"] = agreed.core.trainer
    for name, raw in known.items():
        if name not in own:
            raise UsageError(
                f"nobody in a dispute is called {name}", "use trainer, auditor, referee"
            )
        if own[name].raw != raw:
            raise MismatchError(f"the evidence is signed with another key of the {name}")
    facts = _facts_in(evidence.transcript.rstrip("\n").rpartition("\n")[2])
    again, onlooker = None, None
    described = _described(facts.pop("operators", None))
    if task is not None:
        from ._referee import Referee  # late: it needs torch

        referee = Referee(agreed, task=task)
        referee._require_task()  # with another one the referee would seem to have lied
        again = referee._disagrees
    elif described:
        with contextlib.suppress(ImportError):  # an installation without torch believes
            from ._onlooker import Onlooker

            onlooker = Onlooker(agreed, described)
            again = onlooker._disagrees
    found = _core.judge_dispute(setting, evidence.transcript, again)
    notes = notes_in(evidence.transcript.partition("\n")[0])
    require_held(notes["trainer"], commitment)
    ruled = found.verdict.why in RULED and (onlooker.ruled if onlooker else again is not None)
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
        # Read by the core, a line has that word in no other place.
        moves=evidence.transcript.count('"kind":"message"'),
        believed=found.believed if onlooker is None else onlooker.believed,
        recomputed=ruled,
        unknown_keys=tuple(name for name in own if name not in known),
        commitments={str(name): _core.sha256(one.encode()).hex() for name, one in notes.items()},
        holds_commitment=commitment is not None,
        evidence=evidence,
    )


def _facts_in(last: str) -> dict[str, object]:
    """What the ruling says that the referee saw. Nothing of it is shown to be so yet.

    Raises:
        MalformedError: It is not the last line of a transcript.
    """
    if len(last) > _MOST_RULING:
        return {}  # no ruling, but what a party sent
    try:
        return facts_of(base64.b64decode(json.loads(last)["entry"].get("evidence", "")))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise MalformedError("this is not a transcript of a dispute") from error


def _described(given: object) -> dict[int, bytes]:
    """The operators that a ruling describes, by number."""
    try:
        return {int(number): base64.b64decode(text) for number, text in given.items()}  # type: ignore[attr-defined]
    except (ValueError, TypeError, AttributeError):
        return {}


def facts_of(evidence: bytes) -> dict[str, object]:
    """What a ruling's evidence says."""
    try:
        found = json.loads(evidence or b"{}")
    except (ValueError, RecursionError):  # a referee may have written anything
        return {}
    return found if isinstance(found, dict) else {}
