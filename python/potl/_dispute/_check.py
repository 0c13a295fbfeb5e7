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
from ._operators import structural_difference


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
    if arithmetic != _arithmetic.AUTO:
        _arithmetic.require(arithmetic)
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
            difference = structural_difference(derive_step(session, 1), executed)
        if difference is None:
            return []
        index, what = difference
        with opened() as session, session.active():
            place = place_of(session, 1, index)
    except NotReplayable as error:
        return [dataclasses.replace(one, prevents="dispute") for one in error.problems]
    except Exception as error:  # the task's code may do anything with tensors without elements
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        return [_problem(f"its operators cannot be derived: {what}", "Task.step")]
    return [_problem(f"operator {index}, derived without the data, is {what} when executed", place)]


def _problem(what: str, where: str) -> Problem:
    return Problem(
        what=what,
        where=where,
        remedy="let nothing in the step depend on the values of tensors, on their class, or on "
        "whether they have memory",
        prevents="dispute",
    )
