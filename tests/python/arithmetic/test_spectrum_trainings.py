# SPDX-License-Identifier: Apache-2.0
"""Trainings with eigenvalues and singular values are exact, and cheats in them are found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from zoo import raw_digits

pytest.importorskip("potl._torch", reason="potl was built without torch")

import potl

PIXELS, LABELS = (one[:96] for one in raw_digits())
DIGITS = torch.utils.data.TensorDataset(PIXELS.flatten(1) / 16, LABELS)


class Shampoo(torch.optim.Optimizer):
    """Each side of a gradient times the inverse fourth root of the sum of its squares."""

    def __init__(self, parameters: Any, lr: float = 0.1, every: int = 2) -> None:
        super().__init__(parameters, {"lr": lr, "every": every})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self.update(group, weight, weight.grad.reshape(len(weight), -1))

    def update(self, group: dict[str, Any], weight: Tensor, gradient: Tensor) -> None:
        state = self.state[weight]
        if not state:
            state["step"] = 0
            for name, size in zip(("left", "right"), gradient.shape, strict=True):
                state[name] = 1e-3 * torch.eye(size)
                state[f"{name}_root"] = torch.eye(size)
        for name, side in (("left", gradient), ("right", gradient.mT)):
            state[name].addmm_(side, side.mT)
            if state["step"] % group["every"] == 0:
                values, vectors = torch.linalg.eigh(state[name])
                state[f"{name}_root"] = (vectors * values.clamp(min=1e-6) ** -0.25) @ vectors.mT
        state["step"] += 1
        direction = state["left_root"] @ gradient @ state["right_root"]
        weight.sub_(group["lr"] * direction.view_as(weight))


class Whitened(nn.Module):
    """Features without correlations (ZCA), by their singular values, whose gradients it needs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(64, 6), nn.Linear(6, 10)

    def forward(self, x: Tensor) -> Tensor:
        features = self.first(x)
        features = features - features.mean(0)
        _, values, directions = torch.linalg.svd(features, full_matrices=False)
        white = (directions.mT / (values + 0.1)) @ directions
        out: Tensor = self.last(F.relu(features @ white))
        return out


def nuclear_loss(y: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(y, labels) + 1e-3 * torch.linalg.matrix_norm(y, "nuc")


class Trained(potl.Task):
    """What a cheat does to the weights behind its third step."""

    cheat: Callable[[Tensor], None] | None = None
    taken = 0

    def step(self, batch: Any) -> Any:
        loss = super().step(batch)
        Trained.taken += 1
        if Trained.cheat is not None and Trained.taken == 3:
            with torch.no_grad():
                Trained.cheat(next(iter(self.model.parameters())))
        return loss


def by_shampoo() -> potl.Task:
    net = nn.Sequential(nn.Linear(64, 12), nn.ReLU(), nn.Linear(12, 10))
    return task(net, Shampoo(net.parameters()), F.cross_entropy)


def whitened() -> potl.Task:
    net = Whitened()
    return task(net, torch.optim.AdamW(net.parameters(), lr=0.01), nuclear_loss)


def task(net: nn.Module, optimizer: torch.optim.Optimizer, loss: Any) -> potl.Task:
    return Trained(
        model=net, optimizer=optimizer, dataset=DIGITS, loss=loss, batch_size=24, epochs=2
    )


@pytest.fixture(autouse=True)
def threads_stay() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def verdict(build: Any, folder: Path, cheat: Any = None) -> str:
    """Of a run that is recorded with one thread and verified with two."""
    torch.set_num_threads(1)
    job = potl.Job.create(build, seed=5, checkpoint_every=4, arithmetic="ord32")
    Trained.taken, Trained.cheat = 0, cheat
    try:
        run = potl.record(build, folder / "run", job=job)
    finally:
        Trained.cheat = None
    torch.set_num_threads(2)
    report = potl.verify(
        run,
        job=job,
        commitment=run.commit(),
        task=build,
        checks=[potl.Replay(samples=2)],
        ledger=None,
    )
    return str(report.verdict)


def one_unit_more(weight: Tensor) -> None:
    part = weight.view(-1)[5:6]
    part.copy_(torch.nextafter(part, part + 1))


@pytest.mark.parametrize("build", [by_shampoo, whitened])
def test_an_honest_run_is_accepted(build: Any, tmp_path: Path) -> None:
    assert verdict(build, tmp_path) == "accepted"


@pytest.mark.parametrize("build", [by_shampoo, whitened])
def test_one_unit_in_the_last_place_is_rejected(build: Any, tmp_path: Path) -> None:
    assert verdict(build, tmp_path, one_unit_more) == "rejected"


def test_shampoo_learns_digits() -> None:
    torch.manual_seed(1)
    trained = by_shampoo()
    losses = []
    for _ in range(30):
        with potl.deterministic():
            trained.optimizer.zero_grad()
            loss = F.cross_entropy(trained.model(DIGITS.tensors[0]), LABELS)
            loss.backward()
            trained.optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2
