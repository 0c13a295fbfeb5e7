# SPDX-License-Identifier: Apache-2.0
"""Which tensors of a state are found to be copies or averages of a parameter."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from lawful import data, task
from torch import nn

from potl import Task, _core
from potl._job._session import Session
from potl._job._still_elements import places_of

Move = Callable[[list[torch.Tensor], list[torch.Tensor], int], None]


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 4))


class Kept:
    """Tensors that a step of the task's own moves."""

    def __init__(self, tensors: list[torch.Tensor], *, named: bool = False) -> None:
        self.tensors, self.named = tensors, named

    def state_dict(self) -> dict[str, Any]:
        named = {f"of {i}": one for i, one in enumerate(self.tensors)}
        return {"kept": named if self.named else self.tensors}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        raise NotImplementedError


class Own(Task):
    """Moves what is kept after each step, numbered from 1."""

    kept: list[torch.Tensor]
    move: Move
    done = 0

    def step(self, batch: Any) -> torch.Tensor:
        loss = super().step(batch)
        self.done += 1
        with torch.no_grad():
            self.move(self.kept, list(self.optimizers[0].param_groups[0]["params"]), self.done)
        return loss


def own(model: nn.Module, kept: list[torch.Tensor], move: Move, trained: Any, **rest: Any) -> Task:
    made = Own(
        model=model,
        optimizer=torch.optim.Adam(trained, lr=0.01),
        dataset=data(),
        loss=nn.functional.cross_entropy,
        batch_size=8,
        epochs=3,
        **rest,
    )
    made.kept, made.move = kept, move
    return made


def found(build: Callable[[], Task]) -> dict[str, list[str]]:
    """By the path of the copy, the names of parameters."""
    with Session.open(build, seed=5) as session:
        states = [session.capture()]
        for step, _, batch in session.batches(1, 2):
            session.run_step(step, batch)
            states.append(session.capture())
        copies = _core.copies_of(states, [paths for _, paths in places_of(session.task)])
        return {path: [one.rpartition("/")[2] for one in of] for path, of in copies.items()}


NAMES = [name for name, _ in net().named_parameters()]


def scaled(kept: list[torch.Tensor], of: list[torch.Tensor], step: int) -> None:
    for average, p in zip(kept, of, strict=True):
        average.mul_(0.99).add_(p, alpha=0.01)


def warmed(kept: list[torch.Tensor], of: list[torch.Tensor], step: int) -> None:
    torch._foreach_lerp_(kept, of, 9 / (10 + step))


def rarely(kept: list[torch.Tensor], of: list[torch.Tensor], step: int) -> None:
    if step % 3 == 0:
        scaled(kept, of, step)


def by_hand(kept: list[torch.Tensor], of: list[torch.Tensor], step: int) -> None:
    for average, p in zip(kept, of, strict=True):
        average += (p - average) / step


MOVES = (scaled, warmed, by_hand)


def clones(model: nn.Module, *, zero: bool = False) -> list[torch.Tensor]:
    return [p.detach() * 0 if zero else p.detach().clone() for p in model.parameters()]


@pytest.mark.parametrize("move", MOVES)
def test_a_teacher_that_is_a_module(move: Move) -> None:
    def build() -> Task:
        model = nn.Sequential(net())
        teacher = copy.deepcopy(model[0]).requires_grad_(False)
        made = own(model, list(teacher.parameters()), move, model.parameters())
        model[0].register_module("teacher", teacher)
        model[0].forward = lambda x: nn.Sequential(*list(model[0])[:4])(x)
        return made

    assert found(build) == {f"model/parameters/0.teacher.{name}": [f"0.{name}"] for name in NAMES}


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("type_", [torch.float32, torch.bfloat16])
def test_averages_in_buffers(move: Move, type_: torch.dtype) -> None:
    def build() -> Task:
        model = net()
        if type_ is not torch.float32:
            model.to(type_).register_forward_pre_hook(lambda module, given: given[0].to(type_))
        for i, one in enumerate(clones(model)):
            model.register_buffer(f"average{i}", one)
        return own(model, list(model.buffers(recurse=False)), move, model.parameters())

    # In bfloat16 weights of a norm and its statistics are too near to 1 to be told apart.
    names = [(i, name) for i, name in enumerate(NAMES) if type_.itemsize > 2 or name != "1.weight"]
    assert found(build) == {f"model/buffers/average{i}": [name] for i, name in names}


@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("named", [False, True])
def test_averages_in_an_object_of_the_state(named: bool, zero: bool) -> None:
    def build() -> Task:
        model = net()
        kept = Kept(clones(model, zero=zero), named=named)
        return own(model, kept.tensors, scaled, model.parameters(), state={"ours": kept})

    prefix = "state/ours/kept/of " if named else "state/ours/kept/"
    assert found(build) == {f"{prefix}{i}": [name] for i, name in enumerate(NAMES)}


@pytest.mark.parametrize("rate", [0.1, 0.0])
def test_the_average_of_the_task(rate: float) -> None:
    """Also while a schedule keeps everything where it starts."""

    def build() -> Task:
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=rate)
        return task(model, [optimizer], ema=torch.optim.swa_utils.AveragedModel(model))

    assert found(build) == {f"ema/parameters/module.{name}": [name] for name in NAMES}


def test_what_starts_as_one_number_and_rests_is_a_copy_if_it_is_a_matrix() -> None:
    def build() -> Task:
        model = net()
        nn.init.zeros_(model[3].weight)
        kept = Kept(clones(model))
        return own(model, kept.tensors, rarely, model.parameters(), state={"ours": kept})

    # Not those of the norm, which start as its statistics do.
    names = [(i, name) for i, name in enumerate(NAMES) if not name.startswith("1.")]
    assert found(build) == {f"state/ours/kept/{i}": [name] for i, name in names}


def test_what_moves_otherwise_is_no_copy() -> None:
    def nearest(kept: list[torch.Tensor], of: list[torch.Tensor], step: int) -> None:
        kept[0].mul_(0.99).add_(torch.rand(kept[0].shape), alpha=0.01)

    def build() -> Task:
        model = net()
        codes = nn.Parameter(torch.randn(7, 3))  # without a gradient: moved by averages alone
        model.register_parameter("codes", codes)
        kept = Kept([codes.detach().clone()])
        return own(model, kept.tensors, nearest, model.parameters(), state={"sums": kept})

    assert found(build) == {}


def test_what_another_optimizer_trains_from_the_same_start_is_no_copy() -> None:
    def build() -> Task:
        model = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6))
        model[1].load_state_dict(model[0].state_dict())
        return task(model, [torch.optim.SGD(one.parameters(), lr=0.1) for one in model])

    assert found(build) == {}


def test_an_element_of_a_copy_of_several_parameters_needs_none_of_them_to_have_a_gradient() -> None:
    still = [(["a", "b"], b"\1\1\0\0"), (["c"], b"\1\0\1\0")]
    copies = {"of a": ["a"], "of both": ["a", "c"], "of none": ["d"], "of a and d": ["a", "d"]}
    added = [(["of a"], b"\1\1\0\0", 7), (["of both"], b"\1\0\0\0", 7)]
    assert _core.with_copies(still, copies, 7) == [(*one, 0) for one in still] + added
