# SPDX-License-Identifier: Apache-2.0
"""What runs in a worker process: it gets plain data, opens the run and the task itself, and
returns plain data.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import _core, _executors
from ._agreement import job_of, open_unchecked
from ._errors import UsageError
from ._fulfil import Measurement, Replayer
from ._schema import Schema


@dataclass(frozen=True)
class Setup:
    """Everything a worker needs to know.

    Attributes:
        directory: Absolute path of the run directory; workers on other machines need it under the
            same path.
        job: Text of the verifier's own job, or None.
        note: Text of the commitment, or None.
        task: "module:function".
        timeout: Seconds that one request may take.
        max_checkpoint_bytes: Largest checkpoint that is read; None for a multiple of the task's own
            state.
        derive: Whether missing states that nobody has asked for are derived.
        threads: Threads that torch uses. The same number as in the parent gives the same bits as in
            the parent.
    """

    directory: str
    job: bytes | None
    note: str | None
    task: str
    timeout: float | None
    max_checkpoint_bytes: int | None
    derive: bool
    threads: int

    @staticmethod
    def of(
        directory: Path,
        *,
        job: _core.Job | None,
        note: str | None,
        task: str,
        timeout: float | None,
        max_checkpoint_bytes: int | None,
        derive: bool = False,
    ) -> Setup:
        import torch

        return Setup(
            directory=str(directory.resolve()),
            job=None if job is None else job.text,
            note=note,
            task=task,
            timeout=timeout,
            max_checkpoint_bytes=max_checkpoint_bytes,
            derive=derive,
            threads=torch.get_num_threads(),
        )


# One session per process: building it costs more than most replays. A module that cannot be loaded
# is not tried again for every request either.
_ready: tuple[Setup, Replayer] | None = None
_refused: tuple[Setup, UsageError] | None = None


def fulfil(setup: Setup, request: dict[str, Any]) -> Measurement:
    """Fulfils one request in this process."""
    global _ready, _refused
    if _refused is not None and _refused[0] == setup:
        raise _refused[1]
    if _ready is None or _ready[0] != setup:
        import torch

        torch.set_num_threads(setup.threads)
        evidence = _core.Evidence.open(
            setup.directory,
            job=None if setup.job is None else _core.Job.parse(setup.job),
            commitment=setup.note,
            max_checkpoint_bytes=setup.max_checkpoint_bytes,
        )
        try:
            build = _executors.load_task(setup.task)
        except UsageError as error:
            _refused = (setup, error)
            raise
        session = open_unchecked(build, job_of(evidence.job, evidence))
        _ready = (
            setup,
            Replayer(
                session,
                evidence,
                timeout=setup.timeout,
                directory=Path(setup.directory),
                derive=setup.derive,
                schema=Schema(session, evidence),
            ),
        )
    return _ready[1].fulfil(request)
