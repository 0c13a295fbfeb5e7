# SPDX-License-Identifier: Apache-2.0
"""What a liar can do beside the game: tasks that nobody can trace, or that are derived as something
else than they run. The honest party does not lose by any of it.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import traced_nets
import zoo
from disputed import Liar, case, false_run
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import potl
from potl import _core
from potl._dispute._derive import derive_operators
from potl._dispute._party import Story

pytest.importorskip("potl._torch", reason="potl was built without torch")

Build = Callable[[], potl.Task]


def short(net: nn.Module, **options: Any) -> potl.Task:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, **options)
    return traced_nets.task(net, zoo.digits(), 4, optimizer, max_steps=3)


class Partly(nn.Module):
    """Writes a part of a tensor, and reads the rest of it, as torch's GRU does."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(8, 8), nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x[:, 0, 0])
        y[:, 0] += 1
        out: torch.Tensor = self.head(y)
        return out


def partly() -> potl.Task:
    return short(Partly())


def peeking_late() -> potl.Task:
    """Does something else where tensors have no elements, but not in the first step."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    task = short(net, momentum=0.9)

    def hook(module: nn.Module, given: Any, out: torch.Tensor) -> torch.Tensor:
        assert task.optimizer is not None
        return out * 2 if task.optimizer.state and type(out) is not torch.Tensor else out

    net.register_forward_hook(hook)
    return task


class Product(nn.Module):
    """torch has another formula for its gradient where operators are watched."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(8, 8), nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head((4 * self.first(x[:, 0])).prod(-1))
        return out


def product() -> potl.Task:
    return short(Product(), momentum=0.9)


class Derived(potl.Party):
    """Shows the operators that the referee derives, with whatever results."""

    told: Story | None = None

    def _story(self, step: int) -> Story:
        if self.told is None:
            true = super()._story(step)
            try:
                own = derive_operators(self.build, self.job, step, before=true.before)
            except potl.NotReplayable:
                return true
            state = _core.content_root(self._evidence.state_digest(step))
            roots = [*(bytes(32 * len(one.tensors)) for one in own[:-1]), state]
            leaves = [
                b"potl.operator.v1\0" + one.structure + root
                for one, root in zip(own, roots, strict=True)
            ]
            self.told = dataclasses.replace(true, leaves=leaves, operators=own)
        return self.told


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (partly, "written through another view"),
        (peeking_late, "it is derived as something else than it runs: step 2"),
    ],
)
def test_nobody_loses_by_a_step_that_cannot_be_told(build: Build, why: str, tmp_path: Path) -> None:
    one = case(build, tmp_path)
    key = _core.SigningKey.generate()
    false = false_run(build, one.job, 2, tmp_path / "false", key)
    liar = Derived(false, job=one.job, task=build, key=key)
    verdict = potl.dispute(trainer=one.honest(), auditor=liar, referee=one.referee())
    assert (verdict.why, verdict.step) == ("referee", 2), verdict
    # Said by the referee: a party that fails behind its server would have been silent.
    assert why in str(verdict.facts["undecided"])
    assert "could not answer" not in str(verdict.facts["undecided"])


class Watching(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class Watched(potl.Task):
    """Watches the operators of its steps behind the first one."""

    def step(self, batch: Any) -> torch.Tensor:
        with Watching() if self.optimizer.state else contextlib.nullcontext():
            return super().step(batch)


def watched() -> potl.Task:
    task = product()
    task.__class__ = Watched
    return task


def test_nobody_loses_by_a_step_that_is_other_when_traced(tmp_path: Path) -> None:
    """The auditor's run ends where both traces end, and that is not where the program ends."""
    one = case(product, tmp_path)
    key = _core.SigningKey.generate()
    run = potl.record(watched, tmp_path / "false", job=one.job, key=key, check_job=False)
    run.commit()
    verdict = potl.dispute(
        trainer=one.honest(), auditor=one.party(run, key=key), referee=one.referee()
    )
    assert (verdict.why, verdict.step) == ("referee", 2), verdict
    said = str(verdict.facts["undecided"])
    assert "the step computes something else when its operators are traced" in said
    # Who shows zeros as results has lied wherever the program ends.
    false = false_run(product, one.job, 2, tmp_path / "zeros", key)
    liar = Derived(false, job=one.job, task=product, key=key)
    verdict = potl.dispute(trainer=one.honest(), auditor=liar, referee=one.referee())
    assert (verdict.winner, verdict.why, verdict.step) == ("trainer", "value", 2)


def test_what_is_other_when_traced_is_found_before_the_training() -> None:
    (problem,) = potl.check(product, disputable=True)
    assert problem.prevents == "dispute" and "when its operators are traced" in problem.what


class Undefined(nn.Module):
    """Divides 0 by 0 in bfloat16, and reads nothing but where that is not a number."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.flatten(1)
        zeros = torch.zeros_like(flat, dtype=torch.bfloat16)
        out: torch.Tensor = self.head(torch.where((zeros / zeros).isnan(), flat, 0.0))
        return out


def undefined() -> potl.Task:
    return short(Undefined())


def test_the_bits_of_what_is_not_a_number_convict_nobody(tmp_path: Path) -> None:
    """A processor gives others to one element than to a row of them: the referee has one."""
    one, at = case(undefined, tmp_path), 2
    false = false_run(undefined, one.job, at, tmp_path / "false", one.key)
    honest = one.honest()
    number = next(
        i for i, each in enumerate(honest._story(at).operators) if each.name.startswith("aten.div.")
    )
    verdict = potl.dispute(
        trainer=Liar(false, job=one.job, task=undefined, key=one.key, at=at, operator=number),
        auditor=one.auditor(),
        referee=one.referee(),
    )
    assert verdict.operator == (number, "aten.div.Tensor")
    assert verdict.facts["trainer"] != verdict.facts["auditor"]
    assert verdict.facts["true"] == "c07f"  # on every machine
    assert (verdict.why, verdict.trainer_wrong, verdict.auditor_wrong) == ("referee", False, False)
