# SPDX-License-Identifier: Apache-2.0
"""Small runs without torch: states of a few tensors that are a function of the step."""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path
from typing import Any

from potl import _core

RATE = 0.1


def tensor(values: list[float], shape: list[int] | None = None) -> _core.Tensor:
    """A float32 tensor."""
    data = struct.pack(f"<{len(values)}f", *values)
    memory = ctypes.create_string_buffer(data, len(data))
    dims = [len(values)] if shape is None else shape
    return _core.Tensor("float32", dims, "contiguous", ctypes.addressof(memory), len(data), memory)


def state_at(step: int, *, salt: float = 0.0) -> _core.State:
    """What a tiny training run would hold after `step` updates."""
    weight = tensor([step + salt, 2.0, 3.0, 4.0], [2, 2])
    return _core.State.capture(
        {
            "model": {"parameters": {"0.weight": weight, "head.weight": weight}},
            "optimizer": {"state": {0: {"step": step, "exp_avg": tensor([0.5 * step])}}},
            "step": step,
        }
    )


def job_text(**changes: Any) -> bytes:
    """A job of 6 steps over 10 samples."""
    job = {
        "format": "potl-job-v1",
        "seed": 7,
        "steps": 6,
        "epochs": 2,
        "batch_size": 4,
        "accumulate": 1,
        "drop_last": False,
        "checkpoint_every": 2,
        "max_segment": 2,
        "data": {"count": 10, "root": "00" * 32},
        "initial_state": {"digest": state_at(0).digest().hex(), "source": "seed"},
        "learning_rates": [{"steps": 6, "rates": [struct.pack(">d", RATE).hex()]}],
        "arithmetic": "stock",
        "tolerance_cap": 0.1,
        "limits": {"max_resumes": 2, "max_superseded": 10},
        "trainer": bytes(key().public_key.raw).hex(),
        "task": {},
        "environment": {},
    }
    job.update(changes)
    return _core.canonical_json(job)


def key(seed: int = 1) -> _core.SigningKey:
    return _core.SigningKey.from_seed(bytes([seed]) * 32)


def long_job(steps: int, **changes: Any) -> _core.Job:
    """`steps` steps of one epoch, one sample each."""
    rates = [{"steps": steps, "rates": [struct.pack(">d", RATE).hex()]}]
    return _core.Job.parse(
        job_text(
            steps=steps,
            epochs=1,
            batch_size=1,
            data={"count": steps, "root": "00" * 32},
            learning_rates=rates,
            **changes,
        )
    )


def append_steps(recorder: _core.Recorder, job: _core.Job, first: int, last: int) -> None:
    for step in range(first, last + 1):
        append_step(recorder, job, step)


def append_step(recorder: _core.Recorder, job: _core.Job, step: int, **changes: Any) -> None:
    entry: dict[str, Any] = {
        "step": step,
        "epoch": job.epoch_of(step),
        "sample_ids": job.sample_ids(step),
        "loss": 1.0 / step,
        "rates": [RATE],
        "random_draws": 3,
        "flags": 0,
        "duration_ns": 1000,
        "checkpoint": job.is_checkpoint(step),
    }
    entry.update(changes)
    recorder.append_step(state_at(step), **entry)


def record_run(path: Path, job: _core.Job, *, resume_after: int | None = None) -> str:
    """A complete run, resumed after a step if that is given. Returns the commitment."""
    recorder = _core.Recorder.create(str(path), job, key(), software="example")
    recorder.append_initial(state_at(0))
    first = 1
    if resume_after is not None:
        append_steps(recorder, job, 1, resume_after)
        recorder.abandon()
        recorder, step, _ = _core.Recorder.resume(str(path), job, key(), software="example")
        first = step + 1
    append_steps(recorder, job, first, job.steps)
    recorder.close()
    return _core.commit_run(str(path), key())


def rejected_by(findings: list[_core.Finding]) -> set[str]:
    """Rules with a rejecting finding."""
    return {one.rule for one in findings if one.result == "reject"}
