# SPDX-License-Identifier: Apache-2.0
"""Optimizers and schedules of libraries whose learning rates a job cannot state."""

from __future__ import annotations

import pytest
import tasks
import torch

import potl


class ByEpoch:
    """A schedule as timm has them, which is given the epoch."""

    def step(self, epoch: int, metric: float | None = None) -> None: ...

    def state_dict(self) -> dict[str, float]:
        return {}

    def load_state_dict(self, state: dict[str, float]) -> None: ...


class OwnPace(potl.Task):
    def advance_schedulers(self, metric: float) -> None:
        self.schedulers[0].step(0)


def scheduled(kind: type[potl.Task]) -> potl.Task:
    model = tasks.mlp()
    return kind(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        dataset=torch.utils.data.TensorDataset(tasks.X, tasks.Y),
        loss=torch.nn.functional.cross_entropy,
        batch_size=8,
        epochs=1,
        scheduler=ByEpoch(),
    )


def test_a_schedule_that_is_given_the_epoch_is_named() -> None:
    [problem] = potl.check(lambda: scheduled(potl.Task))
    assert "missing a required argument: 'epoch'" in problem.what
    assert "advance_schedulers" in problem.remedy


def test_a_task_that_calls_it_itself_is_fine() -> None:
    assert potl.check(lambda: scheduled(OwnPace)) == []


@pytest.mark.parametrize("has_entry", [True, False])
def test_an_optimizer_without_a_learning_rate_is_named(has_entry: bool) -> None:
    def build() -> potl.Task:
        model = tasks.mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if has_entry:
            optimizer.param_groups[0]["lr"] = None
        else:
            del optimizer.param_groups[0]["lr"]
        return tasks.task(model, optimizer)

    [problem] = potl.check(build)
    assert problem.what.startswith("SGD has no learning rate") and "lr=" in problem.remedy
