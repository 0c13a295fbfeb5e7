# SPDX-License-Identifier: Apache-2.0
"""What a step of a task takes on this machine, and what checking one does."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .._base._errors import UsageError

if TYPE_CHECKING:
    from .._job._job import Job
    from .._task._task import Task


@dataclass(frozen=True, kw_only=True)
class CostModel:
    """How long things take.

    Attributes:
        step_seconds: One step of the training.
        check_seconds: One check of a step, on the trusted side.

    Example:
        >>> CostModel(step_seconds=0.1, check_seconds=0.2).check_seconds
        0.2
    """

    step_seconds: float
    check_seconds: float

    def __post_init__(self) -> None:
        for name in ("step_seconds", "check_seconds"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise UsageError(f"{name} is {value}", "pass a positive number of seconds")

    @classmethod
    def measure(
        cls, build: Callable[[], Task], *, job: Job | None = None, steps: int = 5
    ) -> CostModel:
        """Runs the first steps of a task here, each of them twice: as a step, and as a check that
        executes it again from the state before it.

        The first step is not counted, because it also prepares what the others use. Medians are
        taken of the rest.

        Args:
            build: Makes the task.
            job: What was agreed; without it the task is run as it is, in stock arithmetic.
            steps: How many steps to measure.

        Raises:
            UsageError: The task has fewer than two steps, or `steps` is none.
        """
        from .._job._session import Session

        if steps < 1:
            raise UsageError(f"steps is {steps}", "measure at least one")
        seed = 0 if job is None else job.seed
        with Session.open(build, seed=seed, job=job) as session, session.active():
            last = min(steps + 1, session.schedule.steps)
            if last < 2:
                raise UsageError(
                    "the training has a single step", "give a CostModel of your own figures"
                )
            stepping, checking = [], []
            for step in range(1, last + 1):
                before = session.capture()
                began = time.perf_counter()
                session.run_step(step, session.sample_ids(step))
                stepped = time.perf_counter()
                session.restore(before)
                session.run_step(step, session.sample_ids(step))
                checking.append(time.perf_counter() - stepped)
                stepping.append(stepped - began)
        return cls(
            step_seconds=statistics.median(stepping[1:]),
            check_seconds=statistics.median(checking[1:]),
        )
