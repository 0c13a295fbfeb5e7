# SPDX-License-Identifier: Apache-2.0
"""Where code of the user's own could keep state: attributes of a task's objects."""

from __future__ import annotations

import contextlib
import inspect
from collections import deque
from collections.abc import Collection, Iterator
from itertools import islice
from types import FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import nn

from .._task._capture import is_torchs
from .._task._task import Task

# How deep what is in attributes is looked at, and how many of an object's or a dict's.
_DEPTH, _LAST = 3, 1_000
# And how many of all together: a trial looks at them some thirty times.
_MOST = 30_000

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

    def items(self) -> list[tuple[Any, Any]]:
        """The last of them, with their names."""
        return [*islice(reversed(dict.items(self.values)), _LAST)][::-1]


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
    room = _MOST
    waiting = deque[tuple[Path, Space, Collection[str]]](
        ((number,), Space(type(one).__name__, vars(one), type(one)), PARTS if one is task else HELD)
        for number, one in enumerate(holders)
    )
    # What is near to an object comes first, and not all that is in one large index.
    while waiting:
        path, space, held = waiting.popleft()
        found[path] = space
        for name, value in space.items() if len(path) <= _DEPTH else ():
            if id(value) in known or (isinstance(name, str) and name in held):
                continue
            inner = _inside(f"{space.name}.{name}", value)
            room -= min(len(inner.values), _LAST) if inner else 0
            if inner and room >= 0:
                known.add(id(value))
                waiting.append(((*path, name), inner, HELD))
    return found


def _inside(name: str, value: object) -> Space | None:
    """What is in a dict, or the attributes of an object; of classes, and of torch's, none that
    matter. Nor of what other threads work on: who waits for a queue might then wait for ever.
    """
    kind: type | None = type(value)
    values: Any = None
    if issubclass(type(value), dict):
        # In an empty one nothing counts yet; each of torch's modules has a dozen.
        kind, values = None, value or None
    elif not (is_torchs(value) or issubclass(type(value), _NONE_OF_ITS_OWN)):
        with contextlib.suppress(Exception):  # of a stand-in for what is not loaded
            values = value.__dict__
    if not issubclass(type(values), dict):
        return None
    space = Space(name, values, kind)
    shared = any(type(part).__module__ in ("_thread", "threading") for _, part in space.items())
    return None if shared else space
