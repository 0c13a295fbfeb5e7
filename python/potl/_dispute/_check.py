# SPDX-License-Identifier: Apache-2.0
"""Finds what cannot be replayed, or disputed, before anything is trained."""

from __future__ import annotations

import dataclasses

from .._arithmetic import _arithmetic
from .._base._errors import NotReplayable, Problem
from .._job._build import Build
from .._job._session import Session
from .._job._trial import run_trial
from ._derive import derive_step, executed_first, place_of
from ._operators import CAPTURE, Operator, structural_difference
from ._questions import MOST, too_large


def check(
    build: Build,
    *,
    seed: int = 0,
    arithmetic: str = _arithmetic.AUTO,
    disputable: bool = False,
) -> list[Problem]:
    """Lists everything in a task that prevents a replay, or an exact one, each with its remedy.

    Trains two steps, restores the state between them into a freshly built task, and compares: what
    differs is state that no checkpoint would hold. Nothing that the caller holds is changed unless
    `build` shares it.

    Args:
        build: Returns the `potl.Task`; called several times.
        seed: Of the randomness.
        arithmetic: What the steps compute in: "stock", a mode of `potl.deterministic`, in which an
            operator that is not reproducible prevents replay, or "auto". That is an exact mode if
            it can be; what is in the way is listed too, with `prevents` "exact" instead of
            "replay".
        disputable: Whether to list also what keeps a dispute about the task from being decided,
            with `prevents` "dispute". It executes two more steps, and derives its operators as a
            referee does.

    Returns:
        The problems. The task can be recorded and verified unless one prevents "replay"; an empty
        list says that replays are exact, or that stock arithmetic was asked for.

    Raises:
        UsageError: `build` does not return a usable task at all.
    """
    _arithmetic.require(arithmetic, or_auto=True)
    found = run_trial(build, seed=seed, arithmetic=arithmetic)
    problems = [*found.problems, *found.obstacles]
    if disputable and not found.problems and found.arithmetic != _arithmetic.STOCK:
        problems += _underivable(build, seed, found.arithmetic)
    return problems


def _underivable(build: Build, seed: int, arithmetic: str) -> list[Problem]:
    """Why a referee would not find the operators of the first step as they are executed."""

    def opened() -> Session:
        return Session.open(build, seed=seed, arithmetic=arithmetic)

    try:
        with opened() as session, session.active():
            if session.task.device.type != "cpu":
                return []  # a referee derives what is executed on a CPU
            executed = executed_first(session)
        with opened() as session, session.active():
            derived = derive_step(session, 1)
        difference, large = structural_difference(derived, executed), None
        if difference is None:
            large = too_large(derived, arithmetic)
            if large is None:
                return []
        with opened() as session, session.active():
            place = place_of(session, 1, (difference or large or (0,))[0])
    except NotReplayable as error:
        return [dataclasses.replace(one, prevents="dispute") for one in error.problems]
    except Exception as error:  # the task's code may do anything with tensors without elements
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        return [_problem(f"its operators cannot be derived: {what}", "Task.step")]
    if difference is None:
        assert large is not None
        number, size = large
        return [_too_large(number, derived[number], size, place)]
    index, what = difference
    said = f"operator {index}, derived without the data, is {what} when executed"
    return [_problem(said, place, _ONE_HOT if what.endswith(" aten.aminmax.default") else _REMEDY)]


def _too_large(number: int, operator: Operator, size: int, where: str) -> Problem:
    return Problem(
        what=f"what a referee needs for one element of operator {number}, {operator.name}, takes "
        f"{size >> 20} MiB, and at most {MOST >> 20} can be asked for: who lies there is not "
        "convicted",
        where=where,
        remedy="use operators that docs/format/operator_trace.md lists, smaller batches or tensors"
        + ("" if operator.name != CAPTURE else ", or an optimizer with foreach=True"),
        prevents="dispute",
    )


_REMEDY = (
    "let nothing in the step depend on the values of tensors, on their class, or on whether they "
    "have memory"
)
# It looks for the least and the largest class, where its targets have elements.
_ONE_HOT = (
    "instead of torch.nn.functional.one_hot(y, classes), write "
    "(y[..., None] == torch.arange(classes)).long()"
)


def _problem(what: str, where: str, remedy: str = _REMEDY) -> Problem:
    return Problem(what=what, where=where, remedy=remedy, prevents="dispute")
