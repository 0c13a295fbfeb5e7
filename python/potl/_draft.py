# SPDX-License-Identifier: Apache-2.0
"""What a job is made of: everything that only the task itself can tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import _core, _random
from ._data import DataFacts, scan
from ._portable import Watcher
from ._recipe import RateRuns, describe, dry_run, environment
from ._session import Build, Session, build_task


@dataclass(frozen=True, kw_only=True)
class Draft:
    """Facts about a task."""

    batch_size: int
    accumulate: int
    drop_last: bool
    epochs: int
    steps_per_epoch: int
    data: DataFacts
    initial: _core.State
    unportable: tuple[str, ...]
    """Operators of `build` whose bits may depend on the machine."""
    rates: RateRuns | None
    task: dict[str, Any]
    environment: dict[str, Any]


def draft(build: Build, *, seed: int) -> Draft:
    """Builds the task (three times), hashes data and initial state, and runs the schedulers
    ahead.
    """
    watcher = Watcher()
    with _random.scope(), watcher:
        build_task(build, seed)
    with _random.scope():
        rates, varying = dry_run(build_task(build, seed))
    with Session.open(build, seed=seed) as session:
        task = session.task
        facts = scan(task.dataset)
        # From a file, the weights are the same on every machine, whatever build computed before.
        unportable = () if task.init is not None else tuple(sorted(watcher.operators))
        return Draft(
            batch_size=task.batch_size,
            accumulate=task.accumulate,
            drop_last=task.drop_last,
            epochs=task.epochs,
            steps_per_epoch=task.steps_per_epoch,
            data=facts,
            initial=session.capture(),
            unportable=unportable,
            rates=rates,
            task={
                **describe(task, build),
                "seeded_reads": facts.seeded_reads,
                "varying": varying,
                "initialisers": list(unportable),
            },
            environment=environment(),
        )
