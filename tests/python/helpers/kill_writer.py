# SPDX-License-Identifier: Apache-2.0
"""A process to be killed: records without end and says which step is acknowledged."""

from __future__ import annotations

from multiprocessing.connection import Connection

from transcript_helpers import append_step, job_text, key, state_at

from potl import _core


def endless_job() -> _core.Job:
    """More steps than anyone waits for, over few samples."""
    return _core.Job.parse(
        job_text(
            steps=10**7,
            epochs=10**7,
            checkpoint_every=3,
            max_segment=3,
            learning_rates=None,
            limits={"max_resumes": 10**6, "max_superseded": 10**6},
        )
    )


def record(directory: str, report: Connection) -> None:
    """Goes on with the run in `directory`, or starts one."""
    job = endless_job()
    first = 1
    try:
        recorder = _core.Recorder.create(directory, job, key(), software="")
        recorder.append_initial(state_at(0))
    except _core.UsageError:
        recorder, step, state = _core.Recorder.resume(directory, job, key(), software="")
        if state.digest() != state_at(step).digest():
            raise AssertionError(f"the state of step {step} is another") from None
        first = step + 1
    report.send(recorder.acknowledged())
    for step in range(first, job.steps):
        append_step(recorder, job, step)
        report.send(recorder.acknowledged())
