# SPDX-License-Identifier: Apache-2.0
"""Opens a task under a job, and sees to it that it is the task that was agreed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .. import _core
from .._base import _testing
from .._base._errors import JobMismatch

if TYPE_CHECKING:
    from .._task._task import Task
    from ._job import Job
    from ._session import Session

Build = Callable[[], "Task"]


def open_checked(build: Build, job: Job) -> Session:
    """A session whose task is the job's.

    Raises:
        JobMismatch: It is not; every difference is named.
    """
    from ._job import difference
    from ._session import Session

    try:
        session = Session.open(build, seed=job.seed, job=job)
    except _core.MismatchError as error:
        # The agreed initial state does not even fit into the task.
        raise JobMismatch(error.message) from error
    try:
        differences = difference(job, session)
        if differences:
            raise JobMismatch(differences)
    except BaseException:
        session.close()
        raise
    return session


def open_unchecked(build: Build, job: Job) -> Session:
    """A session under a job's randomness, of whatever task."""
    from ._session import Session

    return Session.open(build, seed=job.seed, job=job)


def open_for_verifying(build: Build, job: Job) -> Session:
    """The verifier's own task under its own job: replays read its data, its order and its recipe.

    Raises:
        JobMismatch: The verifier's task is not the one of the job.
    """
    own_word = _core.rule_enabled("agreed.recipe") and _core.rule_enabled("agreed.data")
    story = _testing.story()
    if own_word or story.build is None:
        session = open_checked(build, job)
    else:
        session = open_unchecked(story.build, job)
    if story.sample_ids is not None and not _core.rule_enabled("agreed.batch_order"):
        _testing.believe_order(session, story.sample_ids)
    return session


def job_of(core: _core.Job, evidence: _core.Evidence) -> Job:
    """A job with the state at step 0, if the seed does not determine that on every machine."""
    from ._job import Job

    source: Mapping[str, Any] = core.fields()["initial_state"]
    if source["source"] != "file":
        return Job(core)
    try:
        initial = evidence.load_state(0)
    except (_core.MissingError, _core.MismatchError, _core.MalformedError):
        return Job(core)
    # What the prover stored is as good as any other copy of the agreed state, and as nothing else.
    return Job(core, initial=initial if initial.digest() == core.initial_state else None)
