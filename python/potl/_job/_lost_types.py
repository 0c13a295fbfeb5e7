# SPDX-License-Identifier: Apache-2.0
"""What a checkpoint gives back in another form: a state holds lists, tuples and dicts, and tensors
row by row. A task that is built anew takes its own types for them only where it has some.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from .._base._errors import Problem
from .._task._task import Task

_LISTS = (list, tuple, deque)


def lost_types(trained: Task, restored: Task) -> Problem | None:
    """The first container that training made and that a restored task has as another type.

    Args:
        trained: A task after some steps.
        restored: Another one, to which a state of the first was restored.
    """
    here = dict(_containers(restored))
    for path, kind in _containers(trained):
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


def lost_order(trained: Task, restored: Task) -> Problem | None:
    """The first tensor whose elements a restored task has in another order in memory.

    Eigenvectors lie in columns, a checkpoint restores rows, and stock arithmetic rounds a product
    with them otherwise. Only worth a word where a step comes out otherwise.

    Args:
        trained: A task after some steps.
        restored: Another one, to which a state of the first was restored.
    """
    here = dict(_tensors(restored))
    for path, tensor in _tensors(trained):
        found = here.get(path, tensor)
        if found.shape == tensor.shape and _strides(found) != _strides(tensor):
            return Problem(
                what="the elements of a tensor that the first steps make lie in another order in "
                "memory after they were restored, which rounds otherwise",
                where=path,
                remedy="keep tensor.contiguous(), for example of eigenvectors or of a transposed "
                "matrix",
            )
    return None


def _strides(tensor: torch.Tensor) -> list[int]:
    return [step for step, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1]


def _kept(task: Task) -> dict[str, object]:
    """Where code of the user's own may keep containers."""
    return {
        "optimizers": [one.state_dict() for one in task.optimizers],
        "schedulers": [one.state_dict() for one in task.schedulers],
        "state": {name: one.state_dict() for name, one in task.state.items()},
    }


def _values(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Containers and what is in them."""
    items: Any = value.items() if isinstance(value, Mapping) else ()
    if isinstance(value, _LISTS):
        items = enumerate(value)
    if path:
        yield path, value
    for key, item in items:
        yield from _values(item, f"{path}/{key}" if path else str(key))


def _containers(task: Task) -> Iterator[tuple[str, type]]:
    for path, value in _values(_kept(task), ""):
        if isinstance(value, (Mapping, *_LISTS)):
            yield path, type(value)


def _tensors(task: Task) -> Iterator[tuple[str, torch.Tensor]]:
    for path, value in _values(_kept(task), ""):
        if isinstance(value, torch.Tensor) and value.layout == torch.strided:
            yield path, value
