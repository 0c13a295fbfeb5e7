# SPDX-License-Identifier: Apache-2.0
"""A loss next to a threshold is on the other side on another machine, in stock arithmetic, and what
follows it takes another course. That accuses nobody, and lets nobody choose the course.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset
from verifying import judged

import potl


class Machine:
    """Where the net is trained: how much less its loss is in one step."""

    less = 0.0
    overflown: float | None = None  # What a loss that is not finite is said to be.


class Counting(nn.Module):
    """Counts its steps."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(6, 3)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)


class Level(potl.Task):
    """Reports a loss that stands still."""

    def compute_loss(self, batch: list[torch.Tensor], reduction: str = "mean") -> torch.Tensor:
        loss = F.cross_entropy(self.model(batch[0]), batch[1])
        self.model.seen += 1
        less = Machine.less if int(self.model.seen) == 6 else 0.0
        return loss - loss.detach() + (0.01 - less)


class Lying(potl.Task):
    """Reports overflows as the machine likes."""

    def compute_loss(self, batch: list[torch.Tensor], reduction: str = "mean") -> torch.Tensor:
        loss = super().compute_loss(batch, reduction)
        known = Machine.overflown
        return loss if known is None else torch.where(loss.isfinite(), loss, known)


class Own(Level):
    """Tells its schedule something else than it reports."""

    def step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        self.optimizers[0].zero_grad()
        loss = self.compute_loss(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        self.update(torch.tensor(0.5 if int(self.model.seen) < 6 else 0.25))
        return loss.detach()


def verified(
    path: Path, less: float, interval: str = "step", kind: type[potl.Task] = Level
) -> potl.Report:
    def build() -> potl.Task:
        model = Counting()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x = torch.randn(32, 6, generator=torch.Generator().manual_seed(0))
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(
            optimizer, patience=2 if interval == "step" else 0, factor=0.5, threshold=0.0
        )
        return kind(
            model=model,
            optimizer=optimizer,
            dataset=TensorDataset(x, (x.sum(1) > 0).long()),
            batch_size=8,
            epochs=4,
            scheduler=plateau,
            scheduler_interval=interval,
        )

    job = potl.Job.create(build, seed=1, checkpoint_every=4, arithmetic="stock")
    Machine.less = less
    try:
        run = potl.record(build, path, job=job)
    finally:
        Machine.less = 0.0
    return judged(run, job, build, potl.Replay(samples=4), policy=potl.Policy(probability=0))


@pytest.mark.parametrize("interval", ["step", "epoch"])
def test_a_loss_that_rounding_turned_takes_the_rates_with_it(interval: str, tmp_path: Path) -> None:
    honest = verified(tmp_path, 1e-9, interval)
    assert honest.verdict == "accepted", honest.sentence


@pytest.mark.parametrize("interval", ["step", "epoch"])
def test_a_small_loss_turns_no_rate_within_the_tolerance_of_losses(
    interval: str, tmp_path: Path
) -> None:
    assert verified(tmp_path, 5e-6, interval).verdict != "accepted"


def test_a_false_loss_is_no_reason_for_another_rate(tmp_path: Path) -> None:
    false = verified(tmp_path, 1e-3)
    assert false.verdict != "accepted"
    assert "loss.recomputed" in {one.rule for one in false.findings if one.result != "pass"}


def test_a_skipped_step_tells_no_schedule_what_was_logged(tmp_path: Path) -> None:
    def build() -> potl.Task:
        model = nn.Linear(6, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x = torch.randn(32, 6, generator=torch.Generator().manual_seed(0))
        x[7] = torch.inf
        return Lying(
            model=model,
            optimizer=optimizer,
            dataset=TensorDataset(x, (x[:, 0] > 0).long()),
            batch_size=8,
            epochs=4,
            loss=F.cross_entropy,
            scaler=torch.amp.GradScaler("cpu", init_scale=1024.0),
            scheduler=torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=2),
        )

    job = potl.Job.create(build, seed=1, checkpoint_every=4, arithmetic="stock")

    def verdict(loss: float | None) -> str:
        Machine.overflown = loss
        try:
            run = potl.record(build, tmp_path / str(loss), job=job)
        finally:
            Machine.overflown = None
        report = judged(run, job, build, potl.Replay(samples=4), policy=potl.Policy(probability=0))
        return report.verdict

    assert verdict(None) == "accepted"
    assert verdict(-math.inf) != "accepted"


def test_a_step_of_the_users_own_tells_its_schedule_what_it_likes(tmp_path: Path) -> None:
    honest = verified(tmp_path, 1e-9, kind=Own)
    assert honest.verdict == "accepted", honest.sentence
