# SPDX-License-Identifier: Apache-2.0
"""A training that changes what its task consists of is refused: no build could go on there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lawful import net, task
from torch import nn
from torch.nn.utils import prune
from torch.optim import lr_scheduler as schedules, swa_utils

import potl

CHANGES_AT, EARLY = 5, 2


class Changing(potl.Task):
    """Does something to itself before one of its steps."""

    change: Callable[[Any], object]
    at = CHANGES_AT

    def step(self, batch: Any) -> torch.Tensor:
        self.model.steps += 1  # type: ignore[operator]
        if int(self.model.steps) == self.at:  # type: ignore[arg-type]
            self.change()  # type: ignore[call-arg]
        return super().step(batch)


def changing(change: Callable[[Any], object], at: int = CHANGES_AT) -> Callable[[], potl.Task]:
    def build() -> potl.Task:
        model = net()
        model[0].requires_grad_(False)  # type: ignore[index]
        model.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        optimizer = torch.optim.Adam(model[1:].parameters())  # type: ignore[index]
        made: Any = task(model, optimizer, Changing, scheduler=schedules.StepLR(optimizer, 2))
        made.at = at
        made.change = change.__get__(made)  # type: ignore[attr-defined]
        return made  # type: ignore[no-any-return]

    return build


def add_a_group(task: Any) -> None:
    task.model[0].requires_grad_(True)
    task.optimizer.add_param_group({"params": list(task.model[0].parameters()), "lr": 1e-4})


def add_a_layer(task: Any) -> None:
    task.model.append(nn.Linear(2, 2))


def widen_the_head(task: Any) -> None:
    task.model[3] = nn.Linear(5, 3)


def prune_the_head(task: Any) -> None:
    prune.l1_unstructured(task.model[3], "weight", amount=0.2)


def add_a_buffer(task: Any) -> None:
    task.model[3].register_buffer("mask", torch.ones(2))


def change_the_optimizer(task: Any) -> None:
    task.optimizers = (torch.optim.SGD(task.model[1:].parameters(), 0.1),)


def change_the_schedule(task: Any) -> None:
    task.schedulers = (schedules.ExponentialLR(task.optimizer, 0.9),)


def begin_an_average(task: Any) -> None:
    task.ema = swa_utils.AveragedModel(task.model)


CHANGES = [
    (add_a_group, "optimizers/0/param_groups"),
    (add_a_layer, "model/parameters/4.bias"),
    (widen_the_head, "model/parameters/3.bias"),
    (prune_the_head, "model/parameters/3.weight"),
    (add_a_buffer, "model/buffers/3.mask"),
    (change_the_optimizer, "classes/optimizers/0"),
    (change_the_schedule, "classes/schedulers/0"),
    (begin_an_average, "ema"),
]


@pytest.mark.parametrize(("change", "where"), CHANGES)
def test_a_recording_ends_at_the_first_stored_state_of_another_structure(
    change: Callable[[Any], None], where: str, tmp_path: Path
) -> None:
    build = changing(change)
    with pytest.raises(potl.NotReplayable, match=f"the state of step 9, {where}.*build()"):
        potl.Job.create(build, seed=7, checkpoint_every=3)  # whose trial sees the end alone
    job = potl.Job.create(build, seed=7, checkpoint_every=3, check=False)
    with pytest.raises(potl.NotReplayable, match=f"the state of step 6, {where}.*build()"):
        potl.record(build, tmp_path / "run", job=job)


@pytest.mark.parametrize(("change", "where"), CHANGES)
def test_it_is_named_before_anything_is_agreed_where_the_first_steps_do_it(
    change: Callable[[Any], None], where: str
) -> None:
    (problem,) = potl.check(changing(change, EARLY))
    assert problem.where.startswith(f"the state of step 2, {where}")
    assert "in build()" in problem.remedy


def test_a_resumed_recording_ends_there_too(tmp_path: Path) -> None:
    build = changing(add_a_group)
    job = potl.Job.create(build, seed=7, checkpoint_every=3, check=False)
    with potl.Prover(build, tmp_path / "run", job=job, key=tmp_path / "key.pem") as prover:
        for step in prover.steps():
            if step.number == 4:
                break
    with pytest.raises(potl.NotReplayable, match="the state of step 6"):
        potl.record(build, tmp_path / "run", job=job, key=tmp_path / "key.pem")


def test_a_step_may_choose_what_it_trains(tmp_path: Path) -> None:
    def choose(task: Any) -> None:
        task.model[0].requires_grad_(True)
        task.optimizer.state.clear()
        task.model[3].eval()

    build = changing(choose)
    job = potl.Job.create(build, seed=7, checkpoint_every=3)
    run = potl.record(build, tmp_path / "run", job=job)
    report = potl.verify(run, job=job, commitment=run.commit(), task=build, ledger=None)
    assert report.verdict == "accepted", report.sentence


class Switching(potl.Task):
    """Its loss switches a flag, as what evaluates within a step may forget to switch it back."""

    def compute_loss(self, batch: Any, reduction: Any = "mean") -> torch.Tensor:
        loss = super().compute_loss(batch, reduction)
        self.model.eval()
        return loss


def test_a_flag_that_the_loss_switches_is_found_before_there_is_a_job() -> None:
    def build() -> potl.Task:
        model = net()
        return task(model, torch.optim.Adam(model.parameters()), Switching)

    (found,) = potl.check(build)
    assert "the flag training changed" in str(found)
    assert "set flags in build()" in str(found)
    with pytest.raises(potl.NotReplayable, match="the flag training changed"):
        potl.Job.create(build, seed=7, checkpoint_every=3)
