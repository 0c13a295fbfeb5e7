# SPDX-License-Identifier: Apache-2.0
"""Opens a task under a job, and sees to it that it is the task that was agreed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .. import _core
from .._base._errors import JobMismatch

if TYPE_CHECKING:
    from .._task._task import Task
    from ._job import Job
    from ._session import Session

Build = Callable[[], "Task"]


def is_of_a_program(core: _core.Job) -> bool:
    """Whether a C++ program made the job (docs/guide/libtorch.md): no Python task is its task."""
    task = core.fields()["task"]
    return isinstance(task, dict) and task.get("frontend") == "libtorch"


def open_checked(build: Build, job: Job, *, weights: bool = True) -> Session:
    """A session whose task is the job's.

    Args:
        build: Of the task.
        job: What was agreed.
        weights: Whether the initial state is compared: not of a task that has no weights.

    Raises:
        JobMismatch: It is not; every difference is named.
    """
    if is_of_a_program(job.core):
        raise JobMismatch("the job is a C++ program's", "train and verify with it")
    try:
        session = open_unchecked(build, job)
    except _core.MismatchError as error:
        # The agreed initial state does not even fit into the task.
        raise JobMismatch(error.message) from error
    try:
        differences = job.differences(session, weights=weights)
        if differences:
            raise JobMismatch(differences, "build the task as agreed, or make a new job")
    except BaseException:
        session.close()
        raise
    return session


def open_unchecked(build: Build, job: Job) -> Session:
    """A session under a job's randomness, of whatever task."""
    from ._session import Session

    return Session.open(build, seed=job.seed, job=job)


def job_of(
    core: _core.Job, evidence: _core.Evidence, *, state_bytes: Callable[[], int] | None = None
) -> Job:
    """A job with the state at step 0, if the seed does not determine that on every machine.

    Args:
        core: What was agreed.
        evidence: A run that has such a state.
        state_bytes: Size of the verifier's own states, which limits what is read; None for a run
            of one's own.
    """
    from ._job import Job

    if core.fields()["initial_state"]["source"] != "file":
        return Job(core)
    if state_bytes is not None:
        evidence.expect_state_bytes(state_bytes())
    try:
        initial = evidence.load_state(0)
    except (_core.MissingError, _core.MismatchError, _core.MalformedError):
        return Job(core)
    # What the prover stored is as good as any other copy of the agreed state, and as nothing else.
    return Job(core, initial=initial if initial.digest() == core.initial_state else None)
