# SPDX-License-Identifier: Apache-2.0
"""Where code of the user's own could keep state: attributes of a task's objects."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator
from types import FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import nn

from .._task._capture import is_torchs
from .._task._task import Task

# How deep what is in attributes is looked at, and how many of an object's or a dict's.
_DEPTH, _LAST = 3, 1_000

# What a checkpoint holds, or torch sets.
PARTS = {*inspect.signature(Task).parameters, "optimizers", "schedulers", "_depended"}
HELD = {"_parameters", "_buffers", "_modules", "state", "param_groups", "_opt_called"}

_NONE_OF_ITS_OWN = (type, torch.Tensor, FunctionType, MethodType, ModuleType)

Path: TypeAlias = "tuple[object, ...]"
"""The number of an object, names of attributes and keys."""


class Space(NamedTuple):
    """Attributes of an object, or what is in a dict."""

    name: str
    values: dict[Any, Any]
    kind: type | None
    """The object's class, which may have the attribute until the object has one itself."""


def holders_of(task: Task) -> list[Any]:
    """Objects in whose attributes a task could keep state. Those of torch's hide none."""
    beside = [task.loss, *task.state.values()]
    beside += [one for one in (*task.optimizers, *task.schedulers) if not is_torchs(one)]
    beside += task.ema.modules() if isinstance(task.ema, nn.Module) else [task.ema]
    return [*task.model.modules(), task, *(one for one in beside if hasattr(one, "__dict__"))]


def held_by(task: Task) -> Iterator[object]:
    """What else a task has, which a checkpoint holds, or the client: an attribute may name it."""
    yield from (*task.optimizers, *task.schedulers, task.scaler, task.dataset)
    yield from (*task.model.parameters(), *task.model.buffers())


def spaces_of(task: Task) -> dict[Path, Space]:
    """Attributes of these objects, of plain objects in their attributes, and dicts in either."""
    found: dict[Path, Space] = {}
    holders = holders_of(task)
    known = {id(one) for one in (*holders, *held_by(task))}

    def look(path: Path, space: Space, held: Collection[str]) -> None:
        found[path] = space
        for name, value in [*dict.items(space.values)][-_LAST:] if len(path) <= _DEPTH else ():
            kind = None if isinstance(value, dict) else type(value)
            values = value if kind is None else getattr(value, "__dict__", None)
            if id(value) in known or is_torchs(value) or isinstance(value, _NONE_OF_ITS_OWN):
                continue
            if isinstance(values, dict) and not (isinstance(name, str) and name in held):
                known.add(id(value))
                look((*path, name), Space(f"{space.name}.{name}", values, kind), HELD)

    for number, one in enumerate(holders):
        held = PARTS if one is task else HELD
        look((number,), Space(type(one).__name__, vars(one), type(one)), held)
    return found
