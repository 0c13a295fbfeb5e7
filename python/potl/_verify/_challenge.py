# SPDX-License-Identifier: Apache-2.0
"""Challenges as documents, for runs whose trainer stores only some of the states (`store_every` of
the job) and derives those between when they are asked for.

A verifier draws one after the commitment, the trainer derives what it names (`rederive`), and the
verifier then asks the same again. Which states are there must never have a say in what is drawn,
and nothing counts as withheld that nobody has asked for: both would let a prover choose.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from .. import _core
from .._base import _imports
from .._base._errors import LimitError, MalformedError, UsageError
from .._base._nonce import Nonce, or_fresh
from .._record._inputs import as_note, as_own_job, require_file
from .._remote._remote import AnyRun, opened
from . import _ledger
from ._questions import Asked, Question, Questions, given

if TYPE_CHECKING:
    from typing_extensions import NotRequired

    from .._checks._checks import AnyCheck, Policy
    from .._job._job import Job
    from .._record._run import Commitment

_log = logging.getLogger("potl")

_FORMAT = "potl-challenge-v1"
_MAX_BYTES = 8 << 20  # as parse_json allows by default: hostile text costs less than 64 MB


class ChallengeDocument(TypedDict):
    """A challenge as JSON values: docs/format/transcript.md."""

    format: str
    job: str
    root: str
    nonce: str
    checks: list[_core.AskedCheck]
    states: list[int]
    given_nonce: NotRequired[Literal[True]]


@dataclass(frozen=True, kw_only=True)
class Challenge:
    """What a verifier wants to see of a committed run.

    Attributes:
        job: Id of the job.
        root: Root of the commitment; nothing is derived for a run that could still change.
        nonce: What the draw depends on, beside the commitment.
        checks: Pairs of check name and options.
        states: Steps after which the state is wanted, beside those that are stored by agreement.
        own: Whether this process drew it. A file has been in other hands; the ledger tells whether
            it is still what was drawn.
        given_nonce: Whether somebody chose the nonce, instead of having it drawn.
    """

    job: bytes
    root: bytes
    nonce: bytes
    checks: tuple[Asked, ...]
    states: tuple[int, ...]
    own: bool = field(default=False, compare=False, repr=False)
    given_nonce: bool = False

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes the document, for the trainer and for `verify(challenge=...)`."""
        _core.write_file(os.fspath(path), _core.canonical_json(self.document()))

    def document(self) -> ChallengeDocument:
        """The challenge as JSON values: docs/format/transcript.md."""
        out: ChallengeDocument = {
            "format": _FORMAT,
            "job": self.job.hex(),
            "root": self.root.hex(),
            "nonce": self.nonce.hex(),
            "checks": [{"check": name, "options": dict(o)} for name, o in self.checks],
            "states": list(self.states),
        }
        if self.given_nonce:
            out["given_nonce"] = True
        return out

    def digest(self) -> str:
        """SHA-256 of the document, hexadecimal."""
        return hashlib.sha256(_core.canonical_json(self.document())).hexdigest()

    @staticmethod
    def read(path: str | os.PathLike[str]) -> Challenge:
        """Reads what `write` wrote.

        Raises:
            MalformedError: It is not a challenge.
        """
        raw = _core.read_file(os.fspath(path), max_bytes=_MAX_BYTES)
        try:
            return _parsed(_core.parse_json(raw, max_bytes=_MAX_BYTES))
        except (KeyError, TypeError, ValueError, MalformedError, LimitError) as error:
            raise MalformedError(
                f"{os.fspath(path)} is not a challenge: {error}", "name the file of potl challenge"
            ) from error


# Any: it comes from a file. What is not as it should be raises here, and `read` says so.
def _parsed(document: Any) -> Challenge:
    if document["format"] != _FORMAT:
        raise ValueError(f'the format is not "{_FORMAT}"')
    steps = document["states"]
    if not isinstance(steps, list) or not all(type(one) is int and one >= 0 for one in steps):
        raise ValueError("states are step numbers")
    return Challenge(
        job=_digest(document["job"]),
        root=_digest(document["root"]),
        nonce=_digest(document["nonce"]),
        checks=tuple((str(one["check"]), dict(one["options"])) for one in document["checks"]),
        states=tuple(sorted(set(steps))),
        given_nonce=document.get("given_nonce") is True,
    )


def _digest(text: str) -> bytes:
    out = bytes.fromhex(text)
    if len(out) != 32:
        raise ValueError("a digest has 64 hexadecimal digits")
    return out


def as_challenge(challenge: Challenge | str | os.PathLike[str]) -> Challenge:
    """A challenge as it is, or the one in a file."""
    if isinstance(challenge, Challenge):
        return challenge
    require_file(challenge, "challenge")
    return Challenge.read(challenge)


def challenge(
    run: AnyRun,
    *,
    job: Job | str | os.PathLike[str],
    commitment: Commitment | str | os.PathLike[str],
    checks: Sequence[AnyCheck] | None = None,
    policy: Policy | None = None,
    nonce: Nonce | None = None,
    ledger: str | os.PathLike[str] | bool | None = True,
) -> Challenge:
    """Draws what `verify` will ask for, so that the trainer can derive the states for it.

    The challenge is remembered: each later verification repeats it.

    Args:
        run: The run directory, a URL or a `potl.Remote`; its log is enough.
        job: The verifier's own copy of what was agreed.
        commitment: The prover's commitment.
        checks: What will be looked at; None chooses as `verify` does.
        policy: How strong the evidence must be.
        nonce: 32 bytes, their hexadecimal digits, or a file of those; None draws them now.
        ledger: As in `verify`.

    Returns:
        The challenge. `write` makes a file of it for the trainer.

    Raises:
        UsageError: The job has every checkpoint stored: verify at once.
    """
    from .._checks import _registry
    from .._checks._checks import Policy

    own, note = as_own_job(job, run).core, as_note(commitment)
    if own.store_every == 0:
        raise UsageError(
            "the job has every checkpoint stored, so that there is nothing to derive",
            "verify at once; a job with store_every, which needs a reproducible arithmetic, lets "
            "the trainer derive states on demand",
        )
    with opened(run, own) as place:
        _imports.close(place.directory)
        path = _ledger.path_for(ledger, own, commitment)
        known = _ledger.known_of(path, own)
        evidence = _core.Evidence.open(
            str(place.directory),
            job=own,
            commitment=note,
            other_commitments=[other for other in known.commitments if other != note],
            fetch=place.fetch,
        )
    chosen, extra = _registry.split(checks)
    if checks is None or (extra and not chosen):
        chosen = list((Policy() if policy is None else policy)._checks(own))
    drawn = or_fresh(nonce)
    asked = tuple((check.name, given(check.options())) for check in chosen)
    questions = Questions(evidence, asked, drawn, known, screen=False, from_log=True)
    rejecting = [
        one.reason
        for one in evidence.findings()
        # Files are looked for when they have been asked for.
        if one.result == "reject" and one.rule != "transcript.withheld"
    ]
    if rejecting:
        _log.warning(
            "nothing is asked for, because the record itself is rejected: %s. Verify at once, "
            "without a challenge",
            rejecting[0],
        )
    out = Challenge(
        job=own.id,
        root=root_of(note),
        nonce=drawn,
        checks=asked,
        states=tuple(derived_states(questions.all, own)),
        own=True,
        given_nonce=nonce is not None,
    )
    if path is not None:
        # Before anybody sees it.
        entry = _ledger.new_challenge(drawn, out.checks, out.digest())
        if _ledger.remember(path, job_id=own.id, commitment=note, challenge=entry) != known:
            raise _ledger.changed(path)
    return out


def root_of(note: str) -> bytes:
    """The Merkle root that a note signs."""
    return _core.SignedNote.parse(note).note.root


def require_own(
    given: Challenge, job: _core.Job | None, note: str | None, known: _ledger.Memory
) -> None:
    """Sees to it that a challenge is the verifier's, about its own job and commitment: the trainer
    had the file, and would rather be asked something else.
    """
    if job is None or note is None:
        raise UsageError("a challenge belongs to a job and a commitment", "pass both of them")
    if given.job != job.id:
        raise UsageError("the challenge is about another job", "")
    if given.root != root_of(note):
        raise UsageError("the challenge is about another commitment", "")
    if not given.own and given.digest() not in {one.document for one in known.challenges}:
        raise UsageError(
            "nothing shows that you drew this challenge, or that it is as you drew it",
            "pass the ledger that remembers it, or draw another one with potl challenge",
        )


def require_asked(
    drawn: Challenge, questions: Iterable[Question], evidence: _core.Evidence
) -> None:
    """Sees to it that what is not there was asked for, and may so be held against the trainer."""
    wanted = set(derived_states(questions, evidence.job)) & _underived(evidence)
    unasked = wanted - set(drawn.states)
    if unasked:
        raise UsageError(
            f"the state of step {min(unasked)} is not stored, and the trainer was not asked for it "
            "by this challenge; a later or an earlier one wants it",
            "draw a new challenge: it repeats all earlier ones",
        )


def derived_states(questions: Iterable[Question], job: _core.Job) -> list[int]:
    """The steps whose states these questions need and the job lets the trainer derive."""
    steps: set[int] = set()
    for question in questions:
        # Exact replays compare digests: they need no recorded state at their end.
        exact = question.options.get("tolerance", "auto") in ("auto", "exact")
        for request in question.plan:
            segment = request if isinstance(request, _core.SegmentRequest) else None
            if segment is not None and segment.superseded:
                continue  # starts where recording was resumed: a stored state
            steps.add(request.from_step)
            if segment is not None and not exact:
                steps.add(segment.end)
    return sorted(step for step in steps if not job.is_checkpoint(step))


def _underived(evidence: _core.Evidence) -> set[int]:
    if evidence.job.store_every == 0:
        return set()
    missing = {int(one["step"]) for one in evidence.missing_checkpoints()}
    return {step for step in missing if not evidence.job.is_checkpoint(step)}
