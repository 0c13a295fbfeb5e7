# SPDX-License-Identifier: Apache-2.0
"""Honest states and rates of a machine that adds in another order: masks of infinities, places that
hold NaN until they are filled, what is counted, and rates that steps compute.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset
from transcript_helpers import rejected_by

import potl

NAN = float("nan")


class Machine:
    """Where a net is trained: the sums of the other one have other bits."""

    other = False


def data() -> TensorDataset:
    images = torch.randn(256, 20, generator=torch.Generator().manual_seed(0))
    return TensorDataset(images, (images.sum(1) > 0).long())


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(20, 64), nn.Linear(64, 2)

    def forward(self, x: Tensor) -> Tensor:
        hidden, weight = torch.relu(self.first(x)), self.last.weight
        if Machine.other:
            hidden, weight = hidden.flip(1), weight.flip(1)
        out = F.linear(hidden, weight, self.last.bias)
        if self.training:
            self.keep(x, out)
        return out

    def keep(self, x: Tensor, out: Tensor) -> None:
        """What a net keeps beside its weights."""


class Masked(Net):
    """Keeps which samples of its last batch it does not look at."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.zeros(32))

    def keep(self, x: Tensor, out: Tensor) -> None:
        self.mask = torch.where(x[:, 0] > 0, 0.0, float("-inf"))


class Counting(Net):
    """Counts outputs, of which some lie next to the limit."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("hits", torch.zeros((), dtype=torch.int64))

    def keep(self, x: Tensor, out: Tensor) -> None:
        self.hits += (torch.frac(out * 1e6) > 0.5).sum()


class Turning(Counting):
    """Hides outputs, of which some lie next to the limit."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("hidden", torch.zeros(32, 2))

    def keep(self, x: Tensor, out: Tensor) -> None:
        self.hidden = torch.where(torch.frac(out * 1e6) > 0.5, 0.0, float("-inf"))


class Least(Net):
    """Keeps the least outputs so far."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("least", torch.full((2,), float("inf")))

    def keep(self, x: Tensor, out: Tensor) -> None:
        self.least = torch.minimum(self.least, out.detach().amin(0))


class Inventing(Counting):
    """Counts twice what the client counts."""

    def keep(self, x: Tensor, out: Tensor) -> None:
        self.hits += (2 if Machine.other else 1) * (out > 0).sum()


class Marking(Counting):
    """Leaves the count, which the client does not move, at another number."""

    def keep(self, x: Tensor, out: Tensor) -> None:
        self.hits += int(Machine.other)


class Assigning(Net):
    """Gives each output of a batch a code, and the other machine another one."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("codes", torch.zeros(64, dtype=torch.int64))

    def keep(self, x: Tensor, out: Tensor) -> None:
        self.codes = (100 * out.detach().abs()).long().flatten() + 7 * int(Machine.other)


class Jumping(Assigning):
    """Gives far codes, some of which a rounding error turns."""

    shift = 0

    def keep(self, x: Tensor, out: Tensor) -> None:
        codes = 900 + (100 * x[:, :2]).long().flatten()
        tie = (torch.frac(1e6 * out.detach().abs()) > 0.5).flatten()
        tie[4:] = False
        self.codes = codes - 60 * tie + self.shift * int(Machine.other)


class Shifting(Jumping):
    """Has all of them off by one on the other machine."""

    shift = 1


class Patience:
    """How long there was nothing better, and what was best."""

    def __init__(self) -> None:
        self.seen = self.best_step = self.waited = 0
        self.stopped, self.best = False, torch.zeros(2)

    def state_dict(self) -> dict[str, object]:
        return dict(self.__dict__)

    def load_state_dict(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)


class Waiting(potl.Task):
    """On the other machine one step is better than the best by a rounding error."""

    def step(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        loss = super().step(batch)
        kept = self.state["patience"]
        kept.seen += 1
        if kept.seen == 1 or (kept.seen == 7 and Machine.other):
            kept.best_step, kept.waited = kept.seen, 0
            kept.best = self.model.last.bias.detach().clone()
        else:
            kept.waited += 1
        kept.stopped = kept.waited > 4
        return loss


class ByLoss(potl.Task):
    """Takes steps as long as loss and gradient say."""

    def step(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        (optimizer,) = self.optimizers
        optimizer.zero_grad()
        loss = self.compute_loss(batch)
        loss.backward()
        squares = sum(float(p.grad.square().sum()) for p in self.model.parameters())
        optimizer.param_groups[0]["lr"] = 0.05 * float(loss.detach()) / (squares + 1e-3)
        optimizer.step()
        return loss.detach()


class Memory:
    """A loss of each sample, and a best one, that are not known at first."""

    def __init__(self) -> None:
        self.losses, self.best = torch.full((256,), NAN), NAN

    def state_dict(self) -> dict[str, object]:
        return {"losses": self.losses, "best": self.best}

    def load_state_dict(self, state: dict[str, object]) -> None:
        self.losses, self.best = state["losses"], state["best"]


class Best:
    """A best loss that nobody has seen yet."""

    def __init__(self) -> None:
        self.best = sys.float_info.max

    def state_dict(self) -> dict[str, float]:
        return {"best": self.best}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.best = state["best"]


def task_of(
    net: type[Net], kind: type[potl.Task] = potl.Task, *, steps: int = 8, **more: object
) -> Callable[[], potl.Task]:
    def build() -> potl.Task:
        model = net()
        return kind(
            model=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            dataset=data(),
            loss=F.cross_entropy,
            batch_size=32,
            max_steps=steps,
            **{name: make() for name, make in more.items()},
        )

    return build


def verified(build: Callable[[], potl.Task], path: Path, *, arithmetic: str) -> potl.Report:
    job = potl.Job.create(build, seed=1, checkpoint_every=2, arithmetic=arithmetic)
    Machine.other = arithmetic == "stock"
    try:
        run = potl.record(build, path, job=job)
    finally:
        Machine.other = False
    report = potl.verify(
        run,
        job=job,
        commitment=run.commit(),
        task=build,
        checks=[potl.Replay(samples=3)],
        policy=potl.Policy(probability=0),
        nonce=bytes(31) + b"\1",
        ledger=None,
    )
    if arithmetic == "stock":
        assert not all(replay["equal"] for replay in report.document["replays"])
    return report


@pytest.mark.parametrize(
    "build",
    [
        task_of(Masked),
        task_of(Least),
        task_of(Net, state=lambda: {"memory": Memory()}),
        task_of(Net, state=lambda: {"best": Best()}),
    ],
    ids=["mask", "least", "memory", "vast"],
)
def test_what_is_not_finite_on_both_machines_is_no_difference(
    build: Callable[[], potl.Task], tmp_path: Path
) -> None:
    report = verified(build, tmp_path, arithmetic="stock")
    assert report.verdict == "accepted", report.sentence


@pytest.mark.parametrize("net", [Counting, Turning])
def test_what_turns_with_the_last_bit_of_an_output_accuses_nobody(
    net: type[Net], tmp_path: Path
) -> None:
    report = verified(task_of(net), tmp_path, arithmetic="stock")
    assert report.verdict != "rejected", report.sentence


def test_a_rate_that_each_step_computes_is_off_by_rounding_alone(tmp_path: Path) -> None:
    report = verified(task_of(Net, ByLoss), tmp_path, arithmetic="stock")
    assert report.verdict == "accepted", report.sentence


@pytest.mark.parametrize("net", [Inventing, Marking])
def test_a_false_count_is_not_accepted(net: type[Net], tmp_path: Path) -> None:
    # Patience that begins anew looks like it.
    report = verified(task_of(net), tmp_path, arithmetic="stock")
    assert report.verdict == "inconclusive", report.sentence
    assert {one.rule for one in report.findings if one.result == "inconclusive"} == {
        "replay.buffers"
    }


def test_false_codes_are_rejected(tmp_path: Path) -> None:
    report = verified(task_of(Assigning), tmp_path, arithmetic="stock")
    assert report.verdict == "rejected", report.sentence
    assert rejected_by(report.findings) == {"replay.buffers"}


@pytest.mark.parametrize("false", [False, True])
def test_codes_off_by_one_do_not_hide_behind_one_that_jumps(*, false: bool, tmp_path: Path) -> None:
    report = verified(task_of(Shifting if false else Jumping), tmp_path, arithmetic="stock")
    # Whether that accuses depends on how many codes this machine's roundings turn.
    assert (report.verdict == "accepted") is not false, report.sentence
    found = {one.rule for one in report.findings if one.result in ("reject", "inconclusive")}
    assert found - {"telemetry.consistent"} == ({"replay.buffers"} if false else set())


def test_patience_that_begins_anew_and_what_it_keeps_accuse_nobody(tmp_path: Path) -> None:
    build = task_of(Net, Waiting, state=lambda: {"patience": Patience()})
    report = verified(build, tmp_path, arithmetic="stock")
    assert report.verdict == "inconclusive", report.sentence
    assert {one.rule for one in report.findings if one.result == "inconclusive"} == {
        "replay.optimizer"
    }


def test_a_mask_that_opens_and_closes_stays_within_reach(tmp_path: Path) -> None:
    report = verified(task_of(Masked, steps=40), tmp_path, arithmetic="auto")
    assert report.verdict == "accepted", report.sentence
