# SPDX-License-Identifier: Apache-2.0
"""A referee lists the operators of a step from the agreed task alone: equal for honest parties,
and another program is seen as one (A31).
"""

from __future__ import annotations

import functools
import json
import re
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import traced_nets
import zoo
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

import potl
from potl import _core
from potl._cli import _cli
from potl._dispute import _roots
from potl._dispute._derive import derive_operators, derive_step
from potl._dispute._encoding import Reference, TensorOutline
from potl._dispute._operators import CAPTURE, Operator, ValueTrace, structural_difference
from potl._dispute._questions import MOST, question, too_large
from potl._job._agreement import open_checked

pytest.importorskip("potl._torch", reason="potl was built without torch")

Build = Callable[[], potl.Task]


@functools.cache
def job_of(build: Build) -> potl.Job:
    return potl.Job.create(build, seed=traced_nets.SEED, checkpoint_every=4, arithmetic="ord32")


def derived(build: Build, step: int = 1) -> tuple[Operator, ...]:
    before = None if step == 1 else traced_nets.outline(build, step)
    return derive_operators(build, job_of(build), step, before=before)


@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize("name", traced_nets.NETS)
def test_the_derived_operators_are_those_that_are_executed(name: str, step: int) -> None:
    build = traced_nets.NETS[name]
    own, executed = derived(build, step), traced_nets.traced(build, step)
    assert structural_difference(own, executed.operators) is None
    assert [one.structure for one in own] == [one.structure for one in executed.operators]
    assert all(one.root is None for operator in own for one in operator.tensors)


@pytest.mark.parametrize("name", ["bilstm", "text_cnn", "autoencoder", "gpt2"])
def test_other_models_are_derived_too(name: str) -> None:
    """The last one looks at a mask, but not if its elements are not there."""
    if name == "gpt2":
        pytest.importorskip("transformers")
    build = functools.partial(zoo.build, name)
    executed = traced_nets.traced(build, 2)
    assert structural_difference(derived(build, 2), executed.operators) is None


def test_deriving_leaves_the_generators_where_they_were() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    derived(traced_nets.mlp)
    assert torch.equal(torch.get_rng_state(), before)


class Net(nn.Module):
    """Two layers of one size, so that each fits in the other's place."""

    def __init__(self, kind: str = "") -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 10)
        self.kind = kind

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.flatten(1)
        layers = [self.first, self.second]
        if self.kind == "wiring":
            layers.reverse()
        for layer in layers:
            x = layer(x)
            x = F.gelu(x) if self.kind == "operator" else F.relu(x)
        if self.kind == "more":
            x = x * 1.0
        if self.kind == "seeded":
            torch.manual_seed(3)
        x = F.dropout(x, 0.5) if self.kind in ("drawn", "seeded") else x
        out: torch.Tensor = self.last(x)
        return out


def of(kind: str) -> potl.Task:
    net = Net(kind)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9 - 0.1 * (kind == "momentum"))
    loss = functools.partial(F.cross_entropy, ignore_index=-7 if kind == "attribute" else -100)
    return traced_nets.task(net, zoo.digits(), 32, optimizer, loss=loss)


HONEST = functools.partial(of, "")


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ("operator", "another operator, aten.gelu.default"),
        ("wiring", "another wiring"),
        ("attribute", "another attribute, ignore_index"),
        ("momentum", "another attribute, other"),
        ("more", "another operator, aten.mul.Tensor"),
        ("drawn", "another operator, aten.empty_like.default"),
    ],
)
def test_the_trace_of_another_program_is_seen(kind: str, what: str) -> None:
    step = 2  # the momentum counts from here on
    own = derive_operators(HONEST, job_of(HONEST), step, before=traced_nets.outline(HONEST, step))
    found = structural_difference(own, other_program(kind, step).operators)
    assert found is not None
    assert what in found[1]


def test_other_random_numbers_are_another_program() -> None:
    build = functools.partial(of, "drawn")
    own = derive_operators(build, job_of(build), 1)
    other = traced_nets.traced(functools.partial(of, "seeded"), 1)
    found = structural_difference(own, other.operators)
    assert found is not None
    assert found[1] == "another place in the sequence of random numbers"


def other_program(kind: str, step: int) -> ValueTrace:
    """A step of another program from the honest state before it."""
    with traced_nets.before_step(HONEST, step) as (session, batch):
        other = of(kind)
        session.task.model.kind = kind  # type: ignore[assignment]
        session.task.loss = other.loss
        assert session.task.optimizer is not None and other.optimizer is not None
        session.task.optimizer.param_groups[0]["momentum"] = other.optimizer.defaults["momentum"]
        from potl._dispute._values import trace_values

        return trace_values(session, step, batch)


def test_a_shorter_trace_is_another_program() -> None:
    own = derived(traced_nets.mlp)
    assert structural_difference(own, own[:-1]) == (
        len(own) - 1,
        f"{len(own) - 1} operators instead of {len(own)}",
    )


class Deciding(potl.Task):
    """Decides by what it computed."""

    kind = ""
    scratch: torch.Tensor

    def compute_loss(self, batch: Any, reduction: str = "mean") -> torch.Tensor:
        loss = super().compute_loss(batch, reduction)
        if self.kind == "if" and loss > 1e9:
            loss = loss * 0.5
        if self.kind == "item":
            loss = loss * min(1.0, float(loss.detach()))
        if self.kind == "shape":
            output = self.model(batch[0])
            loss = loss + output[output > 0].sum()
        if self.kind == "positions" and (torch.arange(9).cumsum(0) > 35).all().logical_not():
            loss = loss * 0.5
        if self.kind == "written":
            self.scratch.copy_(loss.detach())
            if self.scratch.sum() > 1e9:
                loss = loss * 0.5
        if self.kind == "unset" and (torch.empty(3) == 0).all():
            loss = loss * 1.0
        if self.kind == "asks" and isinstance(loss, FakeTensor):
            loss = loss * 1.0
        if self.kind == "numpy":
            loss = loss * (1 + 0 * loss.detach().numpy().item())
        if self.kind == "where":
            loss = torch.where(loss > 1e9, loss * 0.5, loss)
        return loss


def deciding(kind: str) -> potl.Task:
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    made = Deciding(
        model=net,
        optimizer=torch.optim.SGD(net.parameters(), lr=0.1),
        dataset=zoo.digits(),
        loss=F.cross_entropy,
        batch_size=32,
        epochs=1,
    )
    made.kind, made.scratch = kind, torch.zeros(3)
    return made


@pytest.mark.parametrize("kind", ["if", "item", "shape", "written", "unset"])
def test_control_flow_that_depends_on_data_is_refused_with_its_line(kind: str) -> None:
    build = functools.partial(deciding, kind)
    with pytest.raises(potl.NotReplayable, match=r"test_derive\.py:\d+.*torch\.where"):
        derived(build)


@pytest.mark.parametrize("kind", ["where", "positions"])
def test_what_is_chosen_without_data_is_derived(kind: str) -> None:
    build = functools.partial(deciding, kind)
    executed = traced_nets.traced(build, 1).operators
    assert structural_difference(derived(build), executed) is None


@pytest.mark.parametrize(
    ("interval", "why"), [("step", None), ("epoch", "a schedule follows the loss")]
)
def test_a_schedule_that_follows_the_loss_is_refused(interval: str, why: str | None) -> None:
    def build() -> potl.Task:
        made = traced_nets.mlp()
        assert made.optimizer is not None
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(made.optimizer)
        made.schedulers, made.scheduler_interval = (plateau,), interval
        return made

    with pytest.raises(potl.NotReplayable, match=why):
        derived(build)


def test_constants_of_the_task_are_bound_by_their_content() -> None:
    def build() -> potl.Task:
        made = traced_nets.mlp()
        made.loss = functools.partial(F.cross_entropy, weight=torch.linspace(1, 2, 10))
        return made

    own, executed = derived(build), traced_nets.traced(build, 1)
    assert structural_difference(own, executed.operators) is None
    paths = [one.path for operator in own for one in operator.operands]
    assert any(path.startswith("constant/") for path in paths)


def test_later_steps_need_the_state_before_them() -> None:
    with pytest.raises(potl.UsageError, match="before="):
        derive_operators(traced_nets.mlp, job_of(traced_nets.mlp), 2)
    with pytest.raises(potl.UsageError, match="no step 0"):
        derive_operators(traced_nets.mlp, job_of(traced_nets.mlp), 0)
    with pytest.raises(potl.MismatchError, match="after step 1"):
        derive_operators(
            traced_nets.mlp,
            job_of(traced_nets.mlp),
            3,
            before=traced_nets.outline(traced_nets.mlp, 2),
        )


@pytest.mark.parametrize(
    ("kind", "what", "where"),
    [
        ("if", "values that nobody has agreed", r"test_derive\.py:\d+"),
        (
            "asks",
            r"operator \d+, derived without the data, is another operator",
            r"test_derive\.py:",
        ),
        ("numpy", "cannot be derived", r"Task\.step"),
    ],
)
def test_what_no_referee_could_decide_is_told_before_training(
    kind: str, what: str, where: str
) -> None:
    build = functools.partial(deciding, kind)
    assert potl.check(build) == []
    assert potl.check(build, arithmetic="stock", disputable=True) == []
    [problem] = potl.check(build, disputable=True)
    assert problem.prevents == "dispute"
    assert re.search(what, problem.what) and re.search(where, problem.where), problem


@pytest.mark.parametrize("own", [False, True])
def test_one_hot_is_named_with_what_to_write_instead(own: bool) -> None:
    """It looks at its targets, where they have elements."""

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        hot = (y[..., None] == torch.arange(10)).long() if own else F.one_hot(y, 10)
        return F.cross_entropy(x, hot.float())

    def build() -> potl.Task:
        made = traced_nets.mlp()
        made.loss = loss
        return made

    remedies = [one.remedy for one in potl.check(build, disputable=True)]
    written = "(y[..., None] == torch.arange(classes)).long()"
    assert remedies == (
        [] if own else [f"instead of torch.nn.functional.one_hot(y, classes), write {written}"]
    )


class Sorting(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = super().forward(x)
        return out + out.repeat(1, 1100).sort(1)[0].mean(1, keepdim=True)


def test_an_operator_that_takes_too_much_is_named_before_training() -> None:
    """Who lies about it is not convicted."""

    def build() -> potl.Task:
        net = nn.Sequential(nn.Flatten(), Sorting(64, 10))
        return traced_nets.task(net, zoo.digits(), 512, traced_nets.sgd(net))

    assert potl.check(build) == []
    [problem] = potl.check(build, disputable=True)
    assert problem.prevents == "dispute" and "aten.sort" in problem.what
    assert re.search(r"test_derive\.py:\d+", problem.where), problem


def test_who_made_a_state_of_many_tensors_can_be_asked_for() -> None:
    def step_of(count: int) -> list[Operator]:
        form = TensorOutline("float32", (4,), None, "contiguous")
        made = [Operator("aten.neg.default", {}, (form,)) for _ in range(count)]
        state = {str(i): (Reference(f"operator/{i}/0"), "contiguous") for i in range(count)}
        return [*made, Operator(CAPTURE, {"state": state}, (form,))]

    assert too_large(step_of(5000), "ord32") is None
    found = too_large(step_of(15000), "ord32")
    assert found is not None and found[0] == 15000


def test_nobody_is_asked_for_more_than_an_answer_may_have() -> None:
    assert question({"ask": "state"}, MOST).max_bytes == MOST
    with pytest.raises(potl.LimitError):
        question({"ask": "state"}, MOST + 1)


def test_what_a_referee_could_decide_has_no_problem() -> None:
    assert potl.check(traced_nets.mlp_adamw, disputable=True) == []


@pytest.mark.parametrize("training", [True, False])
def test_norms_under_autocast_are_derived_as_they_are_executed(training: bool) -> None:
    """Their statistics have the weights' type, while torch tells that of the input."""

    def build() -> potl.Task:
        norm = nn.BatchNorm1d(6).train(training)
        net = nn.Sequential(nn.Linear(4, 6), norm, nn.ReLU(), nn.Linear(6, 2))
        data = torch.utils.data.TensorDataset(torch.ones(8, 4), torch.zeros(8).long())
        return potl.Task(
            net,
            torch.optim.SGD(net.parameters(), lr=0.1),
            data,
            nn.functional.cross_entropy,
            batch_size=4,
            epochs=1,
            autocast=torch.bfloat16,
        )

    executed = traced_nets.traced(build, 1)
    assert structural_difference(derived(build), executed.operators) is None
    assert potl.check(build, disputable=True) == []


def test_the_command_fails_only_if_it_is_asked_to(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = types.ModuleType("disputed_tasks")
    tasks.build = functools.partial(deciding, "if")  # type: ignore[attr-defined]
    tasks.mlp = traced_nets.mlp  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "disputed_tasks", tasks)
    command = ["check", "disputed_tasks:build"]
    assert _cli.run(command) == 0
    assert "no dispute about it could be decided: test_derive.py:" in capsys.readouterr().out
    assert _cli.run([*command, "--disputable"]) == 3
    assert "torch.where" in capsys.readouterr().out
    assert _cli.run(["check", "disputed_tasks:mlp", "--disputable", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["disputable"] is True
    assert _cli.run(["check", "disputed_tasks:mlp", "--disputable", "--arithmetic", "stock"]) == 3


def test_deriving_holds_no_second_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """The task's own tensors are there once, and only until the step begins."""

    def no_copy(*given: object, **options: object) -> object:
        raise AssertionError("the state is copied")

    held: set[tuple[int, int]] = set()

    class Looking(potl.Task):
        def compute_loss(self, batch: Any, reduction: str = "mean") -> torch.Tensor:
            fake = [isinstance(one, FakeTensor) for one in self.model.parameters()]
            held.add((len(fake), sum(fake)))
            return super().compute_loss(batch, reduction)

    def build() -> potl.Task:
        made = traced_nets.mlp_adamw()
        made.__class__ = Looking
        return made

    job = job_of(build)
    with open_checked(build, job) as session, session.active():
        session.run_step(1, session.sample_ids(1))
        held.clear()
        monkeypatch.setattr(_core.State, "capture", no_copy)
        counting = Counting(_roots._of_tensor())
        monkeypatch.setattr(_roots, "_of_tensor", lambda: counting)
        operators = derive_step(session, 2)
        # Nothing is hashed but the batch.
        assert counting.calls == 2
    parameters = len(list(build().model.parameters()))
    assert held == {(parameters, parameters)}
    monkeypatch.undo()
    executed = traced_nets.traced(traced_nets.mlp_adamw, 2).operators
    assert len(operators) == len(executed)


class Counting:
    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.calls = function, 0

    def __call__(self, *given: Any) -> Any:
        self.calls += 1
        return self.function(*given)
