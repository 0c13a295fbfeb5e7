# SPDX-License-Identifier: Apache-2.0
"""`record`: trains a task from its first step to its last and keeps the evidence."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, overload

from .._base._progress import Progress, track
from ._prover import Prover
from ._run import Run

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from .. import _core
    from .._job._job import Job
    from .._task._task import Task


@overload
def record(
    build: Callable[[], Task],
    run: str | os.PathLike[str],
    *,
    job: Job | str | os.PathLike[str] | None = None,
    key: str | os.PathLike[str] | _core.SigningKey | None = None,
    seed: int | None = None,
    checkpoint_every: int | str | None = None,
    check_job: bool = True,
    progress: Progress = None,
    group: None = None,
) -> Run: ...
@overload
def record(
    build: Callable[[], Task],
    run: str | os.PathLike[str],
    *,
    job: Job | str | os.PathLike[str] | None = None,
    key: str | os.PathLike[str] | _core.SigningKey | None = None,
    seed: int | None = None,
    checkpoint_every: int | str | None = None,
    check_job: bool = True,
    progress: Progress = None,
    group: ProcessGroup | None,
) -> Run | None: ...


def record(
    build: Callable[[], Task],
    run: str | os.PathLike[str],
    *,
    job: Job | str | os.PathLike[str] | None = None,
    key: str | os.PathLike[str] | _core.SigningKey | None = None,
    seed: int | None = None,
    checkpoint_every: int | str | None = None,
    check_job: bool = True,
    progress: Progress = None,
    group: ProcessGroup | None = None,
) -> Run | None:
    """Trains and records every step; returns the finished run.

    To resume an interrupted recording, call it again with the same arguments; the transcript says
    that it was resumed. `Prover` does the same with the loop in the caller's hands.

    Args:
        build: Makes the task; called with all randomness under the job's seed.
        run: The run directory. A new or empty one starts; an interrupted run of the same job goes
            on.
        job: What was agreed: a `potl.Job` or its file. Without one, `seed` and `checkpoint_every`
            make one.
        key: PEM file of the signing key, created when there is none; None keeps a key in the run
            directory.
        seed: Seed of a job made here.
        checkpoint_every: Steps between stored states of a job made here, or "epoch".
        check_job: False records a task that differs from the job. For tests: no verifier accepts
            the run.
        progress: None for a bar when stderr is a terminal, a bool, or a function of (done, total).
        group: Processes that compute the micro-batches of each step together
            (docs/guide/data_parallel.md). Each of them calls `record`; rank 0 writes the run, the
            others need `build` alone, and get None.

    Example:
        >>> run = potl.record(build, "runs/1", seed=7, checkpoint_every=20)  # doctest: +SKIP

    Raises:
        JobMismatch: The task does not match the job; the message names each difference. Or this
            machine ends one of the first steps in another state than the job says.
        MismatchError: Processes of the group have computed different states.
        UnsupportedError: Processes cannot share the steps of this task.
        UsageError: The directory holds something else, or a run that is finished.
        StorageError: The disk is full or fails, or a process of the group is gone; what was
            acknowledged stays.
    """
    make: Callable[..., Prover] = Prover
    with contextlib.ExitStack() as stack:
        if group is not None:
            from .._job._ranks import Ranks
            from ._data_parallel import Leader, follow, plain_modules

            ranks = stack.enter_context(Ranks(group))
            stack.enter_context(plain_modules())
            if ranks.rank > 0:
                follow(build, ranks)
                return None
            make = functools.partial(Leader, ranks=ranks)
        prover = make(
            build,
            run,
            job=job,
            key=key,
            seed=seed,
            checkpoint_every=checkpoint_every,
            check_job=check_job,
        )
        with prover, track("recording", prover.total, progress) as advance:
            prover.run_to_the_end(advance)
        return prover.run
