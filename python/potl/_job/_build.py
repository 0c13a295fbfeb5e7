# SPDX-License-Identifier: Apache-2.0
"""Calls the user's `build` under a job's randomness."""

from __future__ import annotations

from collections.abc import Callable

from .. import _core
from .._base._errors import NotReplayable, Problem, UsageError
from .._task import _random
from .._task._data import check_dataset
from .._task._signatures import require_build, require_signatures
from .._task._task import Task
from .._task._weights import load_weights

Build = Callable[[], Task]


def build_task(build: Build, seed: int) -> Task:
    """Calls `build` with every generator seeded, and loads `init`. Inside a scope of `_random`.

    Raises:
        NotReplayable: The data set has no samples with numbers, or an optimizer has no learning
            rate, or not the whole state.
        UsageError: `build` requires arguments, or returned something else than a task, one without
            a step, or one whose methods take other arguments than a step gives.
    """
    require_build(build)
    _random.seed_all(_core.derive_key(seed, "init"))
    task = build()
    if not isinstance(task, Task):
        raise UsageError(
            f"build returned a {type(task).__name__}",
            "return potl.Task(model=..., optimizer=..., ...)",
        )
    require_signatures(task)
    problems = check_dataset(task.dataset)
    if problems:
        raise NotReplayable(problems)
    if task.steps == 0:
        raise UsageError(
            f"an epoch of {len(task.dataset)} samples has no batch of {task.batch_size}",
            "use a smaller batch_size, or drop_last=False",
        )
    if task.init is not None:
        load_weights(task.model, task.init)
    for index, optimizer in enumerate(task.optimizers):
        if "ZeroRedundancyOptimizer" in {kind.__name__ for kind in type(optimizer).__mro__}:
            raise NotReplayable(_shared_out(index))
        for group in optimizer.param_groups:
            if group.get("lr") is None:
                raise NotReplayable(_without_rate(type(optimizer).__name__, index))
            if type(group["lr"]) is int:  # lr=1 is lr=1.0
                group["lr"] = float(group["lr"])
    return task


def _shared_out(index: int) -> list[Problem]:
    return [
        Problem(
            what="ZeroRedundancyOptimizer is not supported: no process has the whole state",
            where=f"optimizers/{index}",
            remedy="use the optimizer that it wraps",
        )
    ]


def _without_rate(name: str, index: int) -> list[Problem]:
    return [
        Problem(
            what=f"{name} has no learning rate, and a job states one for each parameter group",
            where=f"optimizers/{index}",
            remedy="pass lr= (to the Adafactor of transformers with relative_step=False), and "
            "let scheduler= change it",
        )
    ]
