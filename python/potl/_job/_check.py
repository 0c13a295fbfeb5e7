# SPDX-License-Identifier: Apache-2.0
"""Finds what cannot be replayed before anything is trained."""

from __future__ import annotations

from .._arithmetic import _arithmetic
from .._base._errors import Problem
from ._build import Build
from ._trial import run_trial


def check(build: Build, *, seed: int = 0, arithmetic: str = _arithmetic.AUTO) -> list[Problem]:
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

    Returns:
        The problems. The task can be recorded and verified unless one prevents "replay"; an empty
        list says that replays are exact, or that stock arithmetic was asked for.

    Raises:
        UsageError: `build` does not return a usable task at all.
    """
    if arithmetic != _arithmetic.AUTO:
        _arithmetic.require(arithmetic)
    found = run_trial(build, seed=seed, arithmetic=arithmetic)
    return [*found.problems, *found.obstacles]
