# SPDX-License-Identifier: Apache-2.0
"""Model, optimizer and scheduler of `Accelerator.prepare` can be handed to a task as they are."""

from __future__ import annotations

from pathlib import Path

import driver_tasks
import pytest
import torch

import potl

accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")


def build() -> potl.Task:
    options = driver_tasks.options()
    scheduler = torch.optim.lr_scheduler.StepLR(options["optimizer"], step_size=3)
    prepared = accelerate.Accelerator(cpu=True).prepare(
        options["model"], options["optimizer"], scheduler
    )
    options["model"], options["optimizer"], options["scheduler"] = prepared
    return potl.Task(**options)


def build_with_loader() -> potl.Task:
    options = driver_tasks.options()
    loader = torch.utils.data.DataLoader(options["dataset"], batch_size=16)
    options["dataset"] = accelerate.Accelerator(cpu=True).prepare(loader)
    return potl.Task(**options)


def test_a_prepared_training_is_recorded_and_verified(tmp_path: Path) -> None:
    job = potl.Job.create(build, seed=3, checkpoint_every=8)
    run = potl.record(build, tmp_path / "run", job=job)
    report = potl.verify(run, job=job, commitment=run.commit(), task=build, ledger=None)
    assert report.verdict == "accepted", report.json()


def test_nothing_of_accelerate_is_left_in_the_task() -> None:
    task = build()
    held = [*task.optimizers, *task.schedulers]
    assert not [one for one in held if type(one).__module__.startswith("accelerate")]


def test_a_loader_is_refused_whose_order_and_batches_would_be_lost() -> None:
    with pytest.raises(potl.NotReplayable, match=r"loader\.dataset as dataset=.*collate_fn="):
        potl.Job.create(build_with_loader, seed=3, checkpoint_every=8)
