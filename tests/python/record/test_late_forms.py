# SPDX-License-Identifier: Apache-2.0
"""Recording warns of states that no verifier can judge, and of no others."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import driver_tasks
import pytest
import torch
import torch.nn.functional as F
from lawful import net, task
from torch import nn

import potl


class Adding(torch.optim.Optimizer):
    """Keeps a sum for every parameter that had a gradient, and at times something new."""

    def __init__(self, parameters: Any, new_after: int) -> None:
        super().__init__(parameters, {"lr": 0.1, "done": 0})
        self.new_after = new_after

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        (group,) = self.param_groups
        group["done"] += 1
        for parameter in group["params"]:
            if parameter.grad is not None:
                kept = self.state[parameter]
                kept["sum"] = kept.get("sum", 0.0) + parameter.grad
                if group["done"] > self.new_after:
                    kept["new"] = parameter.grad.clone()
                parameter.sub_(kept["sum"], alpha=group["lr"])


class Experts(nn.Module):
    """Each batch trains one of three, of other sizes; a buffer is made late."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(6, 4 + i) for i in range(3))
        self.register_buffer("late", None)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if self.calls == 5:
            self.late = torch.ones(3)
        out: torch.Tensor = self.experts[min(2, int(self.calls) // 3)](x)
        return out


class History:
    """A loss that keeps lists, and a dict that fills late."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.best: dict[str, float] = {}

    def __call__(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        loss = F.cross_entropy(output, target)
        self.losses.append(float(loss.detach()))
        if len(self.losses) == 4:
            self.best["first"] = min(self.losses)
        return loss

    def state_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self).update(state)


def adding(new_after: int) -> Callable[[], potl.Task]:
    def build() -> potl.Task:
        model, history = Experts(), History()
        optimizer = Adding(model.parameters(), new_after)
        return task(model, optimizer, loss=history, state={"history": history})

    return build


def warnings_of(
    build: Callable[[], potl.Task], path: Path, caplog: pytest.LogCaptureFixture
) -> list[str]:
    with caplog.at_level(logging.WARNING, logger="potl"):
        job = potl.Job.create(build, seed=7, checkpoint_every=3, check=False)  # which tells more
        potl.record(build, path, job=job)
    said = [one.getMessage() for one in caplog.records]
    return [one for one in said if "as far as the first steps show" in one]


def test_what_verifiers_know_is_recorded_without_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert warnings_of(adding(99), tmp_path / "own", caplog) == []
    assert warnings_of(lambda: task(net()), tmp_path / "torchs", caplog) == []


def test_what_is_made_late_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    [said] = warnings_of(adding(4), tmp_path / "run", caplog)
    assert "the state of step 6, optimizers/0/state/2/new: " in said and "build()" in said


class Softened(potl.Task):
    """Changes a dropout after step 5, once."""

    def step(self, batch: Any) -> torch.Tensor:
        loss = super().step(batch)
        if self.schedulers[0].last_epoch == 5:
            self.model[3].p = 0.5  # type: ignore[index, union-attr]
        return loss


@pytest.mark.parametrize("kind", [potl.Task, Softened])
def test_an_option_of_a_layer_that_a_step_leaves_changed_is_told_once(
    kind: type[potl.Task], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def build() -> potl.Task:
        options = driver_tasks.options()
        schedule = torch.optim.lr_scheduler.StepLR(options["optimizer"], 100)
        return kind(**options, scheduler=schedule)

    with caplog.at_level(logging.WARNING, logger="potl"):
        job = potl.Job.create(build, seed=7, checkpoint_every=3, check=False)  # which sees it
        potl.record(build, tmp_path / "run", job=job)
    said = [one.getMessage() for one in caplog.records if "of the model" in one.getMessage()]
    assert len(said) == (kind is Softened)
    assert all(one.startswith("Dropout.p of the model is another after step 6") for one in said)
