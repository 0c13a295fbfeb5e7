# SPDX-License-Identifier: Apache-2.0
"""Runs that are false at a step, and parties of a dispute that lie about it."""

from __future__ import annotations

import dataclasses
import functools
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import places
import torch
from torch.utils._python_dispatch import _disable_current_modes

import potl
from potl import _core
from potl._dispute._party import Story

Build = Callable[[], potl.Task]
EVERY = 8


@dataclasses.dataclass
class Case:
    """A job with its honest run."""

    build: Build
    job: potl.Job
    key: _core.SigningKey
    run: potl.Run
    folder: Path

    def party(self, run: potl.Run | Path, **options: Any) -> potl.Party:
        return potl.Party(run, job=self.job, task=self.build, **options)

    def referee(self) -> potl.Referee:
        return potl.Referee(self.job, task=self.build)

    def honest(self) -> potl.Party:
        return self.party(self.run, key=self.key)

    def auditor(self) -> potl.Party:
        return self.party(self.folder / "audit")


def case(build: Build, folder: Path, arithmetic: str = "ord32") -> Case:
    key = _core.SigningKey.generate()
    (folder / "trainer.pub").write_text(key.public_key.to_pem())
    job = potl.Job.create(
        build, seed=3, checkpoint_every=EVERY, trainer=folder / "trainer.pub", arithmetic=arithmetic
    )
    run = potl.record(build, folder / "run", job=job, key=key)
    run.commit()
    audit = potl.audit(run, job=job, task=build, log=folder / "audit")
    assert audit.agrees
    return Case(build, job, key, run, folder)


class Moved(potl.Task):
    """Moves one weight by one ulp after the step on a batch."""

    target: torch.Tensor

    def step(self, batch: Any) -> torch.Tensor:
        loss = super().step(batch)
        with _disable_current_modes():
            if torch.equal(batch[0], self.target):
                weight = next(self.model.parameters()).detach().view(-1)
                weight[0] = torch.nextafter(weight[0], torch.tensor(1.0))
        return loss


def false_build(honest: Build, job: potl.Job, at: int) -> Build:
    """Of a task whose training is false from a step on: one weight is off by one ulp."""
    data = honest().dataset
    target = torch.stack([data[i][0] for i in job.core.sample_ids(at)])

    def build() -> potl.Task:
        task = honest()
        task.__class__ = Moved
        task.target = target  # type: ignore[attr-defined]
        return task

    return build


def false_run(honest: Build, job: potl.Job, at: int, path: Path, key: _core.SigningKey) -> potl.Run:
    """A run of a job, recorded from `false_build`."""
    run = potl.record(false_build(honest, job, at), path, job=job, key=key, check_job=False)
    run.commit()
    return run


def kill_audit(run: Path, job: potl.Job, folder: Path, nonce: str | None = None) -> Path:
    """The log of an audit of `traced_nets.mlp` that was killed after step 20."""
    job.write(folder / "job.json")
    log = folder / "log"
    code = (
        f"import sys; sys.path.append({str(places.HELPERS)!r})\n"
        "import time, potl, traced_nets\n"
        "def progress(done, total):\n"
        "    print(done, flush=True)\n"
        "    while done == 20: time.sleep(1)  # until it is killed\n"
        f"potl.audit({str(run)!r}, job='job.json', task=traced_nets.mlp, log={str(log)!r},\n"
        f"    nonce={nonce!r}, progress=progress)\n"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) == 20:
                break
        process.send_signal(signal.SIGKILL)
    return log


class Liar(potl.Party):
    """Tells the honest story of a step, but for one bit of what an operator returned."""

    def __init__(self, *args: Any, at: int, operator: int | None, **options: Any) -> None:
        super().__init__(*args, **options)
        self._at, self._operator = at, operator

    def _story(self, step: int) -> Story:
        assert step == self._at, "the dispute is about another step"
        return self._lie

    @functools.cached_property
    def _lie(self) -> Story:
        true = super()._story(self._at)
        leaves = list(true.leaves)
        state = self._evidence.state_digest(self._at)
        leaves[-1] = leaves[-1][:-32] + _core.content_root(state)
        contents = {f"operator/{len(leaves) - 1}/0": state}
        if self._operator is not None:
            path = f"operator/{self._operator}/0"
            content = bytearray(true.content(path))
            content[len(content) // 2] ^= 1
            contents[path] = bytes(content)
            leaf = leaves[self._operator]
            head = len(b"potl.operator.v1\0") + 32
            root = _core.content_root(contents[path])
            leaves[self._operator] = leaf[:head] + root + leaf[head + 32 :]
        return dataclasses.replace(
            true,
            leaves=leaves,
            content=lambda path: contents.get(path) or true.content(path),
        )
