# SPDX-License-Identifier: Apache-2.0
"""A disputed step as a referee knows it: from the task, and from what both parties agree on."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .. import _core
from .._base._errors import MalformedError
from .._job._agreement import Build, open_checked
from . import _answers
from ._derive import derive_operators
from ._operators import MARK, Operator, leaf_bytes, leaf_parts, marks_of
from ._outline import StateOutline
from ._rounded import Entries
from ._seat import NAMES, Name
from ._shown_nan import shows_nan
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
    """Who has another program; or, of two who open one end, who claimed another one. Of two who
    open two ends, one shows a false operator, and what they claimed decides nothing yet.
    """
    wrong = [
        leaf_parts(operators[-1], opening.leaf) is None
        or _answers.from_json(text).get("operators") != len(operators)
        for opening, text in zip(now.openings, now.answers, strict=True)
    ]
    if any(wrong) or not same_end(now):
        return wrong
    return [
        opening.leaf[-len(claimed) :] != _core.content_root(claimed)
        for opening, claimed in zip(now.openings, now.bisections[-1].claimed, strict=True)
    ]


def same_end(now: _core.DisputeProceedings) -> bool:
    """Whether both opened one end of a step, though they claimed two."""
    trainer, auditor = now.openings
    return trainer.leaf == auditor.leaf


def is_excused(now: _core.DisputeProceedings, party: Name, before: StateOutline) -> bool:
    """Whether a party that does not come to the end that it claimed shows a NaN in the one that it
    comes to, which the other one claimed, and in its own last state: a NaN stays. One that the step
    left as it was has the bits of the state before, which both agree on.
    """
    own = NAMES.index(party)
    ends = (now.bisections[-1].claimed[1 - own], now.final_state(party))

    def shows(document: Mapping[str, object]) -> bool:
        return shows_nan(document.get("nan"), before, ends)

    return bool(_answers.read_answer(shows, now.answers[own]))
