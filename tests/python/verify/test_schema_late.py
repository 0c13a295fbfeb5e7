# SPDX-License-Identifier: Apache-2.0
"""What code of the user's own makes after the first steps accuses nobody, and excuses nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from lawful import Steps, net, task
from torch import nn
from verifying import judged

import potl
from potl import Task, _core
from potl._job._session import Session
from potl._task._forms import OPEN, form, grown
from potl._verify._schema import Schema
from potl._verify._workload import Unjudged, Workload

LATE = 5  # the first step whose state has it


class Lookahead(torch.optim.SGD):
    """Its slow weights appear with the first step that uses them."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, lr=0.05, momentum=0.9)
        self.param_groups[0].update(done=0, known=1.0)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        super().step(closure)
        (group,) = self.param_groups
        group["done"] += 1
        for parameter in group["params"] if group["done"] % LATE == 0 else ():
            slow = self.state[parameter].setdefault("slow", parameter.detach().clone())
            parameter.copy_(slow.lerp_(parameter, 0.5))


def with_lookahead() -> Task:
    model = net()
    return task(model, Lookahead(model.parameters()))


class Bank(nn.Module):
    """Changes a buffer late: `change` says how."""

    bank: torch.Tensor
    calls: torch.Tensor

    def __init__(self, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.net, self.change = net(), change
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("bank", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if int(self.calls) == LATE:
            self.bank = self.change(self.bank)
        out: torch.Tensor = self.net(x)
        return out


def with_bank() -> Task:
    return task(Bank(lambda bank: torch.cat([bank, torch.ones(2)])))


def with_mask() -> Task:
    return task(Bank(lambda bank: bank - torch.inf))


class Notes:
    """A loss that keeps notes: of each stretch of steps, and a tensor that becomes longer."""

    def __init__(self) -> None:
        self.by_stretch: dict[str, int] = {"0": 0}
        self.kept = torch.zeros(1)

    def __call__(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        stretch = str(sum(self.by_stretch.values()) // (LATE - 1))
        self.by_stretch[stretch] = self.by_stretch.get(stretch, 0) + 1
        self.kept = torch.ones(1 + int(stretch))
        return F.cross_entropy(output, target)

    def state_dict(self) -> dict[str, Any]:
        return {"by_stretch": dict(self.by_stretch), "kept": self.kept}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.by_stretch, self.kept = dict(state["by_stretch"]), state["kept"].clone()


def with_notes() -> Task:
    notes = Notes()
    return task(net(), loss=notes, state={"notes": notes})


BUILDS = (with_lookahead, with_bank, with_mask, with_notes)


@pytest.mark.parametrize("arithmetic", ["auto", "stock"])
@pytest.mark.parametrize("build", BUILDS)
def test_what_the_users_code_makes_late_is_inconclusive_and_has_a_remedy(
    build: Callable[[], Task], arithmetic: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # A check sees what comes as early as this.
    job = potl.Job.create(build, seed=7, checkpoint_every=3, arithmetic=arithmetic, check=False)
    run = potl.record(build, tmp_path / "run", job=job)
    assert ("the state of step 6, " in caplog.text) is (build is not with_mask)
    report = judged(run, job, build, potl.PEV(fraction=0.5), potl.Replay(samples=3))
    assert report.verdict == "inconclusive", report.sentence
    assert any("make it in build()" in one.reason for one in report.findings)


@pytest.mark.parametrize("arithmetic", ["auto", "stock"])
@pytest.mark.parametrize("build", [with_lookahead, with_notes])
def test_no_job_is_made_of_what_the_check_sees_being_made_late(
    build: Callable[[], Task], arithmetic: str
) -> None:
    with pytest.raises(potl.NotReplayable, match="what the first two do not show") as caught:
        potl.Job.create(build, seed=7, checkpoint_every=3, arithmetic=arithmetic)
    [problem] = caught.value.problems
    assert "make it in build()" in problem.remedy


class SlowWeights(Task):
    """A Lookahead around any optimizer, as the pages write it."""

    slow: nn.Module

    def step(self, batch: Any) -> torch.Tensor:
        loss = super().step(batch)
        self.slow.count += 1
        if int(self.slow.count) % LATE == 0:
            with torch.no_grad():
                for slow, fast in zip(self.slow.parameters(), self.model.parameters(), strict=True):
                    fast.copy_(slow.lerp_(fast, 0.5))
        return loss


def with_slow_weights() -> Task:
    model = net()
    slow = copy.deepcopy(model)
    slow.register_buffer("count", torch.tensor(0))
    optimizer = torch.optim.AdamW(model.parameters())
    made = task(model, optimizer, SlowWeights, state={"slow": slow})
    made.slow = slow  # type: ignore[attr-defined]
    return made


def test_slow_weights_beside_the_optimizer_are_accepted(tmp_path: Path) -> None:
    job = potl.Job.create(with_slow_weights, seed=7, checkpoint_every=3)
    run = potl.record(with_slow_weights, tmp_path / "run", job=job)
    report = judged(run, job, with_slow_weights, potl.Replay(samples=3))
    assert report.verdict == "accepted", report.sentence


# ---------------------------------------------------------------------- what stays a rejection


def own() -> Task:
    """Parts of the user's own beside torch's."""
    model = Bank(lambda bank: bank)
    notes = Notes()
    optimizers = [
        Lookahead(model.net[0].parameters()),  # type: ignore[index]
        torch.optim.Adam([*model.net[1].parameters(), *model.net[3].parameters()]),  # type: ignore[index]
    ]
    return task(model, optimizers, state={"notes": notes})


@pytest.fixture(scope="module")
def job() -> potl.Job:
    return potl.Job.create(own, seed=7, checkpoint_every=3, check=False)


@pytest.fixture(scope="module")
def workload(job: potl.Job) -> Iterator[Workload]:
    with Session.open(own, seed=7, job=job) as session, session.active():
        yield Workload(session, Schema(session, Steps()), follows=False)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def judge(job: potl.Job, workload: Workload) -> Callable[[Callable[[Task], None]], Any]:
    """What a verifier says of the state after step 3 of `own`, edited."""

    def edited(edit: Callable[[Task], None]) -> _core.State:
        with Session.open(own, seed=7, job=job) as trainer:
            for step in (1, 2, 3):
                trainer.run_step(step, trainer.sample_ids(step))
            edit(trainer.task)
            return trainer.capture()

    def said(edit: Callable[[Task], None]) -> Any:
        state = edited(edit)
        return workload.problem(state, 3, False) or (workload.not_finite(state), "")

    return said


def first(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    kept: dict[str, Any] = optimizer.state[optimizer.param_groups[0]["params"][0]]
    return kept


def stash(number: int) -> Callable[[Task], None]:
    return lambda task: first(task.optimizers[number]).update(stash=torch.ones(4))


def put_buffer(module: str, name: str, value: torch.Tensor) -> Callable[[Task], None]:
    return lambda task: task.model.get_submodule(module).register_buffer(name, value)


def both(*edits: Callable[[Task], None]) -> Callable[[Task], None]:
    return lambda task: [edit(task) for edit in edits].clear()


def decayed(number: int, value: object = 1.0) -> Callable[[Task], None]:
    return lambda task: task.optimizers[number].param_groups[0].update(weight_decay=value)


def estimated(value: object) -> Callable[[Task], None]:
    return lambda task: task.optimizers[0].param_groups[0].update(known=value)


def halved(task: Task) -> None:
    kept = first(task.optimizers[0])
    kept["momentum_buffer"] = kept["momentum_buffer"].bfloat16()


def forgotten(task: Task) -> None:
    first(task.optimizers[0]).pop("momentum_buffer")


def test_only_what_is_new_in_parts_of_the_users_own_is_let_pass(judge: Any) -> None:
    def says(edit: Callable[[Task], None]) -> Any:
        return judge(edit)[0]

    assert says(lambda task: None) == ""
    assert says(stash(0)) == says(put_buffer("", "bank", torch.ones(7))) == "verifier_error"
    assert says(put_buffer("", "bank", torch.ones(3, dtype=torch.float64))) == "unknown_form"
    assert says(put_buffer("net.1", "running_mean", torch.ones(7))) == "unknown_form"
    assert says(stash(1)) == says(both(stash(0), stash(1))) == "unknown_form"
    assert says(halved) == says(forgotten) == "unknown_form"
    assert says(decayed(0)) == says(both(stash(0), decayed(0))) == "verifier_error"
    assert says(decayed(1)) == says(both(decayed(0), decayed(1))) == "unlawful"
    assert says(decayed(0, "1")) == says(decayed(0, torch.ones(1))) == "unknown_form"
    assert says(estimated(2.0)) == says(estimated(torch.inf)) == ""  # which replays judge
    assert says(estimated("2")) == says(estimated(torch.ones(1))) == "unknown_form"
    assert says(estimated(torch.nan)) == "optimizers/0/param_groups/0/known is NaN"


@pytest.mark.parametrize(
    "tree",
    [
        [],
        {},
        {"model": {"buffers": {7: 1}, "extra": []}, "optimizers": [[], {}], "state": {1: 2}},
        {"model": {"buffers": []}, "optimizers": [{"state": [1]}, 2], "state": {"notes": [3]}},
        {"model": 1, "optimizers": {"state": 1}, "schedulers": 2, "state": 3, "ema": 4},
    ],
)
def test_no_form_is_too_odd_to_be_rejected(workload: Workload, tree: Any) -> None:
    problem = workload.problem(_core.State.capture(tree), 3, False)
    assert problem is not None and problem[0] == "unknown_form"


def test_infinities_are_let_pass_in_buffers_of_the_users_own_alone(judge: Any) -> None:
    masked = put_buffer("", "bank", torch.full((3,), -torch.inf))
    with pytest.raises(Unjudged, match="model/buffers/bank holds an infinity"):
        judge(masked)

    def overflown(task: Task) -> None:
        task.model.get_submodule("net.1").get_buffer("running_var").fill_(torch.inf)

    assert judge(both(masked, overflown))[0] == "model/buffers/net.1.running_var holds an infinity"


def test_growing_is_what_becomes_more() -> None:
    def state(**parts: Any) -> Any:
        return _core.State.capture(parts).tree()

    known = state(a={"b": 1}, c=[1, 2], d=(1, {"e": 2}))
    more = state(a={"b": 2, "x": "y"}, c=[1, 2], d=(3, {"e": 4, "f": 5}))
    other = state(a={"b": "text"}, c=[1], d=(1,))
    law = form(known)
    assert _core.unlawful(_core.State.capture(more), law) is not None
    assert _core.unlawful(_core.State.capture(more), grown(law, more)) is None
    found = _core.unlawful(_core.State.capture(other), grown(law, other))
    assert found is not None and found.path == "a/b"
    assert grown(OPEN, known) == OPEN
    each = ("each", ("any", [form({"b": 1}), form(None)]))
    assert (
        _core.unlawful(_core.State.capture([{"b": 1, "c": 2}]), grown(each, [{"b": 1, "c": 2}]))
        is None
    )
