# SPDX-License-Identifier: Apache-2.0
"""An option that a step of the user's own does not use is refused: the job would state it."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

pytest.importorskip("torch")

import tasks
import torch
from torch.nn import functional as F

import potl


class Loss(potl.Task):
    def compute_loss(self, batch: Any, reduction: str = "mean") -> torch.Tensor:
        return F.cross_entropy(self.model(batch[0]), batch[1], reduction=reduction)


class Mixed(Loss):
    def compute_loss(self, batch: Any, reduction: str = "mean") -> torch.Tensor:
        with self.autocast_context():
            return super().compute_loss(batch, reduction)


class Step(Loss):
    def step(self, batch: Any) -> torch.Tensor:
        (optimizer,) = self.optimizers
        optimizer.zero_grad()
        loss = self.compute_loss(batch)
        loss.backward()
        self.act()
        optimizer.step()
        return loss.detach()

    def act(self) -> None:
        pass


class Clipping(Step):
    def act(self) -> None:
        assert self.grad_clip is not None
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.grad_clip)


class OfParts(Loss):
    def step(self, batch: Any) -> torch.Tensor:
        (optimizer,) = self.optimizers
        optimizer.zero_grad()
        total = torch.zeros(())
        for part, share in self.micro_batches(batch):
            loss = self.compute_loss(part) * share
            loss.backward()
            total = total + loss.detach()
        self.update(total)
        return total


class OfAll(Step):
    def act(self) -> None:
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), vars(self)["grad_clip"])


class Registered(Clipping):
    names: ClassVar[set[str]] = set()

    def __init_subclass__(cls) -> None:
        if cls.__name__ in Registered.names:
            raise ValueError(f"there is a {cls.__name__}")
        Registered.names.add(cls.__name__)


class Known(Registered):
    pass


class Frozen(Clipping):
    def __setattr__(self, name: str, value: Any) -> None:
        if name == "__class__":
            raise AttributeError("this task is frozen")
        super().__setattr__(name, value)


class Itself(Clipping):
    def act(self) -> None:
        assert type(self) is Itself
        super().act()


class Counting(Clipping):
    count = 0

    def __getattribute__(self, name: str) -> Any:
        Counting.count += 1
        return object.__getattribute__(self, name)


def problems(kind: type[potl.Task], **options: Any) -> list[str]:
    def build() -> potl.Task:
        return kind(**vars_of(tasks.task(tasks.mlp(), **options)))

    return [str(one) for one in potl.check(build) if one.prevents == "replay"]


def vars_of(task: potl.Task) -> dict[str, Any]:
    names = "dataset", "batch_size", "epochs", "accumulate", "autocast", "grad_clip"
    of_it = {name: getattr(task, name) for name in names}
    return {"model": task.model, "optimizer": task.optimizer, **of_it}


@pytest.mark.parametrize(
    ("kind", "options", "where", "remedy"),
    [
        (Loss, {"autocast": torch.bfloat16}, "Task.compute_loss", "autocast_context"),
        (Step, {"autocast": torch.bfloat16}, "Task.step", "autocast_context"),
        (Step, {"grad_clip": 1.0}, "Task.step", "self.update"),
        (Step, {"accumulate": 2}, "Task.step", "micro_batches"),
    ],
)
def test_an_option_that_a_step_does_not_use_is_refused(
    kind: type[potl.Task], options: dict[str, Any], where: str, remedy: str
) -> None:
    (name,) = options
    (problem,) = problems(kind, **options)
    assert problem.startswith(f"{where}: {name}= is given, and a step does not use it")
    assert remedy in problem and f"leave {name}= out" in problem


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (Loss, {"grad_clip": 1.0, "accumulate": 2}),
        (Mixed, {"autocast": torch.bfloat16, "grad_clip": 1.0, "accumulate": 2}),
        (Clipping, {"grad_clip": 1.0}),
        (OfParts, {"grad_clip": 1.0, "accumulate": 2}),
        (Step, {}),
        (OfAll, {"grad_clip": 1.0}),  # which shows all of them
        (Known, {"grad_clip": 1.0}),
        (Frozen, {"grad_clip": 1.0}),
        (Itself, {"grad_clip": 1.0}),
        (Counting, {"grad_clip": 1.0}),
    ],
)
def test_an_option_that_is_used_in_whatever_way_is_not(
    kind: type[potl.Task], options: dict[str, Any]
) -> None:
    assert problems(kind, **options) == []


@pytest.mark.parametrize("own", [{}, {"__getattribute__": Counting.__getattribute__}])
def test_a_class_is_as_it_was_when_a_step_has_failed(own: dict[str, Any]) -> None:
    def fail(self: potl.Task, batch: Any) -> torch.Tensor:
        raise KeyError("this")

    failing = type("Failing", (Loss,), {"step": fail, **own})
    before = dict(vars(failing))
    with pytest.raises(KeyError):
        problems(failing)
    assert dict(vars(failing)) == before
