# SPDX-License-Identifier: Apache-2.0
"""Whether a step adds to gradients that the step before left: no checkpoint holds gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from .._base._errors import Problem, is_own_trouble
from ._steps import parameters_of

if TYPE_CHECKING:
    from .. import _core
    from .._task._task import Task
    from ._session import Session


def left_by(task: Task) -> set[str]:
    """The parameters of optimizers in which a step left a gradient."""
    trained = {id(parameter) for parameter in parameters_of(task)}
    return {
        name
        for name, parameter in task.model.named_parameters()
        if id(parameter) in trained
        and (grad := parameter.grad) is not None
        and grad.layout == torch.strided
        and bool(grad.count_nonzero())
    }


def added_to(
    session: Session, before: _core.State, left: set[str], step: int, ids: Sequence[int]
) -> Problem | None:
    """What is wrong if a step adds to what is left. The session's state is of no use afterwards.

    An update may come after more steps than are tried, so that no state shows what went into it.
    NaNs in place of what is left show it: they stay in a sum, and in what is updated with it.

    Args:
        session: Of the task.
        before: The state before the step.
        left: What the step before left.
        step: Number of the step.
        ids: Its samples.
    """
    session.restore(before)
    marks: dict[str, tuple[torch.nn.Parameter, torch.Tensor, int]] = {}
    for name, parameter in session.task.model.named_parameters():
        if name in left:
            parameter.grad = mark = torch.full_like(parameter, math.nan, requires_grad=False)
            marks[name] = parameter, mark, mark._version
    if not marks:
        return None
    try:
        session.run_step(step, ids, keeps_gradients=True)
    except Exception as error:
        if is_own_trouble(error):
            raise
        found = [*marks]  # of a NaN that a step without these does not meet
    else:
        found = [name for name, mark in marks.items() if _is_added(*mark)]
    if not found:
        return None
    # With a scale too large, gradients are NaN by themselves. And a log that has room for no more
    # steps than the training has makes each further one fail.
    session.restore(before)
    try:
        session.run_step(step, ids)
    except Exception as error:
        if is_own_trouble(error):
            raise
        return None
    for name in found:
        parameter, _, _ = marks[name]
        if not _is_nan(parameter) and not _is_nan(parameter.grad):
            return _problem(name)
    return None


def _is_added(parameter: torch.nn.Parameter, mark: torch.Tensor, version: int) -> bool:
    untouched = parameter.grad is mark and mark._version == version
    return _is_nan(parameter) or (not untouched and _is_nan(parameter.grad))


def _is_nan(grad: torch.Tensor | None) -> bool:
    return grad is not None and grad.layout == torch.strided and bool(grad.isnan().all())


def _problem(name: str) -> Problem:
    return Problem(
        what="a step adds to gradients that the one before left, and no checkpoint holds them",
        where=f"Task.step, the gradient of {name}",
        remedy="call zero_grad() in every step; to accumulate, pass accumulate= and a batch_size "
        "that counts all parts: one step is one update",
    )
