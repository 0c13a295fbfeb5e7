# SPDX-License-Identifier: Apache-2.0
"""Learning rates from step to step: those that were agreed, and what schedulers do at the end of an
epoch.
"""

from __future__ import annotations

from .._task._schedule import Schedule, end_epoch_metric, rates_of, set_rates
from .._task._task import Task
from ._training_state import TrainingState


class Course:
    """Sets the rates of a task before a step, and moves it on after.

    Args:
        task: Whose optimizers and schedulers.
        schedule: What was agreed.
        state: Keeps the loss of the epoch so far.
    """

    def __init__(self, task: Task, schedule: Schedule, state: TrainingState) -> None:
        self._task = task
        self._schedule = schedule
        self._state = state

    def before(self, step: int) -> list[float]:
        """The rates that the step uses."""
        set_rates(self._task, self._schedule.rates_at(step))
        return rates_of(self._task)

    def after(self, step: int, loss: float) -> None:
        """Counts the step, and advances what advances once in an epoch."""
        task, schedule, state = self._task, self._schedule, self._state
        last_of_epoch = step % schedule.steps_per_epoch == 0
        state.step = step
        if end_epoch_metric(task):
            state.epoch_loss += loss
        if task.scheduler_interval == "epoch" and task.schedulers and last_of_epoch:
            task.advance_schedulers(state.epoch_loss / schedule.steps_per_epoch)
        if last_of_epoch:
            state.epoch_loss = 0.0
        set_rates(task, schedule.rates_at(min(step + 1, schedule.steps)))
