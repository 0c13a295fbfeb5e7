# SPDX-License-Identifier: Apache-2.0
"""A verifier whose data code has come to make other batches rejects nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tasks
import torch
from torch.utils.data import Dataset

import potl
from potl._job._same_batches import SameBatches
from potl._job._session import Session


class Late(Dataset[Any]):
    """Reads something else once it is told to, as a count of reads may."""

    factor = 1.0

    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> Any:
        return self.factor * tasks.X[index], tasks.Y[index]


def build() -> potl.Task:
    return tasks.task(tasks.mlp(), dataset=Late())


@pytest.fixture
def job() -> potl.Job:
    return potl.Job.create(build, seed=7, checkpoint_every=2, arithmetic="ord32")


def verified(run: potl.Run, job: potl.Job, monkeypatch: pytest.MonkeyPatch) -> potl.Report:
    """By a process whose reads change behind the first measurement."""

    def progress(done: int, total: int) -> None:
        if done:
            monkeypatch.setattr(Late, "factor", 1.1)

    note = run.commit()
    checks = [potl.Replay(samples=6)]
    return potl.verify(
        run.path, job=job, commitment=note, task=build, checks=checks, progress=progress
    )


def test_what_a_process_reads_otherwise_than_at_first_rejects_nothing(
    tmp_path: Path, job: potl.Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = verified(potl.record(build, tmp_path / "run", job=job), job, monkeypatch)
    assert report.verdict == "inconclusive", report.sentence
    reasons = [one.reason for one in report.findings if one.result == "inconclusive"]
    assert any("another one when it is made again" in one for one in reasons), reasons


def test_a_false_segment_is_rejected_where_reads_stay_the_same(
    tmp_path: Path, job: potl.Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    with potl.Prover(build, tmp_path / "run", job=job, check_job=False) as prover:
        for step in prover.steps():
            if step.number == 1:
                with torch.no_grad():
                    next(prover.task.model.parameters()).mul_(0.5)
    report = verified(prover.run, job, monkeypatch)
    assert report.verdict == "rejected", report.sentence


def test_memory_that_a_collate_fn_fills_again_hides_no_other_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory = torch.zeros(12, *tasks.X.shape[1:])

    def collate(samples: list[Any]) -> Any:
        torch.stack([x for x, _ in samples], out=memory)
        return memory, torch.stack([y for _, y in samples])

    def filling() -> potl.Task:
        return tasks.task(tasks.mlp(), dataset=Late(), collate_fn=collate)

    with Session.open(filling, seed=7) as session:
        start = session.capture()
        batches = SameBatches(session, 1, start)
        assert batches.problem(start, lambda: start) is None
        monkeypatch.setattr(Late, "factor", 1.1)
        assert batches.problem(start, lambda: start) is not None


def test_data_that_a_generator_outside_of_build_draws_are_named() -> None:
    outside = torch.Generator().manual_seed(0)

    def noisy() -> potl.Task:
        noise = torch.randn(tasks.X.shape, generator=outside)
        data = torch.utils.data.TensorDataset(tasks.X + noise, tasks.Y)
        return tasks.task(tasks.mlp(), dataset=data)

    [problem] = potl.check(noisy)
    assert "make other batches" in problem.what and "inside build" in problem.remedy
