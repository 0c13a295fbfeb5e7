# SPDX-License-Identifier: Apache-2.0
"""Which Python attributes a step changes: where a step from a restored state comes out otherwise,
one of them is the likely cause, and its name is what a user needs."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator
from types import FunctionType, MethodType, ModuleType
from typing import Any, TypeAlias, cast

import torch
from torch import nn

from .._task._capture import is_torchs
from .._task._task import Task
from ._holders import HELD, PARTS, Path, held_by, holders_of

# Of containers and tensors, of which more would only take longer; and how deep they are looked at.
_FIRST, _DEPTH = 64, 3
# Attributes that are named.
_NAMED = 5

Marks: TypeAlias = "dict[Path, object]"
"""What tells whether a value was changed."""


def marks_of(task: Task) -> Marks:
    """What is in the attributes of the task's objects now."""
    return {path: _mark(value) for path, value in _values(task)}


def moved(before: Marks, after: Marks) -> list[Path]:
    """Where something was changed or made in between."""
    return [path for path, mark in after.items() if mark != before.get(path)]


def listed(paths: list[Path]) -> str:
    """The names of the first attributes."""
    names = [*dict.fromkeys(str(path[1]) for path in paths)]
    more = ["..."] if len(names) > _NAMED else []
    return ", ".join(names[:_NAMED] + more)


def as_state(paths: list[Path], task: Task) -> str | None:
    """The argument that would keep what changed in an optimizer, if that is an object whose state
    can be saved, such as the optimizer around which another one was made.
    """
    holders = holders_of(task)
    for number, name, *_ in paths:
        owner, attribute = holders[cast(int, number)], str(name).partition(".")[2]
        kept = getattr(owner, attribute, None)
        if owner in task.optimizers and hasattr(kept, "load_state_dict"):
            return f'state={{"{attribute}": optimizer.{attribute}}}'
    return None


def _values(task: Task) -> Iterator[tuple[Path, object]]:
    holders = holders_of(task)
    known = {id(one) for one in (*holders, *held_by(task))}
    for number, one in enumerate(holders):
        held = PARTS if one is task else {*HELD, *_of_its_state(one)}
        for name, value in [*vars(one).items()]:
            if name not in held:
                yield from _leaves(value, (number, f"{type(one).__name__}.{name}"), _DEPTH, known)


def _of_its_state(thing: Any) -> Iterator[str]:
    """Names of attributes that its state holds under the same name."""
    if not isinstance(thing, (torch.nn.Module, torch.optim.Optimizer)):
        yield from _parts(thing, only_state=True)


def _leaves(value: Any, path: Path, depth: int, known: set[int]) -> Iterator[tuple[Path, object]]:
    if id(value) in known:
        return
    parts = _parts(value) if depth else {}
    kind: Any = _container(value)
    yield path, kind.__len__(value) if kind else value
    for key in [*parts][-_FIRST:]:
        yield from _leaves(parts[key], (*path, key), depth - 1, known)


def _container(value: object) -> type | None:
    """The kind of container that a value is. Its methods read the value: a class derived from it
    may have its own, which fail (e3nn's Irrep is a tuple without a length).
    """
    kinds = (list, tuple, deque, dict)
    return next((kind for kind in kinds if issubclass(type(value), kind)), None)


def _parts(value: Any, *, only_state: bool = False) -> dict[Any, Any]:
    """What is in a container, or in an object."""
    kind: Any = _container(value)
    if kind is dict:
        return dict(dict.items(value))
    if kind:
        return {at: kind.__getitem__(value, at) for at in range(kind.__len__(value))[-_FIRST:]}
    if issubclass(type(value), (type, torch.Tensor, FunctionType, MethodType, ModuleType)):
        return {}
    if issubclass(type(value), nn.Module):
        return dict([*value.named_parameters(), *value.named_buffers()])
    with contextlib.suppress(Exception):
        if isinstance(state := value.state_dict(), dict):
            return state
    if not (only_state or is_torchs(value)):
        with contextlib.suppress(Exception):  # of a stand-in for what is not loaded
            return dict(value.__dict__)
    return {}


def _mark(value: object) -> object:
    with contextlib.suppress(Exception):  # not all kinds of tensors tell their numbers
        if isinstance(value, float):
            return repr(value)  # of NaN, too
        if value is None or isinstance(value, (int, str)):
            return value
        if isinstance(value, torch.Tensor) and _is_plain(value):
            small = value.numel() <= _FIRST
            numbers = repr(value.tolist()) if small else (value.data_ptr(), value._version)
            return tuple(value.shape), numbers
    return id(value)


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether its numbers can be read."""
    return tensor.layout == torch.strided and not (tensor.is_meta or tensor.is_inference())
