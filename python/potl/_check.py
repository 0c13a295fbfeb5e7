# SPDX-License-Identifier: Apache-2.0
"""Finds what cannot be replayed before anything is trained."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import torch

from . import _core
from ._data import check_reads
from ._errors import NotReplayable, NotReproducible, Problem
from ._session import Build, Session
from ._task import Task, overrides_step
from ._trees import first_difference, same_float

_DISTRIBUTED = ("DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule", "DataParallel")

# Two forward passes of the same step may round differently on a GPU.
_CLOSE = 1e-3


def check(build: Build, *, seed: int = 0, arithmetic: str = "stock") -> list[Problem]:
    """Lists everything in a task that cannot be replayed, each with its remedy.

    Trains two steps, restores the state between them into a freshly built task, and compares: what
    differs is state that no checkpoint would hold. Nothing that the caller holds is changed unless
    `build` shares it.

    Args:
        build: Returns the `potl.Task`; called several times.
        seed: Of the randomness.
        arithmetic: What the steps compute in: "stock" or a mode of `potl.deterministic`, in which
            an operator that is not reproducible is a problem too.

    Returns:
        The problems; empty when the task can be recorded and verified.

    Raises:
        UsageError: `build` does not return a usable task at all.
    """
    return find_problems(build, seed=seed, arithmetic=arithmetic)


def find_problems(build: Build, *, seed: int, arithmetic: str = "stock") -> list[Problem]:
    """See `check`."""
    try:
        with Session.open(build, seed=seed, arithmetic=arithmetic) as first:
            problems = [*_visible(first.task), *check_reads(first.task.dataset)]
            if problems:
                return problems
            with Session.open(build, seed=seed, arithmetic=arithmetic) as second:
                return list(_probe(first, second, build, seed, arithmetic))
    except NotReplayable as error:
        return list(error.problems)
    except NotReproducible as error:
        return [Problem(what=error.message, where="Task.step", remedy=error.remedy)]


# ---------------------------------------------------------------------- what can be seen


def _visible(task: Task) -> Iterator[Problem]:
    for name, module in task.model.named_modules():
        kinds = {kind.__name__ for kind in type(module).__mro__}
        for refused in _DISTRIBUTED:
            if refused in kinds:
                yield Problem(
                    what=f"{refused} is not supported",
                    where=f"model.{name}" if name else "model",
                    remedy="train on one device, with the plain module",
                )
    if overrides_step(task):
        return
    for index, optimizer in enumerate(task.optimizers):
        closure = inspect.signature(type(optimizer).step).parameters.get("closure")
        needed = closure is not None and closure.default is inspect.Parameter.empty
        if needed or isinstance(optimizer, torch.optim.LBFGS):
            yield Problem(
                what=f"{type(optimizer).__name__} calls a closure, which the default step does "
                "not give it",
                where=f"optimizers/{index}",
                remedy="use an optimizer without closure, or override Task.step",
            )


# ---------------------------------------------------------------------- what only a trial shows


def _probe(
    first: Session, second: Session, build: Build, seed: int, arithmetic: str
) -> Iterator[Problem]:
    if _shares(first.task, second.task):
        yield Problem(
            what="two calls of build return the same model",
            where="build",
            remedy="make model and optimizer inside of build",
        )
        return
    start = first.capture()
    place = first_difference(start.tree(), second.capture().tree())
    if place is not None:
        yield Problem(
            what=f"two calls of build differ at {place}",
            where="build",
            remedy="draw from torch, random or numpy.random inside of build: potl seeds them",
        )
        return
    steps = (1, 2) if first.task.steps > 1 else (1, 1)
    middle, end, losses = _two_steps(first, steps)
    for what, state in (("before the first step", start), ("after two steps", end)):
        # An infinity that is there from the start is a mask.
        not_finite = _core.not_finite(state, start)
        if not_finite:
            yield Problem(
                what=f"{what}, {not_finite}, and a verifier rejects what is not finite",
                where=not_finite.split(" ")[0],
                remedy="fill placeholders with a number, or keep them outside of parameters, "
                "buffers and optimizer state; where training diverges, lower the learning rate",
            )
            return
    untouched = [dict(vars(thing)) for thing in _holders(second.task)]
    with Session.open(build, seed=seed, arithmetic=arithmetic) as fresh:
        again = _two_steps(fresh, steps)
    place = first_difference(end.tree(), again[1].tree())
    if place is not None and not _all_close(losses, again[2]):
        yield Problem(
            what=f"two trainings from the same seed differ at {place}",
            where="Task.step",
            remedy="draw random numbers from torch, random or numpy.random only, and use no clock",
        )
        return
    second.restore(middle)
    result = second.run_step(steps[1], second.sample_ids(steps[1]))
    hidden = first_difference(end.tree(), second.capture().tree())
    if place is None and (hidden is not None or not same_float(result.loss, losses[1])):
        yield Problem(
            what="a step from a restored state differs from the same step in one go"
            + (f" at {hidden}" if hidden else " in its loss"),
            where="Task",
            remedy="something keeps state that a checkpoint does not hold, such as a Python "
            "attribute: make it a buffer, or pass the object in state={name: object with "
            "state_dict and load_state_dict}",
        )
        return
    for where in _dormant(untouched, first, second, middle, end, steps[1]):
        yield Problem(
            what="a number that counts up during training changes what a step does, and no "
            "checkpoint holds it",
            where=where,
            remedy="make it a buffer, or give the object state_dict and load_state_dict and pass "
            "it in state=",
        )
        return
    # Only now: it calls the model once more, which would hide a count of calls.
    second.restore(middle)
    recomputed = second.loss_at(steps[1], second.sample_ids(steps[1]))
    if not _all_close([recomputed], [losses[1]]):
        yield Problem(
            what=f"compute_loss gives {recomputed!r} where step reports {losses[1]!r}",
            where="Task.compute_loss",
            remedy="override compute_loss too, so that it returns the loss that step returns",
        )


def _dormant(
    untouched: list[dict[str, Any]],
    first: Session,
    second: Session,
    middle: _core.State,
    end: _core.State,
    step: int,
) -> Iterator[str]:
    """Numbers in Python attributes that training changed, and that act once they are large.

    A count that unfreezes a layer at step 1,000 does nothing in the two steps of the probe.
    """
    moved = [
        (here, name)
        for there, here, before in zip(
            _holders(first.task), _holders(second.task), untouched, strict=True
        )
        for name, value in before.items()
        if type(value) in (int, float) and vars(there).get(name) != value
    ]
    if not moved:
        return
    for thing, name in moved:
        setattr(thing, name, 10**6)
    second.restore(middle)  # which puts right what a checkpoint holds
    try:
        second.run_step(step, second.sample_ids(step))
        changed = first_difference(end.tree(), second.capture().tree()) is not None
    except Exception:  # whatever it is, it came from the number
        changed = True
    if changed:
        yield f"{type(moved[0][0]).__name__}.{moved[0][1]}"


def _holders(task: Task) -> list[Any]:
    """Objects in whose attributes a task could keep state."""
    return [*task.model.modules(), task, *([task.loss] if hasattr(task.loss, "__dict__") else [])]


def _two_steps(
    session: Session, steps: tuple[int, int]
) -> tuple[_core.State, _core.State, list[float]]:
    losses = [session.run_step(steps[0], session.sample_ids(steps[0])).loss]
    middle = session.capture()
    losses.append(session.run_step(steps[1], session.sample_ids(steps[1])).loss)
    return middle, session.capture(), losses


def _shares(a: Task, b: Task) -> bool:
    own = {p.data_ptr() for p in a.model.parameters() if p.numel()}
    return any(p.data_ptr() in own for p in b.model.parameters() if p.numel())


def _all_close(a: list[float], b: list[float]) -> bool:
    return all(
        same_float(x, y) or abs(x - y) <= _CLOSE * max(abs(x), abs(y))
        for x, y in zip(a, b, strict=True)
    )
