# SPDX-License-Identifier: Apache-2.0
"""What the agreed steps make of options, schedulers and scaler, without training: laws of
checks/detail/schema.hpp for the state after a step.

The verifier's own schedulers run ahead, with the logged losses where they follow a metric; the
scaler's arithmetic runs over the logged skips. Both are functions of job and log alone.
"""

from __future__ import annotations

import bisect
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from .. import _core
from .._task._forms import Law
from .._task._schedule import end_epoch_metric, set_rates
from .._task._task import Task, is_metric_driven
from .._task._values import (
    DTYPES,
    Placed,
    Tree,
    from_tree,
    option_from_tree,
    option_to_tree,
    to_tree,
)

if TYPE_CHECKING:
    from .._task._schedule import Schedule

# Options of the groups of every optimizer, and the state of every scheduler.
_Snapshot = tuple[list[list[dict[str, object]]], list[object]]

# Rates near zero are differences of larger ones, whose rounding they keep.
_SLACK = 1e-12


@dataclass(frozen=True)
class Log:
    """Losses and flags of steps 1, 2, ... of one history."""

    losses: Sequence[float]
    flags: Sequence[int]

    def reaches(self, step: int) -> bool:
        """Whether every step up to this one is in it."""
        return len(self.losses) >= step


class Ahead:
    """The recipe's own state after any step, for a task with the default step.

    Args:
        task: Freshly built. Its options and schedulers are used, and put back.
        schedule: What was agreed.
    """

    def __init__(self, task: Task, schedule: Schedule) -> None:
        self._task = task
        self._schedule = schedule
        self._known: list[tuple[int, float, _Snapshot]] = [(0, 0.0, _snapshot(task))]
        self._log: Log | None = None  # of which that is known
        self._slack = _SLACK * max(
            (
                abs(float(group[name]))
                for optimizer in task.optimizers
                for group in optimizer.param_groups
                for name in ("lr", "initial_lr", "max_lr")
                if name in group
            ),
            default=0.0,
        )
        self.needs_log = any(map(is_metric_driven, task.schedulers))

    @staticmethod
    def suits(task: Task) -> bool:
        """Whether the schedulers do what torch's base class says: their steps see no training."""
        return all(type(s).step.__module__.startswith("torch.optim") for s in task.schedulers)

    def at(self, step: int, log: Log | None) -> tuple[list[list[dict[str, Law]]], list[Law], Law]:
        """Laws of the options of every group (without its parameters), of every scheduler, and of
        the sum of an epoch's losses so far.
        """
        if log is not self._log:
            del self._known[1:]
            self._log = log
        losses = None if log is None else log.losses
        _, epoch_loss, (groups, schedulers) = self._run_to(step, losses)
        return (
            [[{k: self._law(v) for k, v in group.items()} for group in each] for each in groups],
            [self._law(values) for values in schedulers],
            ("near", epoch_loss, 0.0),
        )

    def _run_to(self, step: int, losses: Sequence[float] | None) -> tuple[int, float, _Snapshot]:
        task, schedule = self._task, self._schedule
        index = bisect.bisect_right(self._known, step, key=lambda known: known[0]) - 1
        done, epoch_loss, snapshot = self._known[index]
        if done == step:
            return self._known[index]
        if not task.schedulers:
            return step, 0.0, snapshot
        per_step = task.scheduler_interval == "step"
        summed = end_epoch_metric(task)
        before = _snapshot(task)
        _load(task, snapshot)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that no optimizer steps in between
                for at in range(done + 1, step + 1):
                    last_of_epoch = at % schedule.steps_per_epoch == 0
                    loss = 0.0 if losses is None else losses[at - 1]
                    epoch_loss += loss if summed else 0.0
                    if per_step or last_of_epoch:
                        set_rates(task, schedule.rates_at(at))
                        task.advance_schedulers(
                            loss if per_step else epoch_loss / schedule.steps_per_epoch
                        )
                        set_rates(task, schedule.rates_at(min(at + 1, schedule.steps)))
                    if last_of_epoch:
                        epoch_loss = 0.0
            found = step, epoch_loss, _snapshot(task)
        finally:
            _load(task, before)
        self._known.insert(index + 1, found)
        return found

    def _law(self, value: object) -> Law:
        if isinstance(value, dict):
            return ("map", {key: self._law(item) for key, item in value.items()}, [])
        if isinstance(value, (list, tuple)):
            name = "items" if isinstance(value, list) else "tuple"
            return (name, [self._law(item) for item in value])
        if isinstance(value, torch.Tensor):
            shape: Law = ("tensor", DTYPES[value.dtype], list(value.shape))
            if value.numel() != 1:
                return shape
            return ("all", [shape, ("near", float(value), self._slack)])
        return ("near", value, self._slack) if isinstance(value, float) else ("is", value)


def _snapshot(task: Task) -> _Snapshot:
    def copy(tensor: torch.Tensor, path: str) -> torch.Tensor:
        return tensor.detach().clone()

    groups = [
        [
            {
                key: option_to_tree(value, copy, key)
                for key, value in group.items()
                if key != "params"
            }
            for group in optimizer.param_groups
        ]
        for optimizer in task.optimizers
    ]
    return groups, [to_tree(s.state_dict(), copy, "schedulers") for s in task.schedulers]


def _load(task: Task, snapshot: _Snapshot) -> None:
    def own(value: object) -> object:
        return value.clone() if isinstance(value, torch.Tensor) else value

    groups, schedulers = snapshot
    for optimizer, saved in zip(task.optimizers, groups, strict=True):
        for group, values in zip(optimizer.param_groups, saved, strict=True):
            for key, value in values.items():
                group[key] = own(option_from_tree(value, group.get(key), Placed(), key))
    for scheduler, state in zip(task.schedulers, schedulers, strict=True):
        scheduler.load_state_dict(from_tree(state, scheduler.state_dict(), Placed(), "schedulers"))


class ScalerAhead:
    """The gradient scaler's state after any step.

    Args:
        tree: Its initial state.
    """

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._known = [(0, float(tree["scale"]), int(tree["_growth_tracker"]))] if tree else []
        self._log: Log | None = None  # of which that is known

    def at(self, step: int, log: Log | None) -> Law:
        """The law of its state, from the logged skips. Without them only its form is known, and
        that the scale is finite.
        """
        laws: dict[str, Law] = {key: ("is", value) for key, value in self._tree.items()}
        laws["scale"], laws["_growth_tracker"] = ("finite",), ("count", 0, step)
        if log is not None:
            if log is not self._log:
                del self._known[1:]
                self._log = log
            _, scale, tracker = self._run_to(step, log.flags)
            laws["scale"] = ("near", scale, 0.0)
            # What backs off from zero stays zero, and no flag says that it did.
            if scale > 0:
                laws["_growth_tracker"] = ("is", tracker)
        return ("map", laws, [])

    def _run_to(self, step: int, flags: Sequence[int]) -> tuple[int, float, int]:
        index = bisect.bisect_right(self._known, step, key=lambda known: known[0]) - 1
        done, start, counted = self._known[index]
        if done == step:
            return self._known[index]
        scale = torch.tensor(start, dtype=torch.float32)
        tracker = torch.tensor(counted, dtype=torch.int32)
        found = torch.zeros(()), torch.ones(())
        options = [self._tree[k] for k in ("growth_factor", "backoff_factor", "growth_interval")]
        for flag in flags[done:step]:
            torch._amp_update_scale_(scale, tracker, found[flag & _core.SKIPPED], *options)
        self._known.insert(index + 1, (step, float(scale), int(tracker)))
        return self._known[index + 1]


def log_of(steps: _core.StepColumns) -> Log:
    """The log of an `Evidence.steps()`."""
    return Log(steps["loss"], steps["flags"])
