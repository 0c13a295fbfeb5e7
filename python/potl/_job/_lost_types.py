# SPDX-License-Identifier: Apache-2.0
"""Containers that a checkpoint gives back as another type: a state holds lists, tuples and dicts,
and a task that is built anew takes its own types for them only where it has some.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from .._base._errors import Problem
from .._task._task import Task


def lost_types(trained: Task, restored: Task) -> Problem | None:
    """The first container that training made and that a restored task has as another type.

    Args:
        trained: A task after some steps.
        restored: Another one, to which a state of the first was restored.
    """
    here = dict(_containers(_kept(restored), ""))
    for path, kind in _containers(_kept(trained), ""):
        found = here.get(path, kind)
        # A Size only ever is read, and as the tuple that it is.
        if found is not kind and kind is not torch.Size:
            return Problem(
                what=f"a {kind.__qualname__} that the first steps make comes back from a "
                f"checkpoint as a {found.__qualname__}",
                where=path,
                remedy="keep lists, tuples and dicts, or make it in build(): what is there then "
                "keeps its type",
            )
    return None


def _kept(task: Task) -> dict[str, object]:
    """Where code of the user's own may keep containers."""
    return {
        "optimizers": [one.state_dict() for one in task.optimizers],
        "schedulers": [one.state_dict() for one in task.schedulers],
        "state": {name: one.state_dict() for name, one in task.state.items()},
    }


def _containers(value: Any, path: str) -> Iterator[tuple[str, type]]:
    if isinstance(value, Mapping):
        items: Any = value.items()
    elif isinstance(value, (list, tuple, deque)):
        items = enumerate(value)
    else:
        return
    if path:
        yield path, type(value)
    for key, item in items:
        yield from _containers(item, f"{path}/{key}" if path else str(key))
