# SPDX-License-Identifier: Apache-2.0
"""Trainings with eigenvalues and singular values are exact, and cheats in them are found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from cheated import Cheated, verdict
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


def by_shampoo() -> Cheated:
    net = nn.Sequential(nn.Linear(64, 12), nn.ReLU(), nn.Linear(12, 10))
    return task(net, Shampoo(net.parameters()), F.cross_entropy)


def whitened() -> Cheated:
    net = Whitened()
    return task(net, torch.optim.AdamW(net.parameters(), lr=0.01), nuclear_loss)


def task(net: nn.Module, optimizer: torch.optim.Optimizer, loss: Any) -> Cheated:
    return Cheated(
        model=net, optimizer=optimizer, dataset=DIGITS, loss=loss, batch_size=24, epochs=2
    )


def one_unit_more(weights: list[Tensor], _before: list[Tensor]) -> None:
    part = weights[0].view(-1)[5:6]
    part.copy_(torch.nextafter(part, part + 1))


@pytest.mark.parametrize("build", [by_shampoo, whitened])
def test_an_honest_run_is_accepted(build: Any, tmp_path: Path) -> None:
    assert verdict(build, tmp_path, every=4) == "accepted"


@pytest.mark.parametrize("build", [by_shampoo, whitened])
def test_one_unit_in_the_last_place_is_rejected(build: Any, tmp_path: Path) -> None:
    assert verdict(build, tmp_path, cheat=one_unit_more, every=4) == "rejected"


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
