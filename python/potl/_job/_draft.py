# SPDX-License-Identifier: Apache-2.0
"""What a job is made of: everything that only the task itself can tell."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .. import _core
from .._base._errors import Problem
from .._task import _random
from .._task._data import DataFacts, scan
from .._task._portable import Watcher
from .._task._schedule import Schedule, own_order, same_rates, unscheduled
from .._task._task import Task
from . import _first_batches, _first_steps
from ._build import Build, build_task
from ._recipe import Description, RateRuns, describe, dry_run, environment, rates_in


@dataclass(frozen=True, kw_only=True)
class Head:
    """What a task says of itself before its first step."""

    description: Description
    rates: tuple[RateRuns | None, Description | None] | None
    """Of `dry_run`; None where schedulers have to be run on a task of their own."""


@dataclass(frozen=True, kw_only=True)
class Draft:
    """Facts about a task."""

    batch_size: int
    accumulate: int
    drop_last: bool
    epochs: int
    steps_per_epoch: int
    steps: int
    order: _core.JobOrder | None
    """What binds an order that the task brings."""
    data: DataFacts
    initial: _core.State
    unportable: tuple[str, ...]
    """Operators of `build` whose bits may depend on the machine."""
    rates: RateRuns | None
    task: Description
    environment: Description

    def unscheduled(self, seen: Mapping[int, Sequence[float]]) -> list[Problem]:
        """What is wrong if steps used other rates than those that will be agreed.

        Args:
            seen: Rates of the first steps.
        """
        for step, rates in seen.items():
            agreed = None if self.rates is None else rates_in(self.rates, step)
            if agreed is not None and not same_rates(rates, agreed):
                return [unscheduled(step, rates, agreed)]
        return []


def head_of(task: Task, build: Build) -> Head:
    """What has to be read before the first step."""
    # Schedulers that were run ahead do not come back.
    rates = None if task.schedulers else dry_run(task)
    return Head(description=describe(task, build), rates=rates)


def order_of(task: Task, seed: int) -> _core.JobOrder | None:
    """What a job says about the order of samples that a task brings; None for the seed's."""
    order = own_order(task, seed)
    if order is None:
        return None
    steps = order.digest(
        batch_size=task.batch_size, steps=task.steps, steps_per_epoch=task.steps_per_epoch
    )
    return {"samples": len(task._order), "steps": steps.hex()}


def draft(
    build: Build,
    seed: int,
    task: Task,
    head: Head,
    initial: _core.State,
    watcher: Watcher,
    *,
    stepped: Sequence[Collection[str]],
    ends: Sequence[str],
    exact: bool,
    say: Callable[[str], None],
) -> Draft:
    """Hashes the data, and runs the schedulers ahead on a task that is built for it.

    Args:
        stepped: Options of each optimizer that its steps were seen to change; empty where none was
            seen.
        ends: Digests of where its first steps end; empty where the job pins none.
        exact: Whether the job's arithmetic has the same bits on every machine.
    """
    rates = head.rates
    if rates is None:
        say("running the schedulers ahead")
        with _random.scope():
            rates = dry_run(build_task(build, seed))
    say(f"hashing {len(task.dataset):,} samples")
    facts = scan(task.dataset)
    schedule = replace(Schedule.of_task(task, seed=seed), seeded_reads=facts.seeded_reads)
    # From a file, the weights are the same on every machine, whatever build computed before.
    unportable = () if task.init is not None else tuple(sorted(watcher.operators))
    return Draft(
        batch_size=task.batch_size,
        accumulate=task.accumulate,
        drop_last=task.drop_last,
        epochs=task.epochs,
        steps_per_epoch=task.steps_per_epoch,
        steps=task.steps,
        order=order_of(task, seed),
        data=facts,
        initial=initial,
        unportable=unportable,
        rates=rates[0],
        task={
            **head.description,
            "seeded_reads": facts.seeded_reads,
            "varying": _with_options(rates[1], stepped),
            "initialisers": list(unportable),
            **(_first_batches.pins_of(task, schedule) if exact else {}),
            **_first_steps.pins_of(ends),
        },
        environment=environment(),
    )


def _with_options(
    varying: Description | None, stepped: Sequence[Collection[str]]
) -> Description | None:
    if varying is None or not stepped:
        return varying
    scheduled: Any = varying["optimizers"]
    both = [sorted({*names, *more}) for names, more in zip(scheduled, stepped, strict=True)]
    return {**varying, "optimizers": both}
