# SPDX-License-Identifier: Apache-2.0
"""Running one step of a task."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from .._arithmetic import _rounded_steps
from .._base._errors import UsageError
from .._task import _random
from .._task._task import Task
from ._batches import Batches
from ._course import Course
from ._gradient_norm import GradientNorm
from ._randomness import StepRandomness
from ._step_arithmetic import StepArithmetic


@dataclass(frozen=True)
class StepResult:
    """What one step did."""

    loss: float
    """Mean loss of the batch before the update."""
    rates: list[float]
    """Learning rate of every parameter group of every optimizer, as used."""
    random_draws: int
    """Random operators drawn by the step."""
    skipped: bool
    """Whether the scaler skipped the update."""
    non_finite: bool
    """Whether the loss or a gradient was NaN or infinite."""
    gradient_norm: float
    """l2 norm of the gradients that the optimizers used; 0 for a skipped update."""


class Steps:
    """Runs steps of a task, one at a time."""

    def __init__(
        self,
        task: Task,
        *,
        batches: Batches,
        course: Course,
        randomness: StepRandomness,
        arithmetic: StepArithmetic,
    ) -> None:
        self._task = task
        self._batches = batches
        self._course = course
        self._randomness = randomness
        self._arithmetic = arithmetic
        self._norm = GradientNorm(task.optimizers)

    def run(self, step: int, batch: Any, rounding: _rounded_steps.Rounding | None) -> StepResult:
        """Runs one step: `Session.run_step`."""
        with _random.scope(), torch.enable_grad():
            task = self._task
            batch = self._batches.on_device(step, batch)
            rates = self._course.before(step)
            scale = _scale(task)
            self._norm.reset()
            self._randomness.begin_whole(step)
            drawn = _random.draws()
            with self._arithmetic.block(), _rounded_steps.around(rounding, step):
                loss = as_number(task.step(batch))
            drawn = _random.draws() - drawn
            self._course.after(step, loss)
            skipped = _scale(task) < scale
            norm = self._norm.value
            return StepResult(
                loss=loss,
                rates=rates,
                random_draws=drawn,
                skipped=skipped,
                non_finite=skipped or not (math.isfinite(loss) and math.isfinite(norm)),
                gradient_norm=norm,
            )

    def close(self) -> None:
        """Lets go of the task's optimizers."""
        self._norm.close()


def as_number(loss: Any) -> float:
    """A loss that a task computed.

    Raises:
        UsageError: It is not a single number.
    """
    if isinstance(loss, float) or (isinstance(loss, torch.Tensor) and loss.numel() == 1):
        return float(loss)
    raise UsageError(
        f"step returned {type(loss).__name__}", "return the mean loss of the batch from Task.step"
    )


def _scale(task: Task) -> float:
    return 0.0 if task.scaler is None else float(task.scaler.get_scale())
