# SPDX-License-Identifier: Apache-2.0
"""Which Python attributes a step changes: where a step from a restored state comes out otherwise,
one of them is the likely cause, and its name is what a user needs. An average that is read before
it moves, as that of a teacher, shows in the third step: other numbers in its place show it now."""

from __future__ import annotations

import contextlib
import inspect
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from .._base._errors import Problem
from .._task._task import Task
from ._dormant import holders_of

if TYPE_CHECKING:
    from collections.abc import Iterable

# Of lists and tensors, of which more would only take longer.
_FIRST = 64
# Attributes that are named.
_NAMED = 5

# What a checkpoint holds, or torch sets.
_PARTS = {*inspect.signature(Task).parameters, "optimizers", "schedulers", "_depended"}
_HELD = {"_parameters", "_buffers", "_modules", "state", "param_groups", "_opt_called"}

Marks = dict[str, object]
"""By class and name of an attribute, what tells whether it was changed."""


def marks_of(task: Task) -> Marks:
    """What the attributes of the task's objects are now."""
    found: Marks = {}
    for one in holders_of(task):
        held = _PARTS if one is task else {*_HELD, *_of_its_state(one)}
        for name, value in vars(one).items():
            if name not in held:
                found.setdefault(f"{type(one).__name__}.{name}", []).append(_mark(value, 3))  # type: ignore[attr-defined]
    return found


def moved(before: Marks, after: Marks) -> list[str]:
    """The names of attributes that were changed or made in between."""
    return [name for name, mark in after.items() if mark != before.get(name)]


def listed(names: list[str]) -> str:
    """The first of them."""
    more = ["..."] if len(names) > _NAMED else []
    return ", ".join(names[:_NAMED] + more)


def acting_tensors(
    task: Task, names: list[str], changed: Callable[[], bool], keep_it: str
) -> Problem | None:
    """What is wrong if tensors in attributes decide what a step does.

    Args:
        task: Has trained; the tensors are changed, and put back.
        names: Of attributes that a step changed which was not the first: a cache stays.
        changed: Whether a step of the task from a restored state ends in another state.
        keep_it: The remedy.
    """
    found: dict[str, list[torch.Tensor]] = {}
    for one in holders_of(task):
        for name in vars(one):
            if (full := f"{type(one).__name__}.{name}") in names:
                found.setdefault(full, []).extend(_tensors(vars(one)[name], 3))
    found = {name: tensors for name, tensors in found.items() if tensors}
    if not found:
        return None
    with torch.no_grad():
        before = [(tensor, tensor.clone()) for each in found.values() for tensor in each]
        for tensor, _ in before:
            tensor.mul_(1.5).add_(1)
        acts = False
        with contextlib.suppress(Exception), torch.enable_grad():
            acts = changed()
        for tensor, old in before:
            tensor.copy_(old)
    if not acts:
        return None
    return Problem(
        what="a tensor that moves during training changes what a step does, and no checkpoint "
        "holds it",
        where=listed([*found]),
        remedy=keep_it,
    )


def _tensors(value: Any, depth: int) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        if value.is_floating_point() and value.layout == torch.strided and not value.is_inference():
            yield value.detach()
        return
    for one in _parts(value) if depth else ():
        yield from _tensors(one, depth - 1)


def _parts(value: Any) -> list[Any]:
    """The last values of a container, or of an object's state."""
    if callable(getattr(value, "state_dict", None)) and not isinstance(value, type):
        value = value.state_dict()
    if isinstance(value, dict):
        value = [*value.values()]
    return [*value][-_FIRST:] if isinstance(value, (list, tuple, deque)) else []


def _of_its_state(thing: Any) -> Iterable[str]:
    """Names of attributes that its state holds under the same name."""
    if isinstance(thing, (torch.nn.Module, torch.optim.Optimizer)):
        return ()
    state = thing.state_dict() if hasattr(thing, "state_dict") else None
    return state if isinstance(state, dict) else ()


def _mark(value: Any, depth: int) -> object:
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)  # of NaN, too
    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided or value.is_inference():
            return id(value)
        few = value.numel() <= _FIRST and value.device.type != "meta"
        return value.tolist() if few else (value.data_ptr(), value._version)
    size = len(value) if isinstance(value, (list, tuple, deque, dict)) else id(value)
    return size, [_mark(one, depth - 1) for one in _parts(value)] if depth else None
