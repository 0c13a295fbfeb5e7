# SPDX-License-Identifier: Apache-2.0
"""Running one step of a task."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.utils.prune import BasePruningMethod

from .._arithmetic import _rounded_steps
from .._base._errors import UnsupportedError, UsageError
from .._task import _random
from .._task._task import Task, overrides_step
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
        # Makes a step of a batch instead of the task.
        self.compute: Callable[[Any], torch.Tensor] | None = None

    def run(
        self,
        step: int,
        batch: Any,
        rounding: _rounded_steps.Rounding | None,
        logged: float | None = None,
        *,
        keeps_gradients: bool = False,
    ) -> StepResult:
        """Runs one step: `Session.run_step`."""
        task = self._task
        if overrides_step(task):
            logged = None
        with _random.scope(), torch.enable_grad(), task._told(logged):
            batch = self._batches.on_device(step, batch)
            if not keeps_gradients:
                _forget_gradients(task)
            rates = self._course.before(step)
            scale = _scale(task)
            self._norm.reset()
            self._randomness.begin_whole(step)
            drawn = _random.draws()
            with self._arithmetic.block():
                with _rounded_steps.around(rounding, step):
                    _mask_pruned(task.model)
                    loss = as_number((self.compute or task.step)(batch))
                drawn = _random.draws() - drawn
                # Schedulers may take a cosine.
                self._course.after(step, task._known(loss))
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

    def traced(
        self,
        step: int,
        batch: Any,
        rounding: _rounded_steps.Rounding | None,
        tracer: contextlib.AbstractContextManager[Any],
        number: Callable[[torch.Tensor], float],
    ) -> None:
        """Runs a step of which `tracer` sees `Task.step` alone.

        Args:
            step: 1-based.
            batch: On the device.
            rounding: As in `run`.
            tracer: Put around the computation.
            number: The loss as a number.
        """
        with _random.scope(), torch.enable_grad(), self._norm.unwatched():
            _forget_gradients(self._task)
            self._course.before(step)
            self._randomness.begin_whole(step)
            with self._arithmetic.block():
                with _rounded_steps.around(rounding, step):
                    _mask_pruned(self._task.model)
                    with tracer:
                        loss = self._task.step(batch)
                self._course.after(step, number(loss))

    def gradients(self, step: int, batch: Any) -> tuple[float, list[torch.Tensor | None]]:
        """Runs a step up to its update: `Session.gradients`."""
        with _random.scope(), torch.enable_grad():
            task = self._task
            batch = self._batches.on_device(step, batch)
            self._randomness.begin_whole(step)
            updates: list[list[torch.Tensor | None]] = []

            def instead(loss: torch.Tensor) -> None:
                updates.append([p.grad for p in parameters_of(task)])

            # What Task.step calls when the gradients are there.
            task.update = instead  # type: ignore[method-assign]
            try:
                with self._arithmetic.block():
                    loss = as_number(task.step(batch))
            finally:
                del task.update
            for parameter in parameters_of(task):
                parameter.grad = None
            if len(updates) != 1:
                raise UnsupportedError(
                    f"Task.step called self.update {len(updates)} times",
                    "end it with one self.update(loss), so that gradients and update can be "
                    "computed by two sides",
                )
            return loss, updates[0]

    @contextlib.contextmanager
    def own(self, step: int) -> Iterator[None]:
        """Randomness and arithmetic of a step that the caller computes: `Session._own_step`."""
        with _random.scope(), torch.enable_grad():
            _forget_gradients(self._task)
            self._randomness.begin(step)
            self._task._before_micro_batch(0)
            with self._arithmetic.block():
                yield

    def apply(self, step: int, gradients: Sequence[torch.Tensor | None], loss: float) -> None:
        """Makes the update of a step: `Session.apply`."""
        with torch.enable_grad():
            task = self._task
            self._course.before(step)
            for parameter, gradient in zip(parameters_of(task), gradients, strict=True):
                parameter.grad = gradient
            with self._arithmetic.block():
                task.update(torch.tensor(loss))
                self._course.after(step, loss)
            for parameter in parameters_of(task):
                parameter.grad = None

    def close(self) -> None:
        """Lets go of the task's optimizers."""
        self._norm.close()


def parameters_of(task: Task) -> list[torch.nn.Parameter]:
    """What the optimizers of a task move, each once, in their order."""
    found = {
        id(parameter): parameter
        for optimizer in task.optimizers
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    return list(found.values())


def _forget_gradients(task: Task) -> None:
    """Lets a step begin as a replay's first one does: no state says which gradients are zeros, with
    which optimizers go on, and which are missing.
    """
    for parameter in (*task.model.parameters(), *parameters_of(task)):
        parameter.grad = None


def _mask_pruned(model: torch.nn.Module) -> None:
    """Computes the weights of layers that torch.nn.utils.prune prunes, as their next forward pass
    does. Until then they would be those of the step before, by which a step that prunes chooses,
    and which no checkpoint holds.
    """
    for module in model.modules():
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, BasePruningMethod):
                hook(module, None)


def as_number(loss: Any) -> float:
    """A loss that a task computed.

    Raises:
        UsageError: It is not a single number.
    """
    if isinstance(loss, float):
        return loss
    if isinstance(loss, torch.Tensor) and loss.numel() == 1:
        return float(loss.detach())  # without, torch warns
    what = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else ""
    raise UsageError(
        f"step returned {what or type(loss).__name__}",
        "return the mean loss of the batch from Task.step",
    )


def _scale(task: Task) -> float:
    return 0.0 if task.scaler is None else float(task.scaler.get_scale())
