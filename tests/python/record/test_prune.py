# SPDX-License-Identifier: Apache-2.0
"""Pruned runs stay verifiable."""

from pathlib import Path
from typing import Any

import driver_tasks as tasks
import pytest
import torch

import potl


@pytest.fixture
def delivery(tmp_path: Path) -> "tuple[potl.Job, potl.Run]":
    job = potl.Job.create(tasks.build, seed=7, checkpoint_every=2, max_segment=8)
    return job, potl.record(tasks.build, tmp_path / "run", job=job)


def size_of(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def test_a_dry_run_removes_nothing(delivery: "tuple[potl.Job, potl.Run]") -> None:
    _, run = delivery
    before = sorted(run.path.rglob("*"))
    plan = potl.prune(run.path, max_bytes=size_of(run.path) // 2, dry_run=True)
    assert plan.removed and not plan.applied
    assert sorted(run.path.rglob("*")) == before


def test_a_pruned_run_fits_and_is_accepted(delivery: "tuple[potl.Job, potl.Run]") -> None:
    job, run = delivery
    commitment = run.commit()
    budget = size_of(run.path) * 2 // 3
    plan = potl.prune(run.path, max_bytes=budget)
    assert plan.applied and plan.segment <= 8
    assert size_of(run.path) <= budget
    report = potl.verify(run, job=job, commitment=commitment, task=tasks.build, ledger=None)
    assert report.verdict == "accepted", report.json()


def test_more_than_the_job_allows_is_not_removed(delivery: "tuple[potl.Job, potl.Run]") -> None:
    _, run = delivery
    with pytest.raises(potl.UsageError):
        potl.prune(run.path, max_bytes=1000)


def test_a_job_without_room_for_pruning_says_how_the_next_one_gets_it(tmp_path: Path) -> None:
    job = potl.Job.create(tasks.build, seed=7, checkpoint_every=2)
    run = potl.record(tasks.build, tmp_path / "run", job=job)
    with pytest.raises(potl.UsageError) as refused:
        potl.prune(run.path, max_bytes=size_of(run.path) // 2)
    assert "max_segment of several checkpoint_every" in refused.value.remedy


def test_a_missing_run_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(potl.UsageError, match="no run directory"):
        potl.prune(tmp_path / "nothing", max_bytes=10**9)


@pytest.fixture
def tight(tmp_path: Path) -> "tuple[potl.Job, potl.Run, potl.Commitment]":
    """A job that allows no pruning, recorded with a crash on the way."""
    job = potl.Job.create(tasks.build, seed=7, checkpoint_every=2)
    with potl.Prover(tasks.build, tmp_path / "run", job=job) as prover:
        for step in prover.steps():
            if step.number == 9:
                break
    run = potl.record(tasks.build, tmp_path / "run", job=job)
    return job, run, run.commit()


def archive(run: potl.Run) -> potl.Pruning:
    return potl.prune(run.path, max_bytes=size_of(run.path) // 2, archive=True)


def test_an_archived_run_is_rejected_until_its_states_are_derived_again(
    tight: "tuple[potl.Job, potl.Run, potl.Commitment]",
) -> None:
    job, run, commitment = tight
    files = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    plan = archive(run)
    assert plan.removed and plan.segment > 2

    def verified() -> potl.Report:
        return potl.verify(run, job=job, commitment=commitment, task=tasks.build, ledger=None)

    assert verified().verdict == "rejected"
    done = potl.rederive(run.path, task=tasks.build)
    assert len(done.steps) == len(plan.removed) and 0 < done.trained < 24
    assert {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()} == files
    assert verified().verdict == "accepted"
    assert potl.rederive(run.path, task=tasks.build) == potl.Rederivation(steps=(), trained=0)


def test_a_state_that_comes_out_otherwise_is_not_stored(
    tight: "tuple[potl.Job, potl.Run, potl.Commitment]", monkeypatch: pytest.MonkeyPatch
) -> None:
    _, run, _ = tight
    plan = archive(run)
    run_step = potl.Session.run_step

    def drift(self: potl.Session, step: int, batch: object, **options: Any) -> potl.StepResult:
        result = run_step(self, step, batch, **options)
        with torch.no_grad():
            next(self.task.model.parameters())[0] += 1e-7
        return result

    monkeypatch.setattr(potl.Session, "run_step", drift)
    with pytest.raises(potl.MismatchError, match="other bits"):
        potl.rederive(run.path, task=tasks.build)
    assert not any((run.path / name).exists() for name in plan.removed)


def test_another_task_than_the_recorded_one_derives_nothing(
    tight: "tuple[potl.Job, potl.Run, potl.Commitment]",
) -> None:
    _, run, _ = tight
    archive(run)
    with pytest.raises(potl.JobMismatch):
        potl.rederive(run.path, task=tasks.build_less_momentum)
