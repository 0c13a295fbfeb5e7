# SPDX-License-Identifier: Apache-2.0
"""A disputed step as a referee knows it: from the task, and from what both parties agree on."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .. import _core
from .._base._errors import MalformedError
from .._job._agreement import Build, open_checked
from . import _answers
from ._derive import derive_operators
from ._operators import MARK, Operator, leaf_bytes, marks_of
from ._outline import StateOutline
from ._rounded import Entries
from ._seat import NAMES, Name
from ._weightless import weightless

if TYPE_CHECKING:
    from .._job._job import Job


@dataclass(frozen=True)
class Step:
    """A step that is disputed, as both parties agree on it, with its operators by their number.

    Attributes:
        weighed: Whether they were derived with the weights of the task.
    """

    before: StateOutline
    operators: Mapping[int, Operator]
    entries: Entries
    weighed: bool = True


def first_sizes(build: Build, job: Job) -> tuple[int, int]:
    """Of the job's first state: bytes of its outline in an answer, and of its tensors."""
    try:
        with weightless():
            return _sizes(build, job, weights=False)
    except Exception:  # of a task that needs its weights
        return _sizes(build, job, weights=True)


def _sizes(build: Build, job: Job, *, weights: bool) -> tuple[int, int]:
    with open_checked(build, job, weights=weights) as session:
        state = _core.State.adopt(session.tree(), session)
        outline = StateOutline.of(state)
        return len(_answers.to_json(_answers.state_to_json(outline))), state.nbytes


def without_weights(
    build: Build, job: Job, step: int, before: StateOutline
) -> tuple[Operator, ...] | None:
    """The operators of a step, derived without the task's weights; None where it needs them."""
    try:
        return derive_operators(build, job, step, before=before, weights=False)
    except Exception:  # whatever it is, who derives them with weights meets it again
        return None


def parting(operators: Sequence[Operator], answer: bytes) -> int:
    """The first operator that a party did not run, as it says itself: nothing is decided by that.
    The last one where it does not say.
    """
    document = _answers.from_json(answer)
    own = marks_of([leaf_bytes(one) for one in operators])
    try:
        told = _answers.as_bytes(document.get("marks"))
    except MalformedError:
        told = b""
    count = document.get("operators")
    if type(count) is not int or len(told) != MARK * count:
        return len(operators) - 1
    same = itertools.takewhile(
        lambda at: own[at : at + MARK] == told[at : at + MARK], range(0, len(own), MARK)
    )
    return min(sum(1 for _ in same), len(operators) - 1)


def other_ends(now: _core.DisputeProceedings, operators: Sequence[Operator]) -> list[bool]:
    """Whose trace has another number of operators, or does not end in the state it claimed."""
    capture, wrong = operators[-1], []
    for opening, claimed, text in zip(
        now.openings, now.bisections[-1].claimed, now.answers, strict=True
    ):
        ended = replace(capture.tensors[0], root=_core.content_root(claimed))
        fits = opening.leaf == leaf_bytes(replace(capture, results=(ended,)))
        counted = _answers.from_json(text).get("operators") == len(operators)
        wrong.append(not (fits and counted))
    return wrong


def end_elsewhere(now: _core.DisputeProceedings) -> bool:
    """Whether a party opened the end of a step that is not in the state that it claimed."""
    return any(
        opening.leaf[-len(claimed) :] != _core.content_root(claimed)
        for opening, claimed in zip(now.openings, now.bisections[-1].claimed, strict=True)
    )


def next_flags(now: _core.DisputeProceedings) -> list[int | None]:
    """What both recorded of the step after the disputed one; None of who does not show it."""

    def flags(document: Mapping[str, object], party: Name) -> int:
        return now.next_flags(party, *_answers.record_from_json(document.get("next")))

    return [
        _answers.read_answer(flags, text, party)
        for party, text in zip(NAMES, now.answers, strict=True)
    ]
