# SPDX-License-Identifier: Apache-2.0
"""Losses of a task at the state that it is in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .._arithmetic import _rounded_steps
from .._base._errors import UsageError
from .._task import _random
from .._task._task import Task
from ._batches import Batches
from ._randomness import StepRandomness
from ._step_arithmetic import StepArithmetic
from ._steps import as_number
from ._training_state import TrainingState


class Losses:
    """Computes losses without a step."""

    def __init__(
        self,
        task: Task,
        *,
        batches: Batches,
        state: TrainingState,
        randomness: StepRandomness,
        arithmetic: StepArithmetic,
    ) -> None:
        self._task = task
        self._batches = batches
        self._state = state
        self._randomness = randomness
        self._arithmetic = arithmetic

    def of_step(self, step: int, batch: Any, rounding: _rounded_steps.Rounding | None) -> float:
        """The loss that a step would report: `Session.loss_at`."""
        with _random.scope(), torch.enable_grad():
            task = self._task
            batch = self._batches.on_device(step, batch)
            self._randomness.begin(step)
            whole: torch.Tensor | None = None
            behind = task._micro_batch_count(batch) - 1 if rounding is not None else 0
            with self._arithmetic.block(), _rounded_steps.around(rounding, step):
                for number, (part, share) in enumerate(task.micro_batches(batch)):
                    loss = task.compute_loss(part, reduction="mean")
                    scaled = loss if share == 1.0 else loss * share
                    if number < behind:
                        task._backward(scaled)
                    loss = scaled.detach()
                    del scaled
                    whole = loss if whole is None else whole + loss
            if behind > 0:
                for optimizer in task.optimizers:
                    optimizer.zero_grad(set_to_none=True)
            return as_number(whole)

    def of_samples(self, ids: Sequence[int]) -> tuple[float, float]:
        """Mean and deviation over samples: `Session._subset_loss`."""
        epoch = min(self._state.epoch, self._task.epochs - 1)
        losses: list[torch.Tensor] = []
        with _random.scope(), torch.no_grad(), self._state.unchanged():
            for number, size, batch in self._batches.in_parts(ids, epoch):
                self._randomness.seed_subset(self._state.step, number)
                with self._arithmetic.block():
                    each = self._task.compute_loss(batch, reduction="none").detach()
                if each.numel() % size:
                    raise UsageError(
                        f"compute_loss gave {each.numel()} losses of {size} samples",
                        'return one loss per sample where reduction is "none"',
                    )
                losses.append(each.reshape(size, -1).double().mean(1).cpu())
        values = torch.cat(losses)
        return float(values.mean()), float(values.std(correction=0))
