# SPDX-License-Identifier: Apache-2.0
"""A small guarded training, and workers that cheat in it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from docs_setup_digits import train_set
from torch import nn
from torch.nn import functional

import potl
from potl._spot_check._gradients import Gradients
from potl._spot_check._own_loop import OwnLoop

KEY = bytes(range(32))


def build(clip: float | None = 1.0, epochs: int = 2, **options: object) -> potl.Task:
    """A net with batch norm and dropout on digits: 29 steps an epoch."""
    model = nn.Sequential(
        nn.Unflatten(1, (1, 8)),
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(256, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    return potl.Task(
        model=model,
        optimizer=optimizer,
        dataset=train_set,
        loss=functional.cross_entropy,
        batch_size=64,
        epochs=epochs,
        grad_clip=clip,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=29 * epochs),
        **options,  # type: ignore[arg-type]
    )


def own_loop(guard: OwnLoop) -> None:
    """A worker's loop as agreed."""
    model = guard.task.model
    assert guard.task.optimizer is not None
    optimizer = potl.SpotCheckedOptimizer(guard.task.optimizer, guard)
    for _, (images, labels) in guard.steps():
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(images), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step(loss)


class Cheat(Gradients):
    """A worker's gradients, of which `change` makes something else.

    Args:
        honest: What computes them.
        change: Given the step, the honest gradient (a flat tensor, changed in place) and the
            object, to ask for others.
    """

    def __init__(
        self, honest: Gradients, change: Callable[[int, torch.Tensor, Cheat], None]
    ) -> None:
        self.__dict__.update(honest.__dict__)
        self._change = change

    def honest(self, step: int, weights: memoryview, out: memoryview) -> float:
        """The true gradient of a step."""
        return super().gradient(step, weights, 0, out)

    def gradient(self, step: int, weights: memoryview, way: int, out: memoryview) -> float:
        loss = super().gradient(step, weights, way, out)
        self.weights = weights
        self._change(step, torch.frombuffer(out, dtype=torch.float32), self)
        return loss


def worker(change: Callable[[int, torch.Tensor, Cheat], None]) -> potl.spot_check.Worker:
    """A worker of this process that cheats."""
    return potl.spot_check.Worker(build, wrap=lambda honest: Cheat(honest, change))
