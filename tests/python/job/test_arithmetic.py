# SPDX-License-Identifier: Apache-2.0
"""Jobs that name a reproducible arithmetic: replays are exact, and a difference has a place."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import driver_tasks as tasks
import pytest
import torch
from places import HELPERS
from torch import nn
from verifying import judged

import potl

pytest.importorskip("potl._torch", reason="potl was built without torch")


CHECKS = potl.PEV(), potl.Replay(samples=4)


def recorded(tmp_path: Path, build: Any = tasks.build, mode: str = "ord32", **options: Any) -> Any:
    job = potl.Job.create(build, seed=5, checkpoint_every=6, arithmetic=mode)
    run = potl.record(build, tmp_path / "run", job=job, **options)
    return job, run


@pytest.mark.parametrize("mode", ["ord32", "cr32", "xint24", "xint16"])
def test_an_honest_run_is_replayed_bit_for_bit(tmp_path: Path, mode: str) -> None:
    job, run = recorded(tmp_path, mode=mode)
    report = judged(run, job, tasks.build, *CHECKS)
    assert report.verdict == "accepted"
    assert all(replay["equal"] for replay in report.document["replays"])


def test_the_verifier_may_have_another_processor_and_other_threads(
    tmp_path: Path, set_threads: Callable[[int], None]
) -> None:
    set_threads(2)
    job, run = recorded(tmp_path, tasks.build_wide)
    job.write(tmp_path / "job.json")
    run.commit().write(tmp_path / "note.txt")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "potl", "verify", str(tmp_path / "run"), "--json"),
            *("--job", str(tmp_path / "job.json"), "--commitment", str(tmp_path / "note.txt")),
            *("--task", "driver_tasks:build_wide", "--no-ledger"),
        ],
        capture_output=True,
        text=True,
        timeout=600,
        env={
            **os.environ,
            "POTL_ISA": "portable",
            "ATEN_CPU_CAPABILITY": "default",
            "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-FMA,-AVX2",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join([str(HELPERS), *sys.path]),
        },
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["verdict"] == "accepted"
    assert all(replay["equal"] for replay in report["replays"])


def test_torchs_own_arithmetic_under_such_a_job_is_rejected_at_its_first_step(
    tmp_path: Path,
) -> None:
    agreed = potl.Job.create(tasks.build_wide, seed=5, checkpoint_every=6, arithmetic="ord32")
    lie = agreed.replace(arithmetic="stock")
    run = potl.record(tasks.build_wide, tmp_path / "run", job=lie)
    document = json.loads((tmp_path / "run" / "job.json").read_text())
    assert document["arithmetic"] == "stock"
    report = judged(run, agreed, tasks.build_wide, *CHECKS)
    assert report.verdict == "rejected"


class Drifting(potl.Task):
    """Adds one unit roundoff to a weight at step 9, as a machine with a broken unit might."""

    broken = False

    def step(self, batch: Any) -> Any:
        loss = super().step(batch)
        self.seen = getattr(self, "seen", 0)
        if Drifting.broken and int(self.count.item()) == 8:
            with torch.no_grad():
                first = next(iter(self.model.parameters()))
                one = first.view(-1)[:1]
                one.copy_(torch.nextafter(one, one + 1))
        self.count.add_(1)
        return loss


def build_drifting() -> potl.Task:
    net = tasks.model()
    net.register_buffer("steps", torch.zeros((), dtype=torch.int64))
    task = Drifting(**tasks.options(model=net))
    task.count = net.steps
    return task


def test_a_difference_names_the_first_step_and_the_first_operator(tmp_path: Path) -> None:
    Drifting.broken = True
    try:
        job, run = recorded(tmp_path, build_drifting)
        potl.trace(run, step=9, task=build_drifting).write(run.path)
    finally:
        Drifting.broken = False
    report = judged(run, job, build_drifting, *CHECKS)
    assert report.verdict == "rejected"
    reasons = [f.reason for f in report.findings if f.rule == "replay.parameters"]
    assert any("the first step that ends in other bits is 9" in reason for reason in reasons)
    # The forged step reads its weight behind the honest one's forward pass.
    assert any("the other side calls aten._local_scalar_dense" in reason for reason in reasons)


def leave_text(path: Path) -> None:
    path.write_text('{"format":"other"}')


# Whatever a prover leaves as a trace costs neither the verdict nor the verifier's time.
@pytest.mark.parametrize("leave", [leave_text, os.mkfifo, os.mkdir])
def test_a_trace_that_is_not_one_is_named_and_changes_nothing(tmp_path: Path, leave: Any) -> None:
    Drifting.broken = True
    try:
        job, run = recorded(tmp_path, build_drifting)
    finally:
        Drifting.broken = False
    (run.path / "traces").mkdir()
    leave(run.path / "traces" / "step-9.json")
    report = judged(run, job, build_drifting, *CHECKS)
    assert report.verdict == "rejected"
    assert any("unknown: " in finding.reason for finding in report.findings)


class Special(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.special.erfcx(x)


def build_special() -> potl.Task:
    net = nn.Sequential(Special(), nn.Linear(16, 4))
    return potl.Task(**tasks.options(model=net))


def test_a_task_that_cannot_be_reproduced_is_refused_when_the_job_is_made() -> None:
    with pytest.raises(potl.NotReplayable, match="special_erfcx"):
        potl.Job.create(build_special, seed=1, checkpoint_every=4, arithmetic="ord32")
    assert potl.check(build_special, arithmetic="stock") == []


def test_an_unknown_arithmetic_is_a_usage_error() -> None:
    with pytest.raises(potl.UsageError, match="fp8"):
        potl.Job.create(tasks.build, seed=1, checkpoint_every=4, arithmetic="fp8")
