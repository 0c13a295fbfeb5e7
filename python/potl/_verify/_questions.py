# SPDX-License-Identifier: Apache-2.0
"""What one verification asks: the present checks and all earlier challenges of the job."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .. import _core
from ._ledger import Memory


@dataclass
class Question:
    """A check with its options, under one nonce.

    Attributes:
        check: Name of the check.
        options: Its options.
        nonce: What its draw depends on, beside the commitment.
        plan: Its requests, once it was planned.
        earlier: Whether it is here only because it was asked before.
    """

    check: str
    options: Mapping[str, Any]
    nonce: bytes
    plan: list[dict[str, Any]] = field(default_factory=list)
    earlier: bool = False


def with_earlier(asked: Sequence[Question], known: Memory) -> list[Question]:
    """The questions of now, then those of earlier verifications that they do not contain.

    Segments that were drawn for an earlier replay join the replay of now, so that each is judged
    once; a check that is not asked now is asked again as it was then.
    """
    earlier = [
        Question(name, options, bytes.fromhex(challenge.nonce), earlier=True)
        for challenge in known.challenges
        for name, options in challenge.checks
    ]
    questions = list(asked)
    for old in earlier:
        if any((q.check, q.options, q.nonce) == (old.check, old.options, old.nonce) for q in asked):
            continue
        place = next((i for i, q in enumerate(questions) if q.check == old.check == "replay"), None)
        if place is None:
            questions.append(old)
            continue
        draw = f"{old.nonce.hex()}:{int(old.options['samples'])}"
        again = [*questions[place].options.get("repeat", ()), draw]
        options = {**questions[place].options, "repeat": list(dict.fromkeys(again))}
        questions[place] = replace(questions[place], options=options)
    return questions


def worth_asking(
    questions: Sequence[Question], evidence: _core.Evidence, *, screen: bool
) -> list[Question]:
    """The questions with their requests; of a run that the audit rejects, those without any."""
    if evidence.rejected:
        questions = [one for one in questions if one.check == "telemetry"]
    return planned(questions, evidence, screen=screen)


def planned(
    questions: Sequence[Question], evidence: _core.Evidence, *, screen: bool
) -> list[Question]:
    """The questions with their requests, without earlier ones that would ask for nothing more.

    `screen`: whether the stored states are looked at for what else should be replayed; a challenge
    does not, since it comes before them.
    """
    out = []
    asked: set[str] = set()
    for question in questions:
        requests = _core.plan_check(
            question.check, evidence, dict(question.options), question.nonce, screen=screen
        )
        keys = {request_key(request) for request in requests}
        if question.earlier and keys <= asked:
            continue
        asked |= keys
        out.append(replace(question, plan=requests))
    return out


def settled_by(
    questions: Sequence[Question], evidence: _core.Evidence
) -> Callable[[Mapping[str, Any]], bool]:
    """Says of a measurement whether it alone rejects the run, whatever the others will be.

    That is asked of what no noise excuses: a state that is withheld, tampered with, not finite or
    of another form, and other bits where replay is exact.
    """

    def settles(measurement: Mapping[str, Any]) -> bool:
        request = measurement["request"]
        status = measurement["status"]
        exact = evidence.job.arithmetic != "stock"
        differs = exact and not measurement.get("digest_equal", True)
        if status == "verifier_error" or (
            status == "ok" and not differs and not measurement.get("not_finite")
        ):
            return False
        key = request_key(request)
        for question in questions:
            for own in question.plan:
                if request_key(own) == key:
                    findings = _core.judge_check(
                        question.check,
                        evidence,
                        dict(question.options),
                        question.nonce,
                        [{**measurement, "request": own}],
                    )
                    if any(one["result"] == "reject" for one in findings):
                        return True
        return False

    return settles


def request_key(request: Mapping[str, Any]) -> str:
    """Equal for requests that ask for the same, whatever their reason."""
    return json.dumps({k: v for k, v in request.items() if k != "why"}, sort_keys=True)
