# SPDX-License-Identifier: Apache-2.0
"""Lists and containers in attributes: which of them are state, and which a library's module makes
of sizes alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tasks
import torch
from torch import nn

import potl


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = tasks.mlp()


class Gridded(Net):
    """Makes coordinates for inputs of a size, and needs each of them."""

    grid: list[torch.Tensor] | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.grid is None:
            self.grid = [torch.arange(8.0), torch.ones(8)]
        first, second = self.grid
        return self.net(x + first * second)  # type: ignore[no-any-return]


class NowAndThen(Net):
    """Notes every fourth batch, from the first one on, and mixes it in once there are some."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.seen = 0, list[torch.Tensor]()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.calls % 4 == 0:
            self.seen.append(x.detach().clone())
        self.calls += 1
        return self.net(x + (len(self.seen) > 3) * self.seen[0])  # type: ignore[no-any-return]


class Sizeless(tuple[int, int]):
    """As e3nn's Irrep: a tuple with a length that nobody may ask for."""

    __slots__ = ()

    def __len__(self) -> int:
        raise NotImplementedError


class Labelled(Net):
    def __init__(self) -> None:
        super().__init__()
        self.labels = [Sizeless((1, -1))]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)  # type: ignore[no-any-return]


class Patient(potl.Task):
    """Halves the learning rate after four steps without a new best loss."""

    best, waited = float("inf"), 0

    def step(self, batch: object) -> torch.Tensor:
        loss = super().step(batch)
        self.waited = 0 if loss.item() < self.best else self.waited + 1
        self.best = min(self.best, loss.item())
        if self.waited > 3:
            self.optimizer.param_groups[0]["lr"] /= 2
        return loss


@pytest.mark.parametrize("model", [Gridded, Labelled])
def test_what_a_module_makes_of_sizes_is_no_state(model: Callable[[], nn.Module]) -> None:
    assert potl.check(lambda: tasks.task(model())) == []


def test_a_list_that_grows_by_a_count_is_state() -> None:
    [problem] = potl.check(lambda: tasks.task(NowAndThen()))
    assert "a list that grows" in problem.what
    assert problem.where == "NowAndThen.seen"


@pytest.mark.parametrize("seed", range(6))  # of some the second loss is below the first one
def test_a_count_that_only_another_number_moves_is_state(seed: int) -> None:
    def build() -> potl.Task:
        model = tasks.mlp()
        return Patient(
            model=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            dataset=tasks.plain().dataset,
            loss=nn.functional.cross_entropy,
            batch_size=12,
            epochs=3,
        )

    [problem] = potl.check(build, seed=seed)
    assert "a number that moves" in problem.what
    assert "Patient.waited" in problem.where
