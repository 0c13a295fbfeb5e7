# SPDX-License-Identifier: Apache-2.0
"""What a guarded training costs on this machine: guarded steps against plain ones."""

from __future__ import annotations

import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .._base._errors import UsageError
from .._base._executors import load_task
from .._job._agreement import open_checked
from .._record._inputs import as_job
from ._guard import SpotCheck

if TYPE_CHECKING:
    from .._job._job import Job
    from .._job._session import Session


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Figures of a short guarded training.

    Attributes:
        steps: That were measured.
        checked: How many of them were computed again.
        plain_seconds: Mean time of a step without a guard, after those that warm it up.
        guarded_seconds: Mean time of a guarded one, checks included.
        overhead: Their ratio.
    """

    steps: int
    checked: int
    plain_seconds: float
    guarded_seconds: float
    overhead: float

    def document(self) -> dict[str, object]:
        """JSON values."""
        return asdict(self)


def measure(
    task: str,
    *,
    job: Job | str | os.PathLike[str],
    steps: int = 20,
    probability: float = 0.999,
    steps_at_risk: int | None = None,
    displacement: float | None = None,
    clip: float | None = None,
) -> Bench:
    """Trains some steps plainly and under a guard, with a worker in a process of its own here.

    Args:
        task: "module:function", importable by a new process.
        job: What was agreed.
        steps: How many to measure, after some that are not counted.
        probability: With which the certificate holds.
        steps_at_risk: As `potl.SpotCheck` has it.
        displacement: The same.
        clip: The same.

    Raises:
        UsageError: The job has too few steps, or the worker does not start.
    """
    agreed = as_job(job)
    first = min(steps, 10)
    if agreed.steps < first + steps:
        raise UsageError(
            f"the job has {agreed.steps} steps", f"measure {agreed.steps // 2} or fewer (--steps)"
        )
    build = load_task(task)
    key = secrets.token_bytes(32)
    with (
        own_worker(task, key) as address,
        SpotCheck(
            build,
            job=agreed,
            key=key,
            probability=probability,
            steps_at_risk=steps_at_risk,
            displacement=displacement,
            clip=clip,
        ) as guard,
        open_checked(build, agreed) as plain,
    ):
        guard.train(address, until=first, progress=False)
        # Half of the plain steps before and half after: a machine's speed drifts.
        middle = first + steps // 2
        taken = _seconds_of_steps(plain, 1, middle)[first:]
        report = guard.train(address, until=first + steps, progress=False)
        taken += _seconds_of_steps(plain, middle + 1, first + steps)
    (finding,) = report.findings
    seconds = statistics.mean(taken)
    guarded = (report.cost["training_seconds"] or 0.0) / steps
    return Bench(
        steps=steps,
        checked=int(finding.details["checked"]),
        plain_seconds=seconds,
        guarded_seconds=guarded,
        overhead=guarded / seconds,
    )


def _seconds_of_steps(session: Session, first: int, last: int) -> list[float]:
    taken = []
    began = time.perf_counter()
    for step, _, batch in session.batches(first, last):  # a worker reads its batches, too
        session.run_step(step, batch)
        ended = time.perf_counter()
        taken.append(ended - began)
        began = ended
    return taken


@contextmanager
def own_worker(task: str, key: bytes) -> Iterator[str]:
    """A worker in a process of this machine: yields its address."""
    with tempfile.TemporaryDirectory(prefix="potl-") as folder:
        secret = Path(folder) / "key"
        secret.touch(mode=0o600)
        secret.write_bytes(key)
        address = f"unix:{folder}/worker.sock"
        command = [sys.executable, "-m", "potl", "spot-check", "worker", task]
        with subprocess.Popen(
            [*command, "--listen", address, "--key", str(secret)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as worker:
            try:
                yield address
            finally:
                worker.terminate()
