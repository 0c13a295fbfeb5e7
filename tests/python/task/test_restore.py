# SPDX-License-Identifier: Apache-2.0
"""A recorded state is restored whole, and only into the task that it is of."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, Flag
from pathlib import Path
from typing import Any

import pytest
import tasks
import torch
from trainings import change, run, state_of, untied

import potl
from potl import _core
from potl._job._session import Session


def scaled() -> potl.Task:
    """With a scale that float32 holds, as torch does once the scaler has been used."""
    return tasks.task(tasks.mlp(), scaler=torch.amp.GradScaler("cpu", init_scale=2.0**10))


class Looking(torch.optim.Adam):
    """Looks at each parameter's entry after loading, as FlashAdamW does, which makes it."""

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter].pop("more", None)


def looking() -> potl.Task:
    model = tasks.mlp()
    optimizer = Looking(model.parameters(), lr=0.01)
    optimizer.state["shared"] = {}  # type: ignore[index]
    return tasks.task(model, optimizer)


RESTORED = [
    tasks.plain, tasks.adam, tasks.averaged, tasks.own_state, scaled, tasks.plateau,
    tasks.extra_state, tasks.batch_norm, looking,
]  # fmt: skip


@pytest.mark.parametrize("build", RESTORED, ids=lambda build: build.__name__)
def test_nothing_of_what_was_there_is_left(build: Callable[[], potl.Task]) -> None:
    with Session.open(build, seed=7) as session:
        initial = session.capture()
        run(session, 1, 4)
        later = session.capture()
        for state in (initial, later, initial):
            session.restore(state)
            assert session.capture().digest() == state.digest()


def test_options_of_the_optimizer_that_the_state_does_not_have_are_gone() -> None:
    state = state_of(tasks.plain)
    with Session.open(tasks.plain, seed=7) as session:
        session.task.optimizers[0].param_groups[0]["mine"] = 1
        session.restore(state)
        assert "mine" not in session.task.optimizers[0].param_groups[0]


class Phase(Enum):
    WARM, COLD = "w", "c"


class Chosen(torch.optim.SGD):
    """Has options that are a dtype and a member of an enum, and changes them."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, lr=0.1)
        self.param_groups[0].update(keeps=torch.bfloat16, phase=Phase.WARM, steps=0)

    def step(self, closure: Any = None) -> None:
        super().step(closure)
        group = self.param_groups[0]
        group["steps"] += 1
        if group["steps"] == 8:
            group.update(keeps=torch.float16, phase=Phase.COLD)
        scale = 0.9 if group["phase"] is Phase.WARM else 0.8
        for one in group["params"]:
            one.data.mul_(scale)


def chosen() -> potl.Task:
    model = tasks.mlp()
    return tasks.task(model, Chosen(model.parameters()))


def test_options_of_an_optimizer_may_be_dtypes_and_members_of_enums(tmp_path: Path) -> None:
    job = potl.Job.create(chosen, seed=7, checkpoint_every=2)
    made = potl.record(chosen, tmp_path / "run", job=job)
    checks = [potl.Replay(samples=job.core.segments)]
    report = potl.verify(made, job=job, commitment=made.commit(), task=chosen, checks=checks)
    assert report.verdict == "accepted", [f.reason for f in report.findings]


class Parts(Flag):
    ONE, TWO = 1, 2


@pytest.mark.parametrize(
    ("first", "later"),
    [
        (None, Phase.COLD),
        (Phase.WARM, None),
        (None, torch.bfloat16),
        ("WARM", Phase.WARM),
        (Phase.WARM, Parts.ONE),
        (Parts.ONE, Parts.ONE | Parts.TWO),
    ],
)
def test_an_option_whose_name_could_not_be_read_again_is_refused(
    first: object, later: object
) -> None:
    def build() -> potl.Task:
        task = chosen()
        task.optimizers[0].param_groups[0]["phase"] = first
        return task

    with Session.open(build, seed=7) as session:
        session.capture()
        session.task.optimizers[0].param_groups[0]["phase"] = later
        with pytest.raises(potl.NotReplayable, match="param_groups/0/phase"):
            session.capture()


@pytest.mark.parametrize(
    ("key", "wrong", "own"),
    [
        ("keeps", "torch.nothing", "torch.bfloat16"),
        ("phase", "HOT", "WARM"),
        ("phase", ["WARM"], "WARM"),
    ],
)
def test_an_option_that_the_task_does_not_know_is_an_error(
    key: str, wrong: object, own: str
) -> None:
    state = change(state_of(chosen), lambda t: first(t).update({key: wrong}))
    said = f"param_groups/0/{key}: the state holds .*, the task '{own}'$"
    with Session.open(chosen, seed=7) as session, pytest.raises(potl.MismatchError, match=said):
        session.restore(state)


def wrapped() -> potl.Task:
    """Of one optimizer around another one, as in SAM, whose state is not in its own."""
    model = tasks.mlp()
    inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    outer = torch.optim.SGD(inner.param_groups, lr=0.1)
    return tasks.task(model, outer, state={"base": inner})


def test_restored_optimizers_share_groups_as_before() -> None:
    state = state_of(wrapped)
    with Session.open(wrapped, seed=7) as session:
        session.restore(state)
        (outer,), inner = session.task.optimizers, session.task.state["base"]
        assert inner.param_groups[0] is outer.param_groups[0]
        assert session.capture().digest() == state.digest()


def first(tree: dict[str, Any]) -> dict[str, Any]:
    return tree["optimizers"][0]["param_groups"][0]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda t: t["model"]["parameters"].pop("0.weight"), "parameters/0.weight: the state does"),
        (lambda t: t.update(more=None), "state/more: the task does not have it"),
        (lambda t: t["model"]["buffers"].update(more=None), "model/buffers/more"),
        (lambda t: t["model"]["parameters"].update(more=None), "model/parameters/more"),
        (lambda t: t["model"]["training"].update(more=True), "model/training/more"),
        (lambda t: t["state"].update(more=1), "state/more"),
        (lambda t: t["optimizers"].append(t["optimizers"][0]), "optimizers: the state has 2"),
        (lambda t: t["schedulers"].append({}), "schedulers: the state has 1, the task 0"),
        (lambda t: t["optimizers"][0]["param_groups"].clear(), "param_groups: the state has 0"),
        (lambda t: first(t)["params"].reverse(), "param_groups/0: it steps other parameters"),
        (lambda t: first(t).pop("momentum"), "param_groups/0/momentum: the state does not have it"),
        (
            lambda t: t["optimizers"][0]["state"].update({99: {}}),
            "state/99: the optimizer does not",
        ),
        (lambda t: t.update(scaler={}), "scaler: only one"),
        (lambda t: t.update(ema={}), "ema: only one"),
        (lambda t: t["model"]["parameters"].update({"0.weight": None}), "only one of state"),
    ],
)
def test_what_does_not_fit_is_named(edit: Callable[[dict[str, Any]], None], message: str) -> None:
    forged = change(state_of(tasks.plain), edit)
    with (
        Session.open(tasks.plain, seed=7) as session,
        pytest.raises(potl.MismatchError, match=message),
    ):
        session.restore(forged)


def test_an_untied_state_restores_into_no_tied_model() -> None:
    with (
        Session.open(tasks.tied, seed=7) as session,
        pytest.raises(potl.MismatchError, match="tied to another tensor in the task"),
    ):
        session.restore(state_of(untied, 0))


def test_a_tie_is_to_the_tensor_that_the_state_names() -> None:
    """Both are tied in the task, but to each other and not to a third."""
    state = state_of(tasks.tied)
    ties = [
        (name, value.path)
        for name, value in state.tree()["model"]["parameters"].items()
        if isinstance(value, _core.Alias)
    ]
    assert len(ties) == 1
    with Session.open(tasks.tied, seed=7) as session:
        ((name, _),) = ties
        owner, _, short = name.rpartition(".")
        module = session.task.model.get_submodule(owner)
        setattr(module, short, torch.nn.Parameter(getattr(module, short).detach().clone()))
        with pytest.raises(potl.MismatchError, match="tied to"):
            session.restore(state)
