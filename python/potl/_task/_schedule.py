# SPDX-License-Identifier: Apache-2.0
"""Which samples and learning rates belong to a step: from the job, or from the task where there is
no job yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

import numpy as np
import torch

from .. import _core
from .._base._errors import MalformedError, Problem
from ._order import OwnOrder
from ._own_parts import own_options
from ._task import Task, is_metric_driven
from ._trees import Varying

# Relative: some hundred thousand units in the last place, far below any rate that somebody would
# choose.
_ROUNDING = 1e-10


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The sizes of a training, the order of its samples and its learning rates."""

    seed: int
    samples: int
    batch_size: int
    accumulate: int
    drop_last: bool
    steps_per_epoch: int
    steps: int
    seeded_reads: bool
    job: _core.Job | None = None
    own_order: OwnOrder | None = None
    """The task's order, if it brings one."""
    varying: Varying | None = None
    """What of the recipe schedulers change; None where only the training can tell."""
    _order: dict[int, Any] = field(default_factory=dict, repr=False)

    @staticmethod
    def of_task(task: Task, *, seed: int) -> Schedule:
        """The task's own schedule: what a job made of it would hold."""
        return Schedule(
            seed=seed,
            samples=len(task.dataset),
            batch_size=task.batch_size,
            accumulate=task.accumulate,
            drop_last=task.drop_last,
            steps_per_epoch=task.steps_per_epoch,
            steps=task.steps,
            seeded_reads=True,
            own_order=own_order(task, seed),
        )

    @staticmethod
    def of_job(job: _core.Job, task: Task) -> Schedule:
        """What was agreed; an order that the job does not determine is the task's."""
        fields = job.fields()
        return Schedule(
            seed=job.seed,
            samples=job.data_count,
            batch_size=job.batch_size,
            accumulate=job.accumulate,
            drop_last=bool(fields["drop_last"]),
            steps_per_epoch=job.steps_per_epoch,
            steps=job.steps,
            seeded_reads=bool(fields["task"].get("seeded_reads", True)),
            job=job,
            own_order=own_order(task, job.seed) if "order" in fields else None,
            varying=_varying(fields["task"].get("varying"), task),
        )

    def epoch_of(self, step: int) -> int:
        """0-based epoch of a 1-based step."""
        return (step - 1) // self.steps_per_epoch

    def sample_ids(self, step: int) -> list[int]:
        """Samples of a step, in batch order."""
        epoch = self.epoch_of(step)
        first = (step - 1) % self.steps_per_epoch * self.batch_size
        if self.own_order is not None:
            own: list[int] = self.own_order.of(epoch)[first : first + self.batch_size].tolist()
            return own
        if self.job is not None:
            return self.job.sample_ids(step)
        order = self._order.get(epoch)
        if order is None:
            # One epoch's permutation is kept: the steps of a run follow each other.
            key = _core.derive_key(self.seed, "order", epoch)
            order = np.frombuffer(_core.permutation(key, self.samples), dtype=np.int64)
            self._order.clear()
            self._order[epoch] = order
        ids: list[int] = order[first : first + self.batch_size].tolist()
        return ids

    def rates_at(self, step: int) -> list[float] | None:
        """Agreed learning rates of a step; None where they are part of the state."""
        return None if self.job is None else self.job.rates_at(step)


def _varying(value: object, task: Task) -> Varying | None:
    """What a job says of it, and what the task's own optimizers may change at any step. The core
    takes any JSON object as a job's "task".
    """
    if value is None:
        return None
    if isinstance(value, dict):
        optimizers, schedulers = value.get("optimizers"), value.get("schedulers")
        if _are_names(optimizers) and _are_names(schedulers):
            own = dict(enumerate(map(own_options, task.optimizers)))
            both = [[*names, *own.get(index, ())] for index, names in enumerate(optimizers)]
            return Varying(optimizers=both, schedulers=schedulers)
    raise MalformedError("job: task/varying does not name what schedulers change", "")


def _are_names(value: object) -> TypeGuard[list[list[str]]]:
    return isinstance(value, list) and all(
        isinstance(names, list) and all(isinstance(name, str) for name in names) for names in value
    )


def own_order(task: Task, seed: int) -> OwnOrder | None:
    """The order that a task brings; None for the seed's."""
    if task._order is None:
        return None
    return OwnOrder(task._order, seed=seed, count=len(task.dataset))


def rates_of(task: Task) -> list[float]:
    """The present learning rate of every parameter group."""
    return [float(group["lr"]) for o in task.optimizers for group in o.param_groups]


def set_rates(task: Task, rates: Sequence[float] | None) -> None:
    """Puts agreed rates in the place of what schedulers computed for them with whatever
    mathematical library.

    A rate that differs by more than rounding is left as it is: it is not for a replay to correct
    another recipe.
    """
    if rates is None:
        return
    groups = [group for o in task.optimizers for group in o.param_groups]
    if len(groups) != len(rates):
        return
    before: dict[int, float] = {}
    for group, rate in zip(groups, rates, strict=True):
        own = float(group["lr"])
        if own == rate or not _is_near(own, rate):
            continue
        before[id(group)] = own
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate
    if before:
        for scheduler in task.schedulers:
            _renew_last_rates(scheduler, before)


def same_rates(rates: Sequence[float], agreed: Sequence[float]) -> bool:
    """Whether rates are the agreed ones, but for the rounding of a mathematical library."""
    return len(rates) == len(agreed) and all(map(_is_near, rates, agreed))


def unscheduled(step: int, rates: Sequence[float], agreed: Sequence[float]) -> Problem:
    """What is wrong with a step that used other rates than the schedulers set."""
    return Problem(
        what=f"step {step} has the learning rates {_listed(rates)}, where the schedulers give "
        f"{_listed(agreed)}: something else sets them, and a verifier would reject the run",
        where="optimizers",
        remedy="pass whatever changes them as scheduler=, or override Task.step (it may only call "
        "super().step(batch)), which makes the rates part of what is replayed",
    )


def _is_near(rate: float, agreed: float) -> bool:
    return abs(rate - agreed) <= _ROUNDING * abs(agreed)


def _listed(rates: Sequence[float]) -> str:
    return ", ".join(f"{rate:g}" for rate in rates[:3]) + (", ..." if len(rates) > 3 else "")


def end_epoch_metric(task: Task) -> bool:
    """Whether a scheduler needs the mean loss of an epoch."""
    return task.scheduler_interval == "epoch" and any(map(is_metric_driven, task.schedulers))


def _renew_last_rates(scheduler: Any, before: Mapping[int, float]) -> None:
    """Puts the rates in the place of those that a scheduler set just now. One whose turn is over
    (`SequentialLR`), or that others follow, keeps its own: whether a rate had to be replaced
    depends on the machine.
    """
    for inner in getattr(scheduler, "_schedulers", ()):
        _renew_last_rates(inner, before)
    last = getattr(scheduler, "_last_lr", None)
    if last is None or not hasattr(scheduler, "optimizer"):
        return
    groups = scheduler.optimizer.param_groups
    if len(last) != len(groups):
        return
    scheduler._last_lr = [
        _copy_of(group["lr"]) if float(rate) == before.get(id(group)) else rate
        for rate, group in zip(last, groups, strict=True)
    ]


def _copy_of(rate: Any) -> Any:
    return rate.clone() if isinstance(rate, torch.Tensor) else rate
