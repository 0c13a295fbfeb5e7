# SPDX-License-Identifier: Apache-2.0
"""Which elements of parameters had no gradient: every machine computes the same of them, so that a
replay allows them less than others.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from .._task._capture import modules_of
from .._task._task import Task


class StillElements:
    """Watches the updates of a task's optimizers.

    What an optimizer computes gradients for itself (LBFGS calls a closure) is never still.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        # By id: which elements had a gradient so far; absent: no update was made yet.
        self._moved: dict[int, torch.Tensor] = {}
        self._hooks = [one.register_step_pre_hook(self._before_update) for one in task.optimizers]

    def reset(self) -> None:
        """Forgets the updates so far."""
        self._moved = {}

    def close(self) -> None:
        """Lets go of the optimizers."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def found(self) -> list[tuple[list[str], bytes]]:
        """For each parameter with elements that had no gradient since `reset`: the paths in a state
        of what belongs to it, and one byte of each element, 1 where it had none.
        """
        out = []
        for parameter, paths in places_of(self._task):
            moved = self._moved.get(id(parameter))
            if moved is None or not bool(moved.all()):
                out.append((paths, self._mask(parameter, moved)))
        return out

    @staticmethod
    def _mask(parameter: torch.Tensor, moved: torch.Tensor | None) -> bytes:
        if moved is None:
            return b"\x01" * parameter.numel()
        return moved.logical_not().to("cpu", torch.uint8).contiguous().numpy().tobytes()

    def _before_update(
        self,
        optimizer: torch.optim.Optimizer,
        arguments: tuple[object, ...],
        named: dict[str, object],
    ) -> None:
        computes = any(one is not None for one in (*arguments[1:], named.get("closure")))
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                self._look_at(parameter, computes)

    def _look_at(self, parameter: torch.Tensor, computes: bool) -> None:
        gradient = parameter.grad
        moved = self._moved.get(id(parameter))
        if moved is None:
            moved = torch.zeros_like(parameter, dtype=torch.bool, requires_grad=False)
            self._moved[id(parameter)] = moved
        if computes:
            moved.fill_(True)
        elif gradient is None:
            return
        elif gradient.layout is torch.strided:
            moved.logical_or_(gradient != 0)
        elif gradient.layout is torch.sparse_coo and gradient.sparse_dim() == 1:
            moved.index_fill_(0, gradient._indices()[0], True)
        else:
            moved.fill_(True)


def places_of(task: Task) -> Iterator[tuple[torch.Tensor, list[str]]]:
    """The parameters of each optimizer, and where a state has what belongs to them: what the
    optimizer keeps of one, and, the first time, its values under each of their names.
    """
    names: dict[int, list[str]] = {}
    for prefix, module in modules_of(task.model):
        for name, parameter in module._parameters.items():
            if parameter is not None:
                names.setdefault(id(parameter), []).append(f"model/parameters/{prefix}{name}")
    for i, optimizer in enumerate(task.optimizers):
        numbers: dict[int, int] = {}
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                number = numbers.setdefault(id(parameter), len(numbers))
                yield parameter, [f"optimizers/{i}/state/{number}", *names.pop(id(parameter), [])]
