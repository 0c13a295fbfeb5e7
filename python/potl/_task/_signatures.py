# SPDX-License-Identifier: Apache-2.0
"""Whether what a task brings of its own can be called as potl calls it, before anything is."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import nn

from .._base._errors import UsageError
from ._task import Task, has_loss, overrides

# How each method is called, as its definition says it.
_METHODS = {
    "step": "batch",
    "compute_loss": 'batch, reduction="mean"',
    "micro_batches": "batch",
    "update": "loss",
    "advance_schedulers": "metric",
}


def require_build(build: object) -> None:
    """Refuses what cannot be called as `build()`.

    Raises:
        UsageError: It is no function, or one that requires arguments.
    """
    if not callable(build):
        raise UsageError(
            f"the task is given as a {type(build).__name__}",
            "pass the function that builds it: build, not build()",
        )
    problem = _problem(build)
    if problem:
        raise UsageError(
            f"the function that builds the task is called without arguments: {problem}",
            "give its parameters default values, or call it in a function that has none",
        )


def require_signatures(task: Task) -> None:
    """Compares the methods that a task overrides, and its loss, with the calls of a step.

    Raises:
        UsageError: One takes other arguments, with how to write it, or is never called.
    """
    for name, value in vars(task).items():
        if callable(getattr(type(task), name, None)) and not callable(value):
            raise UsageError(
                f"the method {type(task).__name__}.{name} is hidden by an attribute of that name",
                "give it another name; what potl.Task takes under that name can be passed to it: "
                f"{name}=self.{name}",
            )
    for name, form in _METHODS.items():
        if not overrides(task, name):
            continue
        given = {"reduction": None} if name == "compute_loss" else {}
        problem = _problem(getattr(task, name), None, **given)
        if problem:
            raise UsageError(
                f"{type(task).__name__}.{name} cannot be called with ({form}): {problem}",
                f"write def {name}(self, {form})",
            )
    if not overrides(task, "compute_loss") and has_loss(task):
        _require_loss(task.loss)


def _require_loss(loss: Any) -> None:
    if isinstance(loss, type) or not callable(loss):
        what = (
            f"the class {loss.__name__}" if isinstance(loss, type) else f"a {type(loss).__name__}"
        )
        raise UsageError(
            f"the loss is {what}",
            "pass a function or an object that is called as loss(output, target), such as "
            "torch.nn.CrossEntropyLoss()",
        )
    problem = _problem(loss.forward if isinstance(loss, nn.Module) else loss, None, None)
    if problem:
        raise UsageError(
            f"the loss cannot be called as loss(output, target): {problem}",
            "give it these two arguments, or override compute_loss(self, batch, reduction) in a "
            "subclass of Task",
        )


def _problem(function: Callable[..., Any], *given: None, **named: None) -> str:
    """Why a function does not take these arguments; empty where it does, or does not say."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return ""
    try:
        signature.bind(*given, **named)
    except TypeError as error:
        return str(error)
    return ""
