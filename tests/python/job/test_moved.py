# SPDX-License-Identifier: Apache-2.0
"""Who is refused for hidden state is told its name, or what else makes a restored step differ."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import tasks
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import TensorDataset

import potl


class Own(potl.Task):
    """A step that something else than a checkpoint's contents decides."""

    def step(self, batch: Any) -> torch.Tensor:
        weight = self.weight()
        self.optimizer.zero_grad()
        loss = self.compute_loss(batch)
        (weight * loss).backward()
        self.optimizer.step()
        return loss.detach()

    def weight(self) -> Any:
        raise NotImplementedError


class ByCount(Own):
    done = 0

    def weight(self) -> float:
        self.done += 1
        return 1.0 / self.done


class At(Own):
    """Does something else in one step far away."""

    done = 0

    def weight(self) -> float:
        self.done += 1
        return 1.0 if self.is_ordinary() else 2.0

    def is_ordinary(self) -> bool:
        return self.done != 500


class Every(At):
    def is_ordinary(self) -> bool:
        return self.done % 500 != 0


class Falsy(At):
    def is_ordinary(self) -> bool:
        return bool(self.done % 500)


class After(At):
    def is_ordinary(self) -> bool:
        if self.done == 1:
            return True
        return self.done != 500


class Guarded(At):
    def is_ordinary(self) -> bool:
        assert self.done != 0, "counted before"
        return True


class Among(At):
    def is_ordinary(self) -> bool:
        return self.done not in (300, 600)


class InFirst(At):
    """Makes in the first step what the others use; its count decides nothing else."""

    def weight(self) -> float:
        if self.done == 0:
            self.scale = 1.0
        self.done += 1
        noise = self.done + torch.zeros(2)
        return self.scale if noise.isfinite().all() else 0.0


class ByReplayBuffer(Own):
    def weight(self) -> float:
        if not hasattr(self, "memory"):
            self.memory: list[float] = []
        self.memory.append(0.5)
        return sum(self.memory)


class ByTensor(Own):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.temperature, self.unused = torch.ones(2), torch.ones(2)

    def weight(self) -> torch.Tensor:
        self.temperature[1] *= 0.5
        return self.temperature[1]


class ByTeacher(Own):
    """An average of the weights, made in build and kept beside the model."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.teacher = copy.deepcopy(self.model)

    def weight(self) -> torch.Tensor:
        with torch.no_grad():
            for kept, now in zip(self.teacher.parameters(), self.model.parameters(), strict=True):
                kept.lerp_(now, 0.5)
            return 1 + next(self.teacher.parameters()).square().mean()


class Noting(ByTeacher):
    """The same, which nothing reads."""

    def weight(self) -> float:
        super().weight()
        self.features = torch.ones(3)
        return 1.0


class Shadow:
    """Averages as scripts keep them, beside what they are averages of."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.kept = {name: p.detach().clone() for name, p in model.named_parameters()}

    def update(self) -> None:
        for name, parameter in self.model.named_parameters():
            self.kept[name] = 0.5 * self.kept[name] + 0.5 * parameter.detach()


class ByShadow(Own):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.shadow = Shadow(self.model)

    def step(self, batch: Any) -> torch.Tensor:
        loss = super().step(batch)
        self.shadow.update()
        return loss

    def weight(self) -> torch.Tensor:
        return 1 + self.shadow.kept["0.weight"].square().mean()


class Mixed(ByCount):
    """Holds what it reads beside what it counts."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.notes: list[Any] = [torch.zeros(2), torch.ones(2)]

    def weight(self) -> torch.Tensor:
        self.notes[0] += 1
        first: torch.Tensor = self.notes[1][0]
        return first


class BySchedule(Own):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.sched = LambdaLR(self.optimizers[0], lambda step: 1 / (1 + step))

    def step(self, batch: Any) -> torch.Tensor:
        loss = potl.Task.step(self, batch)
        self.sched.step()
        return loss


class Several(ByCount):
    def weight(self) -> float:
        for number in range(6):
            setattr(self, f"log{number}", self.done)
        return super().weight()


class Quiet(Own):
    def weight(self) -> float:
        return 1.0


class Noted(Quiet):
    """Attributes of which a step makes new ones, that cannot be written, or told."""

    bits = 1 << 20_000

    def step(self, batch: Any) -> torch.Tensor:
        self.bits += 1
        self.mask = torch.rand(1, 100).expand(2, 100)
        self.narrow = torch.rand(100).to(torch.float8_e4m3fn)
        self.last = batch[0]
        return super().step(batch)


class Aliasing(ByCount):
    """Has other names for what a checkpoint holds."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.head, self.parts = self.model[0], list(self.model.parameters())
        self.first = self.optimizers[0]


class Caching(nn.Module):
    """Keeps positions for the longest batch so far, and a mask for each length."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.positions = tasks.mlp(), torch.zeros(0, 1)
        self.masks: dict[int, torch.Tensor] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(self.positions) < len(x):
            self.positions = torch.arange(len(x))[:, None] / 8
        mask = self.masks.setdefault(len(x), torch.ones(len(x), 1))
        out: torch.Tensor = self.net((x + self.positions[: len(x)]) * mask)
        return out


class Features(nn.Module):
    """Keeps what a frozen layer gives for each sample."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.frozen = tasks.mlp(), nn.Linear(8, 8).requires_grad_(False)
        self.kept: dict[int, torch.Tensor] = {}
        self.features, self.filled = torch.zeros(48, 8), torch.zeros(48, dtype=torch.bool)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = [places_of[tuple(one.tolist())] for one in x]
        out: torch.Tensor = self.net(self.features_at(places, x))
        return out

    def features_at(self, places: list[int], x: torch.Tensor) -> torch.Tensor:
        for place, one in zip(places, x, strict=True):
            if not self.filled[place]:
                self.features[place], self.filled[place] = self.frozen(one), True
        return self.features[places]


class FeaturesInDict(Features):
    def features_at(self, places: list[int], x: torch.Tensor) -> torch.Tensor:
        for place, one in zip(places, x, strict=True):
            if place not in self.kept:
                self.kept[place] = self.frozen(one)
        return torch.stack([self.kept[place] for place in places])


places_of = {tuple(one.tolist()): place for place, one in enumerate(tasks.X)}


def own(
    kind: type[Own], model: Callable[[], nn.Module] = tasks.mlp, **options: Any
) -> Callable[[], potl.Task]:
    def build() -> potl.Task:
        net = model()
        given = {
            "dataset": TensorDataset(tasks.X, tasks.Y), "loss": F.cross_entropy, "batch_size": 12,
            "epochs": 3, **options,
        }  # fmt: skip
        return kind(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1), **given)

    return build


def in_batches(*lengths: int) -> dict[str, Any]:
    """A data set that gives the same batches whenever it is asked, itself."""
    size = sum(lengths)
    parts = zip(tasks.X[:size].split(lengths), tasks.Y[:size].split(lengths), strict=True)
    return {"dataset": list(parts), "batch_size": 1, "collate_fn": lambda got: got[0]}


@pytest.mark.parametrize(
    ("kind", "where"),
    [
        (ByCount, "ByCount.done"),
        (ByReplayBuffer, "ByReplayBuffer.memory"),
        (ByTensor, "ByTensor.temperature"),
        (BySchedule, "BySchedule.sched"),
        (ByShadow, "ByShadow.shadow"),
        (Aliasing, "Aliasing.done"),
        (Several, ", ".join(f"Several.log{i}" for i in range(5)) + ", ..."),
    ],
)
def test_attributes_that_the_steps_changed_are_named(kind: type[Own], where: str) -> None:
    (problem,) = potl.check(own(kind))
    assert "a step from a restored state differs" in problem.what
    assert problem.where == where


def test_an_average_that_is_read_before_it_moves_shows_in_later_steps() -> None:
    (problem,) = potl.check(own(ByTeacher))
    assert "a restored state differs" in problem.what and problem.where == "ByTeacher.teacher"


@pytest.mark.parametrize("kind", [At, Every, Falsy, After, Among])
def test_a_count_that_acts_in_one_step_is_found_at_that_step(kind: type[Own]) -> None:
    (problem,) = potl.check(own(kind))
    assert "a number that counts up" in problem.what and problem.where == f"{kind.__name__}.done"


def test_a_count_by_which_a_step_knows_that_it_is_the_first_is_no_state() -> None:
    assert potl.check(own(InFirst)) == []
    assert potl.check(own(Guarded)) == []


class ByGenerator(Own):
    """Draws from a generator of its own."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.generator = torch.Generator().manual_seed(1)

    def weight(self) -> torch.Tensor:
        return torch.rand((), generator=self.generator)


def test_what_no_attribute_shows_has_a_remedy_of_its_own() -> None:
    (problem,) = potl.check(own(ByGenerator))
    assert problem.where == "Task" and "draw from the global generators" in problem.remedy


def test_tensors_that_nothing_reads_or_that_rest_are_no_state() -> None:
    assert potl.check(own(Noting)) == []
    assert potl.check(own(Mixed)) == []


def test_a_cache_that_grows_with_the_batches_is_no_state() -> None:
    growing = {"shuffle": False, **in_batches(4, 6, 8)}
    assert potl.check(own(Quiet, Caching, **growing)) == []


@pytest.mark.parametrize("kind", [Features, FeaturesInDict])
def test_a_cache_of_what_stays_the_same_is_no_state(kind: type[nn.Module]) -> None:
    assert potl.check(own(Quiet, kind)) == []


def test_notes_that_are_a_batch_or_cannot_be_written_are_left_alone() -> None:
    assert potl.check(own(Noted, **in_batches(4, 4, 4))) == []


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("no numbers"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
        torch.OutOfMemoryError("CUDA out of memory"),
    ],
    ids=["Python", "CPU", "GPU"],
)
# The second in one go, the repeated one, and the ones that show tensors and gradients at work.
@pytest.mark.parametrize(
    ("kind", "step"), [(Quiet, 2), (Quiet, 3), (Noting, 4), (Quiet, 4), (Noting, 5)]
)
def test_a_machine_without_memory_is_no_fault_of_the_tasks(
    kind: type[Own], step: int, error: Exception
) -> None:
    steps = []

    class Short(kind):  # type: ignore[misc, valid-type]
        def weight(self) -> Any:
            steps.append(1)
            if len(steps) == step:
                raise error
            return super().weight()

    with pytest.raises(MemoryError, match=r"this machine ran out of memory.*accumulate="):
        potl.check(own(Short))


class Initialised(nn.Module):
    """Sets its scale by the first batch."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.ready = tasks.mlp(), False
        self.scale = nn.Parameter(torch.ones(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.ready:
            self.scale.data.copy_(1 / x.std(0))
            self.ready = True
        out: torch.Tensor = self.net(self.scale * x)
        return out


def test_a_flag_of_a_module_is_named() -> None:
    (problem,) = potl.check(lambda: tasks.task(Initialised()))
    assert problem.where == "Initialised.ready"


class InColumns(torch.optim.SGD):
    """Keeps what lies in memory column by column, as eigenvectors do, and goes by that."""

    contiguous = False

    def step(self, closure: Any = None) -> Any:
        for parameter in self.param_groups[0]["params"]:
            basis = self.state[parameter].setdefault("basis", torch.ones(2, 3).t())
            if self.contiguous:
                basis = self.state[parameter]["basis"] = basis.contiguous()
            parameter.grad.mul_(0.5 if basis.is_contiguous() else 0.25)
        return super().step(closure)


class InRows(InColumns):
    contiguous = True


def with_optimizer(kind: type[InColumns]) -> potl.Task:
    model = tasks.mlp()
    task: potl.Task = tasks.task(model, kind(model.parameters(), lr=0.1))
    return task


def test_another_order_in_memory_is_named_with_its_remedy() -> None:
    (problem,) = potl.check(lambda: with_optimizer(InColumns))
    assert problem.where == "optimizers/0/state/0/basis"
    assert "another order in memory" in problem.what and "contiguous()" in problem.remedy
    assert potl.check(lambda: with_optimizer(InRows)) == []


class Around(torch.optim.Optimizer):
    """Makes the steps of another optimizer, as SAM does."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.1})
        self.base_optimizer = torch.optim.SGD(self.param_groups, lr=0.1, momentum=0.9)
        self.param_groups = self.base_optimizer.param_groups

    def step(self, closure: Any = None) -> None:
        self.base_optimizer.step()


def around(keep: bool) -> potl.Task:
    model = tasks.mlp()
    optimizer = Around(model.parameters())
    state: Any = {"base_optimizer": optimizer.base_optimizer} if keep else None
    return tasks.task(model, optimizer, state=state)


def test_an_optimizer_around_another_one_is_told_the_argument_that_keeps_it() -> None:
    [problem] = potl.check(lambda: around(False))
    assert 'pass state={"base_optimizer": optimizer.base_optimizer} to potl.Task' in problem.remedy
    assert potl.check(lambda: around(True)) == []
