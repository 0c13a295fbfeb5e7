# SPDX-License-Identifier: Apache-2.0
"""Lists and containers in attributes: which of them are state, and which a library's module makes
of sizes alone."""

from __future__ import annotations

import math
import queue
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tasks
import torch
from torch import nn

import potl
from potl._job._holders import spaces_of


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


class Since(potl.Task):
    """The same by the number of the step that had the best loss."""

    best, best_step, done = float("inf"), 0, 0

    def step(self, batch: object) -> torch.Tensor:
        loss = super().step(batch)
        self.done += 1
        if loss.item() < self.best:
            self.best, self.best_step = loss.item(), self.done
        if self.is_late(self.done - self.best_step):
            self.optimizer.param_groups[0]["lr"] /= 2
        return loss

    def is_late(self, waited: int) -> bool:
        return waited > 3


class SinceExactly(Since):
    def is_late(self, waited: int) -> bool:
        return waited == 4


class SinceDeclared(Since):
    """Has its numbers in another order."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.best_step, self.best, self.done = 0, float("inf"), 0


class Noting(Since):
    """Goes by none of them."""

    def is_late(self, waited: int) -> bool:
        self.waited = waited
        return False


class Meter:
    def __init__(self) -> None:
        self.count, self.total = 0, 0.0
        self.recent: deque[float] = deque(maxlen=8)

    def add(self, loss: float) -> None:
        self.count += 1
        self.total += loss
        self.recent.append(loss)


class Metered(potl.Task):
    """Decays the weights at some time, by what it keeps beside its attributes."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.meter, self.counts = Meter(), {"step": 0}
        self.seen, self.best = np.int64(0), np.float32(np.inf)
        self.memo: dict[float, float] = {}

    def step(self, batch: Any) -> torch.Tensor:
        key = batch[0].sum().item()
        batch = [self.memo.setdefault(key, 1.0) * batch[0], batch[1]]
        loss = super().step(batch)
        if self.is_late(loss.item()):
            self.optimizer.param_groups[0]["weight_decay"] = 0.1
        self.meter.add(loss.item())
        self.counts["step"] += 1
        self.seen = self.seen + np.int64(1)
        self.best = min(self.best, np.float32(loss.item()))
        return loss

    def is_late(self, loss: float) -> bool:
        return False


class ByHelper(Metered):
    def is_late(self, loss: float) -> bool:
        return self.meter.count > 20


class ByEntry(Metered):
    def is_late(self, loss: float) -> bool:
        return self.counts["step"] > 20


class ByScalar(Metered):
    def is_late(self, loss: float) -> bool:
        return bool(self.seen > 20)


class ByBest(Metered):
    def is_late(self, loss: float) -> bool:
        return loss > 1.5 * float(self.best)


class ByRecent(Metered):
    def is_late(self, loss: float) -> bool:
        return len(self.meter.recent) == 8 and loss > 1.5 * sum(self.meter.recent) / 8


class Logging(potl.Task):
    """Notes its losses in ways that suit numbers of some kind and lists of one length."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.mean, self.log = np.float32(0), {"loss": list[float](), "name": list[str]()}

    def step(self, batch: object) -> torch.Tensor:
        loss = super().step(batch)
        self.log["loss"].append(self.mean.item())
        self.mean = np.float32(0.9) * self.mean + np.float32(0.1 * loss.item())
        self.log["name"].append("training")
        list(zip(self.log["loss"], self.log["name"], strict=True))
        return loss


class Called(Net):
    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.net(x * self.factor(x))  # type: ignore[no-any-return]

    def factor(self, x: torch.Tensor) -> float:
        raise NotImplementedError


class Curve(Called):
    """Logs into an array that is as long as the training."""

    def factor(self, x: torch.Tensor) -> float:
        self.curve = getattr(self, "curve", np.zeros(200))
        self.curve[self.calls] = len(x)
        return 1.0


class Spread(Called):
    """Logs how far apart some numbers are, by sums that are large together; knows them by two."""

    sums = squares = 0.0
    doubled = 0

    def factor(self, x: torch.Tensor) -> float:
        self.doubled += 2
        assert self.doubled == 2 * self.calls
        self.sums += x.mean().item()
        self.squares += x.square().mean().item()
        math.sqrt(self.squares / self.calls - (self.sums / self.calls) ** 2)
        return 1.0


class Phases(Called):
    """Goes by what it has for as many steps as it trains."""

    def factor(self, x: torch.Tensor) -> float:
        return (1.0, 0.5)[(self.calls - 1) // 100]


class Rounds(Curve):
    """Acts now and then, beside a log."""

    def factor(self, x: torch.Tensor) -> float:
        return super().factor(x) / (2 if self.calls % 100 == 0 else 1)


class Bounded(Called):
    """Fails when it has been called too often."""

    def factor(self, x: torch.Tensor) -> float:
        return ([1.0] * 100)[self.calls]


class Unloaded:
    """As what libraries put in the place of what they load at its first use."""

    __slots__ = ()

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(f"{name} is not there yet")


class Unbound:
    """As werkzeug's LocalProxy outside of a request."""

    @property  # type: ignore[override]
    def __class__(self) -> type:
        raise RuntimeError("working outside of a request")


class StandIns(potl.Task):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.later, self.elsewhere = Unloaded(), Unbound()


class Queued(potl.Task):
    """Hands its losses to a thread."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.sent = queue.Queue[float]()

    def step(self, batch: object) -> torch.Tensor:
        loss = super().step(batch)
        self.sent.put(loss.item())
        return loss


@pytest.mark.parametrize("model", [Gridded, Labelled])
def test_what_a_module_makes_of_sizes_is_no_state(model: Callable[[], nn.Module]) -> None:
    assert potl.check(lambda: tasks.task(model())) == []


def test_a_list_that_grows_by_a_count_is_state() -> None:
    [problem] = potl.check(lambda: tasks.task(NowAndThen()))
    assert "a list that grows" in problem.what
    assert problem.where == "NowAndThen.seen"


def losing(kind: type[potl.Task]) -> Callable[[], potl.Task]:
    def build() -> potl.Task:
        model = tasks.mlp()
        return kind(
            model=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            dataset=tasks.plain().dataset,
            loss=nn.functional.cross_entropy,
            batch_size=12,
            epochs=3,
        )

    return build


@pytest.mark.parametrize("seed", range(6))  # of some the second loss is below the first one
def test_a_count_that_only_another_number_moves_is_state(seed: int) -> None:
    [problem] = potl.check(losing(Patient), seed=seed)
    assert "a number that moves" in problem.what
    assert "Patient.waited" in problem.where


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", [Since, SinceExactly, SinceDeclared])
def test_two_counts_by_whose_difference_a_step_goes_are_state(kind: type[Since], seed: int) -> None:
    [problem] = potl.check(losing(kind), seed=seed)
    assert "a number that" in problem.what and f"{kind.__name__}.best_step" in problem.where
    assert potl.check(losing(Noting), seed=seed) == []


@pytest.mark.parametrize(
    ("kind", "where"),
    [
        (ByHelper, "ByHelper.meter.count"),
        (ByEntry, "ByEntry.counts.step"),
        (ByScalar, "ByScalar.seen"),
        (ByBest, "ByBest.best"),
        (ByRecent, "ByRecent.meter.recent"),
    ],
)
def test_what_an_object_or_a_dict_in_an_attribute_counts_is_state(
    kind: type[Metered], where: str
) -> None:
    [problem] = potl.check(losing(kind))
    assert "during training changes what a step does" in problem.what
    assert where in problem.where.split(", ")


def test_a_meter_that_nothing_reads_and_a_memo_are_no_state() -> None:
    assert potl.check(losing(Metered)) == []


@pytest.mark.parametrize("kind", [Logging, StandIns])
def test_a_log_and_what_stands_for_another_object_are_no_state(kind: type[potl.Task]) -> None:
    assert potl.check(losing(kind)) == []


def test_a_log_that_fails_of_numbers_of_no_training_is_no_state() -> None:
    assert potl.check(lambda: tasks.task(Spread(), epochs=45)) == []


@pytest.mark.parametrize("kind", [Phases, Rounds])
def test_a_count_that_fails_far_away_is_tried_at_the_end_of_the_training(
    kind: type[Called],
) -> None:
    [problem] = potl.check(lambda: tasks.task(kind(), epochs=45))
    assert "a number that counts up during training changes" in problem.what
    assert f"{kind.__name__}.calls" in problem.where


@pytest.mark.parametrize("kind", [Bounded, Curve])
def test_a_count_that_fails_where_replays_come_to_is_refused(kind: type[Called]) -> None:
    [problem] = potl.check(lambda: tasks.task(kind(), epochs=45))
    assert "makes a step fail" in problem.what and "Prover.steps()" in problem.remedy


def test_a_queue_that_a_thread_reads_is_left_alone() -> None:
    made: list[Any] = []

    def build() -> potl.Task:
        made.append(losing(Queued)())
        return made[-1]  # type: ignore[no-any-return]

    assert potl.check(build) == []
    for task in made:
        assert task.sent.unfinished_tasks == task.sent.qsize()


def test_of_a_large_index_only_a_part_is_looked_at() -> None:
    task: Any = tasks.plain()
    task.index = {place: {other: {} for other in range(300)} for place in range(300)}
    task.index[7][8]["count"] = task.near = {"count": 1}
    found = spaces_of(task).values()
    assert any(space.name.endswith(".near") for space in found)
    assert sum(len(space.items()) for space in found) < 40_000
