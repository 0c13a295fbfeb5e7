# SPDX-License-Identifier: Apache-2.0
"""States that no agreed step leaves behind are named, with their path and rule."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from lawful import SCHEDULERS, Steps, net, task
from torch.optim import swa_utils

import potl
from potl import Task, _core
from potl._job._session import Session
from potl._verify._schema import Schema, _masks, _variances

AT = 5


def build() -> Task:
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    return task(
        model,
        optimizer,
        scheduler=[SCHEDULERS["OneCycleLR"](optimizer), SCHEDULERS["ReduceLROnPlateau"](optimizer)],
        scaler=torch.amp.GradScaler("cpu", init_scale=4.0),
        ema=swa_utils.AveragedModel(model),
    )


def plain(value: Any) -> Any:
    """A tree that can be edited and captured again."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(plain(item) for item in value)
    if isinstance(value, _core.TensorView):
        return tensor(value.dtype, value.shape, bytes(value.data))
    return value


def tensor(dtype: str, shape: Any, data: bytes) -> Any:
    memory = torch.frombuffer(bytearray(data or b"\0"), dtype=torch.uint8)
    return _core.Tensor(dtype, tuple(shape), "contiguous", memory.data_ptr(), len(data), memory)


def floats(*values: float) -> Any:
    data = torch.tensor(values, dtype=torch.float32).numpy().tobytes()
    return tensor("float32", (len(values),), data)


Judge = Callable[..., Any]


def judged(build: Callable[[], Task]) -> Iterator[Judge]:
    """Judges the honest state after step `AT`, edited."""
    job = potl.Job.create(build, seed=7, checkpoint_every=3, check=False)
    evidence = Steps()
    with Session.open(build, seed=7, job=job) as session:
        for step in range(1, AT + 1):
            result = session.run_step(step, session.sample_ids(step))
            evidence.columns["loss"].append(result.loss)
            evidence.columns["flags"].append(int(result.skipped))
        honest = session.capture()
    with Session.open(build, seed=7, job=job) as session, session.active():
        schema = Schema(session, evidence)  # type: ignore[arg-type]

        def edited(edit: Callable[[Any], None], *, logged: bool = True) -> Any:
            tree = copy.copy(plain(honest.tree()))
            edit(tree)
            found = schema.problem(_core.State.capture(tree), AT, logged=logged)
            return found and (found.rule, str(found))

        yield edited


class Halving:
    """A scheduler that nobody runs ahead: it may look at the training."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer

    def step(self) -> None:
        self.optimizer.param_groups[0]["lr"] /= 2

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


def build_plainly() -> Task:
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    return task(model, optimizer, scheduler=Halving(optimizer))


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    yield from judged(build)


@pytest.fixture(scope="module")
def judge_plain() -> Iterator[Judge]:
    yield from judged(build_plainly)


def test_the_honest_state_is_lawful(judge: Judge, judge_plain: Judge) -> None:
    assert judge(lambda tree: None) is None
    assert judge_plain(lambda tree: None) is None


def at(tree: Any, *path: Any) -> Any:
    for key in path:
        tree = tree[key]
    return tree


def put(*path: Any) -> Callable[[Any], None]:
    *way, key, value = path

    def edit(tree: Any) -> None:
        at(tree, *way)[key] = value

    return edit


FORMS = {
    "optimizers/0/state/0/stash": put("optimizers", 0, "state", 0, "stash", floats(1e20)),
    "optimizers/0/state/99": put("optimizers", 0, "state", 99, {}),
    "optimizers/0/param_groups/0/extra": put("optimizers", 0, "param_groups", 0, "extra", 1.0),
    "optimizers/0/state/0/exp_avg": put("optimizers", 0, "state", 0, "exp_avg", floats(1.0)),
    "schedulers/0/extra": put("schedulers", 0, "extra", 1),
    "schedulers/0/_schedule_phases/0/extra": put(
        "schedulers", 0, "_schedule_phases", 0, "extra", 1
    ),
    "schedulers/0/_schedule_phases": put("schedulers", 0, "_schedule_phases", []),
    "model/extra": put("model", "extra", {}),
    "model/parameters/new": put("model", "parameters", "new", floats(1.0)),
    "model/buffers/1.running_mean": put("model", "buffers", "1.running_mean", None),
    "model/training/new": put("model", "training", "new", True),
    "scaler/extra": put("scaler", "extra", 1.0),
    "ema/buffers/extra": put("ema", "buffers", "extra", floats(1.0)),
    "state/extra": put("state", "extra", {}),
    "counters/extra": put("counters", "extra", 1),
    "more": put("more", 1),
}


@pytest.mark.parametrize("path", FORMS)
def test_what_the_task_does_not_have_is_named(judge: Judge, path: str) -> None:
    rule, what = judge(FORMS[path])
    assert rule == "agreed.schema" and what.startswith(f"{path}: ")


def test_what_is_missing_is_named(judge: Judge) -> None:
    for *way, key in (
        ["optimizers", 0, "state", 0, "exp_avg"],
        ["optimizers", 0, "param_groups", 0, "betas"],
        ["schedulers", 1, "best"],
        ["model", "buffers", "1.running_var"],
        ["scaler", "scale"],
        ["counters", "step"],
    ):
        rule, what = judge(lambda tree, way=way, key=key: at(tree, *way).pop(key))  # type: ignore[misc]
        assert (rule, what.split(": ")[0]) == ("agreed.schema", "/".join(map(str, [*way, key])))
    rule, what = judge(put("optimizers", 0, "state", 0, {}))
    assert rule == "agreed.schema" and what.startswith("optimizers/0/state/0/")


def test_moments_that_every_step_makes_are_missed(judge_plain: Judge, judge: Judge) -> None:
    def without(tree: Any) -> None:
        tree["optimizers"][0]["state"].pop(0)

    rule, what = judge_plain(without)
    assert (rule, what.split(": ")[0]) == ("agreed.schema", "optimizers/0/state/0")
    assert judge(without) is None  # its scaler may have skipped the updates


def test_options_are_known_where_no_scheduler_can_be_run_ahead(judge_plain: Judge) -> None:
    group = ("optimizers", 0, "param_groups", 0)
    assert judge_plain(put(*group, "lr", 1e-4)) is None
    rule, what = judge_plain(put(*group, "eps", 1e-4))
    assert (rule, what.split(": ")[0]) == ("agreed.recipe_state", "optimizers/0/param_groups/0/eps")


def test_the_log_of_the_effective_history_binds_no_other_branch(judge: Judge) -> None:
    elsewhere = put("schedulers", 1, "best", -1.0)  # a metric's, which is the log's
    assert judge(elsewhere) is not None
    assert judge(elsewhere, logged=False) is None


def test_only_buffers_are_masks() -> None:
    def state(**model: Any) -> _core.State:
        return _core.State.capture({"model": model})

    def with_infinity(part: str) -> list[_core.State]:
        return [state(**{part: {"x": floats(value)}}) for value in (0.0, math.inf)]

    assert _masks(with_infinity("buffers")) == ["model/buffers/x"]
    assert _masks(with_infinity("parameters")) == []


def float32(value: float) -> Any:
    return tensor("float32", (), torch.tensor(value).numpy().tobytes())


RECIPES = {
    "scaler/scale": put("scaler", "scale", math.inf),
    "scaler/_growth_tracker": put("scaler", "_growth_tracker", 0),
    "scaler/growth_factor": put("scaler", "growth_factor", 1.0),
    "schedulers/1/best": put("schedulers", 1, "best", -1.0),
    "schedulers/1/num_bad_epochs": put("schedulers", 1, "num_bad_epochs", -1000),
    "schedulers/1/_last_lr/0": put("schedulers", 1, "_last_lr", 0, 1e-30),
    "schedulers/0/_schedule_phases/0/end_step": put(
        "schedulers", 0, "_schedule_phases", 0, "end_step", 1e9
    ),
    "schedulers/0/total_steps": put("schedulers", 0, "total_steps", 10**9),
    "schedulers/0/last_epoch": put("schedulers", 0, "last_epoch", 2),
    "optimizers/0/param_groups/0/lr": put("optimizers", 0, "param_groups", 0, "lr", 1e-30),
    "optimizers/0/param_groups/0/weight_decay": put(
        "optimizers", 0, "param_groups", 0, "weight_decay", 1.0
    ),
    "optimizers/0/param_groups/0/betas/0": put(
        "optimizers", 0, "param_groups", 0, "betas", (0.0, 0.999)
    ),
    "optimizers/0/param_groups/0/params": put(
        "optimizers", 0, "param_groups", 0, "params", [1, 0, 2, 3, 4, 5]
    ),
    "optimizers/0/state/0/step": put(
        "optimizers", 0, "state", 0, "step", tensor("float32", (), b"\0\0\x80\x7f")
    ),
    "optimizers/0/state/2/step": put("optimizers", 0, "state", 2, "step", float32(AT + 1.0)),
    "optimizers/0/state/1/exp_avg_sq": put(
        "optimizers", 0, "state", 1, "exp_avg_sq", floats(1, 1, 1, 1, -1)
    ),
    "model/buffers/1.running_var": put(
        "model", "buffers", "1.running_var", floats(1, 1, 1, 1, -1e-5)
    ),
    "ema/buffers/module.1.running_var": put(
        "ema", "buffers", "module.1.running_var", floats(-1e-30, 1, 1, 1, 1)
    ),
    "model/requires_grad/0.weight": put("model", "requires_grad", "0.weight", False),
    "model/training/1": put("model", "training", "1", False),
    "ema/buffers/n_averaged": put("ema", "buffers", "n_averaged", tensor("int64", (), bytes(8))),
    "counters/step": put("counters", "step", 4),
    "counters/epoch": put("counters", "epoch", 0),
}


@pytest.mark.parametrize("path", RECIPES)
def test_what_the_agreed_steps_do_not_make_is_named(judge: Judge, path: str) -> None:
    rule, what = judge(RECIPES[path])
    assert rule == "agreed.recipe_state" and what.startswith(f"{path}: ")


def test_a_norm_of_the_tasks_own_may_keep_what_it_likes() -> None:
    class Own(torch.nn.BatchNorm1d):
        pass

    def found(kind: type[torch.nn.BatchNorm1d]) -> set[str]:
        made = task(torch.nn.Sequential(torch.nn.Linear(6, 5), kind(5), torch.nn.Linear(5, 2)))
        with Session.open(lambda: made, seed=1) as session:
            return _variances(made, [session.capture().tree()])["model"]

    assert found(torch.nn.BatchNorm1d) == {"1.running_var"}
    assert found(Own) == set()


def test_a_running_variance_that_extrapolates_or_begins_below_zero_is_no_square() -> None:
    def found(momentum: float | None, first: float) -> set[str]:
        norm = torch.nn.BatchNorm1d(5, momentum=momentum)
        norm.get_buffer("running_var")[3] = first
        made = task(torch.nn.Sequential(torch.nn.Linear(6, 5), norm, torch.nn.Linear(5, 2)))
        with Session.open(lambda: made, seed=1) as session:
            return _variances(made, [session.capture().tree()])["model"]

    assert found(0.1, 0.0) == found(None, 0.0) == {"1.running_var"}
    assert found(1.5, 0.0) == found(0.1, -1e-30) == set()
