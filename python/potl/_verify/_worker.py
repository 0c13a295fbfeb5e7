# SPDX-License-Identifier: Apache-2.0
"""What runs in a worker process: it gets plain data, opens the run and the task itself, and
returns plain data.

What it replays is what the parent judged: it refuses a log of any other bytes, so that its own
audit would only repeat the parent's, and every other file is bound by a digest in that log.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .. import _core
from .._base import _executors, _imports
from .._base._errors import JobMismatch, MismatchError, PotlError, UsageError
from .._job._agreement import Build, job_of, open_unchecked
from .._job._first_batches import batch_differences
from .._job._recipe import layer_differences, layers_of, order_differences
from .._remote._remote import again
from ._schema import Schema
from ._workload import replayer_of

if TYPE_CHECKING:
    from .._job._job import Job
    from .._job._session import Session
    from .._remote._remote import Place, Remote


@dataclass(frozen=True)
class Setup:
    """Everything a worker needs to know.

    Attributes:
        directory: Absolute path of the run directory; workers on other machines need it under the
            same path.
        log: Digest of the log that the parent judged.
        job: Text of the job that it judged it by.
        own_job: Whether that is the client's own.
        note: Text of the commitment, or None.
        task: "module:function".
        timeout: Seconds that one request may take.
        state_bytes: Size of the parent's own initial state, which limits what is read.
        max_checkpoint_bytes: Largest checkpoint that is read; None for a multiple of the task's own
            state.
        derive: Whether missing states that nobody has asked for are derived.
        threads: Threads that torch uses. The same number as in the parent gives the same bits as in
            the parent.
        remote: Where the run lies, if the directory is the parent's mirror of it.
    """

    directory: str
    log: bytes
    job: bytes
    own_job: bool
    note: str | None
    task: str
    timeout: float | None
    state_bytes: int
    max_checkpoint_bytes: int | None
    derive: bool
    threads: int
    remote: Remote | None

    @staticmethod
    def of(
        place: Place,
        evidence: _core.Evidence,
        *,
        note: str | None,
        task: str,
        timeout: float | None,
        state_bytes: int,
        max_checkpoint_bytes: int | None,
        derive: bool = False,
    ) -> Setup:
        import torch

        return Setup(
            directory=str(place.directory.resolve()),
            log=evidence.log_digest,
            job=evidence.job.text,
            own_job=evidence.job_is_own,
            note=note,
            task=task,
            timeout=timeout,
            state_bytes=state_bytes,
            max_checkpoint_bytes=max_checkpoint_bytes,
            derive=derive,
            threads=torch.get_num_threads(),
            remote=place.remote,
        )


# One session per process: building it costs more than most replays. A module that cannot be loaded
# is not tried again for every request either.
_ready: tuple[Setup, Session, _core.Replayer] | None = None
_refused: tuple[Setup, PotlError] | None = None


def fulfil(setup: Setup, request: _core.Request) -> _core.AnyMeasurement:
    """Answers one request in this process."""
    global _ready, _refused
    if _refused is not None and _refused[0] == setup:
        raise _refused[1]
    if _ready is None or _ready[0] != setup:
        try:
            _imports.close(setup.directory)
            job, remote = _core.Job.parse(setup.job), setup.remote
            own = None if remote is None else again(remote, Path(setup.directory), job)
            evidence = _core.Evidence.open(
                setup.directory if own is None else str(own.directory),
                job=job,
                commitment=setup.note,
                max_checkpoint_bytes=setup.max_checkpoint_bytes,
                expected_log=setup.log,
                fetch=None if own is None else own.fetch,
            )
            import torch

            torch.set_num_threads(setup.threads)
            build = _executors.load_task(setup.task)
            agreed = job_of(evidence.job, evidence, state_bytes=lambda: setup.state_bytes)
            session = _opened(build, agreed)
        except (MismatchError, UsageError) as error:
            _refused = (setup, error)
            raise
        replayer = replayer_of(
            session,
            Schema(session, evidence),
            evidence,
            timeout=setup.timeout,
            derive=setup.derive,
            own_job=setup.own_job,
        )
        _ready = setup, session, replayer
    _, session, replayer = _ready
    with session.active():
        return replayer.answer(request)


def _opened(build: Build, job: Job) -> Session:
    """A session of the task that the parent has compared with the job; but the machine may be
    another one, and the process is.
    """
    session = open_unchecked(build, job)
    agreed = job.core.fields()["task"]
    layers = layers_of(session.task.model)
    other = list(layer_differences(agreed, layers, job.core.arithmetic))
    other += order_differences(agreed, session.task)
    other += batch_differences(session, job.core)
    if other:
        session.close()
        raise JobMismatch(other)
    return session
