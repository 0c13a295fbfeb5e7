# SPDX-License-Identifier: Apache-2.0
"""State that acts after some steps is found before anything is agreed, wherever a task keeps it."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tasks
import torch
import torch.nn.functional as F
from torch import nn

import potl

# The step from which on it acts: two steps show nothing.
_LATE = 9


class Weighted(potl.Task):
    """Weighs each step."""

    def step(self, batch: Any) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = self.compute_loss(batch)
        (self.weight(float(loss.detach())) * loss).backward()
        self.update(loss.detach())
        return loss.detach()

    def weight(self, loss: float) -> float:
        raise NotImplementedError


class InArray(Weighted):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.seen = np.zeros(2)

    def weight(self, loss: float) -> float:
        self.seen += 1
        return 1.0 if self.seen[0] < _LATE else 0.5


class InClosure(Weighted):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        losses: list[float] = []

        def weigh(loss: float) -> float:
            losses.append(loss)
            return 1.0 if len(losses) < _LATE else losses[-4] / 4

        self.weigh = weigh

    def weight(self, loss: float) -> float:
        return self.weigh(loss)


class InIterator(Weighted):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.weights = itertools.cycle([1.0] * 4 + [0.5])

    def weight(self, loss: float) -> float:
        return next(self.weights)


class InGenerator(Weighted):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.weights = self.fall()

    def fall(self) -> Iterator[float]:
        yield from [1.0] * _LATE
        for number in itertools.count(1):
            yield 1 / number

    def weight(self, loss: float) -> float:
        return next(self.weights)


class InRandom(Weighted):
    """Draws in each step; few of them use it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.random = random.Random(1)

    def weight(self, loss: float) -> float:
        return 0.5 if self.random.random() < 0.2 else 1.0


class Best:
    __slots__ = ("loss",)

    def __init__(self) -> None:
        self.loss = float("inf")


class InSlots(Weighted):
    """Of the lowest loss, which a task that goes on from an early step meets as well."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.best = Best()

    def weight(self, loss: float) -> float:
        self.best.loss = min(self.best.loss, loss)
        return 0.5 if loss > self.best.loss else 1.0


class Log:
    def __init__(self) -> None:
        self.lock, self.rows = threading.Lock(), list[float]()


class InLog(Weighted):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.log = Log()

    def weight(self, loss: float) -> float:
        with self.log.lock:
            self.log.rows.append(loss)
        return 1.0 if len(self.log.rows) < _LATE else 0.5


class InHook(Weighted):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        calls = itertools.count(1)
        self.model[0].register_forward_hook(
            lambda module, given, out: out * (1.0 if next(calls) < _LATE else 0.5)
        )

    def weight(self, loss: float) -> float:
        return 1.0


class Registry:
    steps = 0


class InClass(Weighted):
    def weight(self, loss: float) -> float:
        Registry.steps += 1
        return 0.5 if Registry.steps % 5 == 4 else 1.0


_average = [0.0]


class InGlobal(Weighted):
    def weight(self, loss: float) -> float:
        _average[0] = 0.9 * _average[0] + 0.1 * loss
        return _average[0]


class OnceInGlobal(Weighted):
    """Goes over to something else for good."""

    def weight(self, loss: float) -> float:
        _steps.append(1)
        return 1.0 if len(_steps) < _LATE else 0.5


_steps: list[int] = []


class InFile(Weighted):
    path = Path()

    def weight(self, loss: float) -> float:
        before = self.path.read_text().split() if self.path.exists() else []
        self.path.write_text(" ".join([*before, str(loss)]))
        return 1.0 if len(before) < _LATE else float(before[-_LATE])


def of(kind: type[potl.Task], **options: Any) -> Callable[[], potl.Task]:
    def build() -> potl.Task:
        model = tasks.mlp()
        return kind(
            model=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
            dataset=tasks.plain().dataset,
            loss=F.cross_entropy,
            batch_size=4,
            epochs=3,
            **options,
        )

    return build


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "kind",
    [InArray, InClosure, InIterator, InGenerator, InRandom, InSlots, InLog, InHook],
)
def test_what_a_tasks_own_objects_keep_shows(kind: type[Weighted], seed: int) -> None:
    [problem] = potl.check(of(kind), seed=seed)
    assert "a step from a restored state differs" in problem.what
    assert "make a buffer" in problem.remedy or "make it a buffer" in problem.remedy


@pytest.mark.parametrize("kind", [InClass, InGlobal, OnceInGlobal, InFile])
def test_what_all_tasks_share_shows(kind: type[Weighted], tmp_path: Path) -> None:
    _steps.clear()
    InFile.path = tmp_path / "losses"
    [problem] = potl.check(of(kind))
    assert "two trainings from the same seed differ" in problem.what
    assert "a global variable" in problem.remedy


class Frozen(nn.Module):
    """Keeps the features of each batch that it met."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.kept = nn.Linear(8, 8).requires_grad_(False), dict[float, torch.Tensor]()
        self.net = tasks.mlp()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        key = float(x.sum())
        if key not in self.kept:
            self.kept[key] = self.layer(x)
        return self.net(self.kept[key])  # type: ignore[no-any-return]


def test_memories_that_change_nothing_and_diverging_losses_are_not_refused() -> None:
    assert potl.check(lambda: tasks.task(Frozen())) == []
    diverging = lambda: tasks.task(  # noqa: E731
        model := tasks.mlp(), torch.optim.SGD(model.parameters(), lr=1e9)
    )
    assert all("restored" not in problem.what for problem in potl.check(diverging))


class Logged(Weighted):
    """Has room for each step of a training of 36."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.losses, self.places = np.zeros(36), iter(range(36))

    def weight(self, loss: float) -> float:
        self.losses[next(self.places)] = loss
        return 1.0


def test_a_log_that_is_as_long_as_the_training_adds_to_no_gradients() -> None:
    assert potl.check(of(Logged)) == []


def test_such_a_log_that_all_tasks_share_is_told_as_one() -> None:
    losses = iter(range(36))

    class Shared(Weighted):
        def weight(self, loss: float) -> float:
            next(losses)
            return 1.0

    def build() -> potl.Task:
        nonlocal losses
        losses = iter(range(36))
        return of(Shared)()

    [problem] = potl.check(build)
    assert "as many as the training has" in problem.what and "Prover.steps()" in problem.remedy


def test_a_step_that_fails_later_is_told_with_its_number() -> None:
    class Ending(Weighted):
        def weight(self, loss: float) -> float:
            Registry.steps += 1
            if Registry.steps >= 5:
                raise LookupError("no more prompts")
            return 1.0

    Registry.steps = 0
    with pytest.raises(LookupError, match="no more prompts"):
        potl.check(of(Ending))
