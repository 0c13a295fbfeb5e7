# SPDX-License-Identifier: Apache-2.0
"""A step of the user's own may report another loss later: recomputed losses are still its own."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from lawful import data, net, sgd, task
from torch import nn
from torch.nn.utils import prune
from torch.utils.checkpoint import checkpoint
from verifying import judged

import potl
from potl import Task


class Penalised(Task):
    """Adds a penalty to the loss that it reports, from step 4 on."""

    def step(self, batch: Any) -> torch.Tensor:
        self.optimizers[0].zero_grad()
        loss = self.compute_loss(batch)
        if int(self.model.get_buffer("1.num_batches_tracked")) > 3:
            loss = loss + 0.1 * sum(p.square().sum() for p in self.model.parameters())
        loss.backward()  # type: ignore[no-untyped-call]
        self.update(loss.detach())
        return loss.detach()


def build() -> Task:
    return task(net(), kind=Penalised)


@pytest.mark.parametrize("arithmetic", ["ord32", "log64", "stock"])
def test_losses_of_an_own_step_are_recomputed_by_it(arithmetic: str, tmp_path: Path) -> None:
    job = potl.Job.create(build, seed=7, checkpoint_every=3, arithmetic=arithmetic)
    run = potl.record(build, tmp_path / "run", job=job)
    report = judged(run, job, build, potl.PEV(fraction=1.0), potl.Replay(samples=3))
    assert report.verdict == "accepted", report.sentence
    assert any(one.check == "pev" and one.result == "pass" for one in report.findings)


class Remembered(nn.Module):
    """Divides by what it has seen, which a checkpointed part sees again in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("size", torch.ones(()))

    def _divided(self, x: torch.Tensor) -> torch.Tensor:
        self.get_buffer("size").mul_(0.999).add_(1e-3 * x.detach().abs().mean())
        return x / self.get_buffer("size")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = checkpoint(self._divided, x, use_reentrant=False)
        return out


class Added(Task):
    """Its update adds a little to what the step reports."""

    def update(self, loss: torch.Tensor) -> None:
        super().update(loss)
        loss.add_(1e-4)


class Capped(Task):
    """Its loss overflows, which it does not report."""

    def compute_loss(self, batch: Any, *, reduction: str = "mean") -> torch.Tensor:
        loss: torch.Tensor = super().compute_loss(batch, reduction=reduction)
        late = int(self.model.get_buffer("1.num_batches_tracked")) > 3
        return loss + torch.inf if late else loss

    def update(self, loss: torch.Tensor) -> None:
        super().update(loss)
        loss.clamp_(max=100)


def build_remembered() -> Task:
    model = nn.Sequential(net(), Remembered())
    return task(model, accumulate=3)


def build_added() -> Task:
    return task(net(), kind=Added)


def build_capped() -> Task:
    return task(net(), kind=Capped)


@pytest.mark.parametrize("arithmetic", ["ord32", "log64", "stock"])
@pytest.mark.parametrize("made_by", [build_remembered, build_added, build_capped])
def test_a_loss_is_what_the_whole_step_reports(
    made_by: Callable[[], Task], arithmetic: str, tmp_path: Path
) -> None:
    """Forward passes alone give another one, by less than `Job.create` would notice."""
    job = potl.Job.create(made_by, seed=7, checkpoint_every=3, arithmetic=arithmetic)
    run = potl.record(made_by, tmp_path / "run", job=job)
    report = judged(run, job, made_by, potl.PEV(fraction=1.0), potl.Replay(samples=3))
    assert report.verdict == "accepted", report.sentence
    assert [
        one.reason for one in report.findings if one.check == "pev" and one.result != "pass"
    ] == []


class AddedLittle(Task):
    """Its update adds less than PEV tolerates unless it is told otherwise."""

    def update(self, loss: torch.Tensor) -> None:
        super().update(loss)
        loss.add_(4e-6)


def build_added_little() -> Task:
    return task(net(), kind=AddedLittle)


@pytest.mark.parametrize("loss_floor", [0, 1e-6, 1e-5])
def test_the_whole_step_decides_what_the_clients_floor_does_not(
    loss_floor: float, tmp_path: Path
) -> None:
    job = potl.Job.create(build_added_little, seed=7, checkpoint_every=3, arithmetic="stock")
    run = potl.record(build_added_little, tmp_path / "run", job=job)
    pev = potl.PEV(fraction=1.0, loss_floor=loss_floor)
    report = potl.verify(
        run, job=job, commitment=run.commit(), task=build_added_little, checks=[pev], ledger=None
    )
    assert [one.result for one in report.findings if one.check == "pev"] == ["pass"]


class Adversarial(Task):
    """Two losses, neither of which is that of the batch before the step."""

    def step(self, batch: Any) -> torch.Tensor:
        for one in self.optimizers:
            one.zero_grad()
        first = (self.model(batch[0]) + torch.randn(len(batch[0]), 2)).square().mean()
        first.backward()  # type: ignore[no-untyped-call]
        self.optimizers[0].step()
        self.optimizers[0].zero_grad()
        second = F.cross_entropy(self.model(batch[0]), batch[1])
        second.backward()  # type: ignore[no-untyped-call]
        self.optimizers[0].step()
        return (first + second).detach()


def build_adversarial() -> Task:
    model = net()
    return Adversarial(model, sgd(model), data(), batch_size=8, epochs=3)


def test_a_step_of_several_losses_needs_no_compute_loss(tmp_path: Path) -> None:
    assert potl.check(build_adversarial) == []
    job = potl.Job.create(build_adversarial, seed=7, checkpoint_every=3)
    run = potl.record(build_adversarial, tmp_path / "run", job=job)

    def verdict(pev: potl.PEV) -> potl.Report:
        return judged(run, job, build_adversarial, pev, potl.Replay(samples=3))

    assert verdict(potl.PEV(fraction=1.0)).verdict == "accepted"
    # Who asks for a loss of each sample, which there is not, is told so and accuses nobody.
    found = [one for one in verdict(potl.PEV(mode="apex")).findings if one.check == "pev"]
    assert found and {one.result for one in found} == {"inconclusive"}
    assert all("the task has no loss" in one.reason for one in found)


class Pruned(Task):
    """Prunes its first layer before every second forward pass."""

    def step(self, batch: Any) -> torch.Tensor:
        module: Any = self.model
        if int(module.get_buffer("1.num_batches_tracked")) % 2 == 1:
            prune.l1_unstructured(module[0], "weight", amount=0.2)
        self.optimizers[0].zero_grad()
        loss = F.cross_entropy(self.model(batch[0]), batch[1])
        loss.backward()  # type: ignore[no-untyped-call]
        self.update(loss.detach())
        return loss.detach()


def build_pruned() -> Task:
    model = net()
    module: Any = model
    prune.identity(module[0], "weight")
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    return Pruned(model, optimizer, data(), batch_size=8, epochs=3)


@pytest.mark.parametrize("arithmetic", ["ord32", "log64", "stock"])
def test_a_step_prunes_by_weights_that_a_checkpoint_holds(arithmetic: str, tmp_path: Path) -> None:
    """torch computes a pruned weight in the forward pass, and keeps it beside the parameters."""
    job = potl.Job.create(build_pruned, seed=7, checkpoint_every=1, arithmetic=arithmetic)
    run = potl.record(build_pruned, tmp_path / "run", job=job)
    report = judged(run, job, build_pruned, potl.Replay(samples=job.core.segments))
    assert report.verdict == "accepted", report.sentence


RATE = 0.1


class LeavesOut(Task):
    """Every fourth batch has no finite loss, moves no weight, and is reported as `said`."""

    said: float

    def step(self, batch: Any) -> torch.Tensor:
        left_out = int(self.model.get_buffer("1.num_batches_tracked")) % 4 == 3
        loss = self.compute_loss(batch) * (float("nan") if left_out else 1.0)
        if left_out:
            return torch.tensor(self.said)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.update(loss.detach())
        return loss.detach()

    def compute_loss(self, batch: Any, reduction: str = "mean") -> torch.Tensor:
        return F.cross_entropy(self.model(batch[0]), batch[1], reduction=reduction)


@pytest.mark.parametrize("arithmetic", ["ord32", "stock"])
@pytest.mark.parametrize(("said", "verdict"), [(0.0, "accepted"), (math.nan, "inconclusive")])
def test_a_step_without_a_finite_loss_is_left_out_if_it_says_a_finite_one(
    said: float, verdict: str, arithmetic: str, tmp_path: Path
) -> None:
    def leaving_out() -> Task:
        model = net()
        task = LeavesOut(model=model, optimizer=sgd(model), dataset=data(), batch_size=8, epochs=3)
        task.said = said
        return task

    job = potl.Job.create(leaving_out, seed=7, checkpoint_every=3, arithmetic=arithmetic)
    run = potl.record(leaving_out, tmp_path / "run", job=job)
    report = potl.verify(run, job=job, commitment=run.commit(), task=leaving_out, ledger=None)
    assert report.verdict == verdict, report.sentence
    undecided = {
        one.rule
        for one in report.findings
        if one.result == "inconclusive" and one.check != "telemetry"
    }
    assert undecided == (set() if verdict == "accepted" else {"transcript.finite"})


class Anew(Task):
    """Forgets late what its optimizer keeps of the first layer, as trainings that restart do."""

    def step(self, batch: Any) -> torch.Tensor:
        loss = super().step(batch)
        if int(self.model.get_buffer("1.num_batches_tracked")) == 6:
            for parameter in self.model.get_submodule("0").parameters():
                self.optimizers[0].state[parameter] = {}
        return loss


class Zeroing(Task):
    """Makes zeros of gradients, so that an update moves what the step did not use, too."""

    def step(self, batch: Any) -> torch.Tensor:
        self.optimizers[0].zero_grad(set_to_none=False)
        loss = self.compute_loss(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        self.update(loss.detach())
        return loss.detach()


class Branching(nn.Module):
    """Uses its second branch from step 1 on, and not in steps 4, 5, 7, 8, ..."""

    def __init__(self) -> None:
        super().__init__()
        self.always, self.sometimes = nn.Linear(6, 2), nn.Linear(6, 2)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        calls = self.get_buffer("calls")
        calls += 1
        out: torch.Tensor = self.always(x)
        return out + self.sometimes(x) if calls < 4 or calls % 3 == 0 else out


def branching() -> Task:
    model = Branching()
    options = {"dataset": data(), "loss": F.cross_entropy, "batch_size": 8, "epochs": 3}
    return Zeroing(model=model, optimizer=torch.optim.Adam(model.parameters()), **options)


@pytest.mark.parametrize("arithmetic", ["ord32", "stock"])
def test_what_gradients_a_step_leaves_decides_nothing_in_the_next(
    arithmetic: str, tmp_path: Path
) -> None:
    job = potl.Job.create(branching, seed=7, checkpoint_every=3, arithmetic=arithmetic)
    run = potl.record(branching, tmp_path / "run", job=job)
    checks = [potl.Replay(samples=20)]
    report = potl.verify(
        run, job=job, commitment=run.commit(), task=branching, checks=checks, ledger=None
    )
    assert report.verdict == "accepted", report.sentence


@pytest.mark.parametrize("arithmetic", ["ord32", "stock"])
def test_a_step_may_reset_what_the_optimizer_keeps(arithmetic: str, tmp_path: Path) -> None:
    def anew() -> Task:
        model = net()
        options = {"dataset": data(), "loss": F.cross_entropy, "batch_size": 8, "epochs": 4}
        return Anew(model=model, optimizer=torch.optim.Adam(model.parameters()), **options)

    job = potl.Job.create(anew, seed=7, checkpoint_every=3, arithmetic=arithmetic)
    run = potl.record(anew, tmp_path / "run", job=job)
    report = potl.verify(run, job=job, commitment=run.commit(), task=anew, ledger=None)
    assert report.verdict == "accepted", report.sentence


class Faster(Task):
    """Trains with the rate that its optimizers were given."""

    def step(self, batch: Any) -> torch.Tensor:
        return super().step(batch)


def build_faster() -> Task:
    model = nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 3))
    groups = [{"params": model[0].parameters(), "lr": 0.5}, {"params": model[1].parameters()}]
    optimizer = torch.optim.SGD(groups, lr=RATE)
    return Faster(model, optimizer, data(), loss=F.cross_entropy, batch_size=8, epochs=1)


def test_another_rate_is_named_where_it_makes_another_initial_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = potl.Job.create(build_faster, seed=7, checkpoint_every=2)
    with monkeypatch.context() as patched:
        patched.setitem(globals(), "RATE", 0.25)
        bare = potl.Job(job.core)  # without the agreed state, which would bring its rates
        run = potl.record(build_faster, tmp_path / "run", job=bare, check_job=False)
    report = potl.verify(
        run, job=job, commitment=run.commit(), task=build_faster, checks=[], ledger=None
    )
    assert report.verdict == "rejected"
    assert report.sentence.endswith(
        "from another state than agreed, with the learning rate 0.25 in step 1, where the job's "
        "optimizers begin with 0.1."
    ), report.sentence
