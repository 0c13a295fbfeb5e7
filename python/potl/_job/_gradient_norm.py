# SPDX-License-Identifier: Apache-2.0
"""The norm of the gradients that optimizers use."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch


class GradientNorm:
    """Watches optimizers: sees the gradients of each update as it is made.

    Args:
        optimizers: All of a task's.
    """

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        self._squared = 0.0
        self._watches = True
        self._hooks = [one.register_step_pre_hook(self._before_update) for one in optimizers]

    def reset(self) -> None:
        """Forgets the updates so far."""
        self._squared = 0.0

    @property
    def value(self) -> float:
        """l2 norm over all updates since `reset`; 0 without one."""
        return math.sqrt(self._squared)

    @contextlib.contextmanager
    def unwatched(self) -> Iterator[None]:
        """A block in which gradients are not looked at."""
        self._watches = False
        try:
            yield
        finally:
            self._watches = True

    def close(self) -> None:
        """Lets go of the optimizers."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def _before_update(self, optimizer: torch.optim.Optimizer, *arguments: Any) -> None:
        if not self._watches:
            return
        gradients = [
            p.grad
            for group in optimizer.param_groups
            for p in group["params"]
            if p.grad is not None
        ]
        if gradients:
            norm = _norm(gradients)
            if not math.isfinite(norm):
                norm = _scaled_norm(gradients)
            self._squared += norm * norm


def _norm(gradients: list[torch.Tensor]) -> float:
    first = gradients[0]
    if all(
        g.dtype == first.dtype and g.device == first.device and g.layout is torch.strided
        for g in gradients
    ):
        # What get_total_norm does, without sorting the tensors into groups.
        return float(torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients))))
    return float(torch.nn.utils.get_total_norm(_dense(gradients)))


def _scaled_norm(gradients: list[torch.Tensor]) -> float:
    """The same where squares overflow, which they do long before their roots. Not in float64, which
    exact arithmetic has on the CPU alone.
    """
    dense = [g for g in _dense(gradients) if g.numel() > 0]
    largest = max(float(torch.linalg.vector_norm(g, math.inf)) for g in dense)
    norms = [float(torch.linalg.vector_norm(g / largest)) for g in dense]
    return largest * math.hypot(*norms)


def _dense(gradients: list[torch.Tensor]) -> list[torch.Tensor]:
    return [g.coalesce().values() if g.is_sparse else g for g in gradients]
