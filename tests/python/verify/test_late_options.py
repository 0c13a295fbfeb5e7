# SPDX-License-Identifier: Apache-2.0
"""Options of the user's own optimizers are trained: what replays reproduce is accepted, and a false
one is found as a false moment is.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lawful import net, task
from transcript_helpers import rejected_by
from verifying import judged

import potl
from potl import Task, _core
from potl._task._own_parts import own_options

LATE = 5  # the first step that changes an option
FALSE = 14  # the step in which a trainer cheats


class Estimating(torch.optim.SGD):
    """Multiplies its rate by what it comes to know late, as D-Adaptation and Prodigy do."""

    cheat: Callable[[dict[str, Any]], None] | None = None
    killed_at = 0

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, lr=0.05)
        # "d" is Adafactor's, too.
        self.param_groups[0].update(done=0, d=1.0, limit=math.inf, trust=1.0, note=0.0)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        (group,) = self.param_groups
        group["done"] += 1
        if group["done"] == LATE:
            group["d"] = 1.5
        rate = group["lr"]
        group["lr"] = rate * min(group["d"] * group["trust"], group["limit"])
        super().step(closure)
        group["lr"] = rate
        if self.cheat is not None and group["done"] == FALSE:
            type(self).cheat(group)  # type: ignore[misc]
        if group["done"] == self.killed_at:
            raise KeyboardInterrupt


def build() -> Task:
    model = net()
    return task(model, Estimating(model.parameters()), epochs=10)


class Decaying(Estimating):
    """Changes late what belongs to the recipe."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        if self.param_groups[0]["done"] == LATE:
            self.param_groups[0]["weight_decay"] = 0.5
        super().step(closure)


@pytest.fixture(scope="module", params=["auto", "stock"])
def job(request: pytest.FixtureRequest) -> potl.Job:
    return potl.Job.create(build, seed=7, checkpoint_every=3, arithmetic=request.param)


@pytest.fixture(autouse=True)
def honest() -> Iterator[None]:
    yield
    Estimating.cheat, Estimating.killed_at = None, 0


def verified(
    run: potl.Run, job: potl.Job, samples: int = 7, by: Callable[[], Task] = build
) -> potl.Report:
    return judged(run, job, by, potl.PEV(fraction=0.5), potl.Replay(samples=samples))


def test_an_option_that_first_moves_late_is_accepted(
    job: potl.Job, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = potl.record(build, tmp_path / "run", job=job)
    report = verified(run, job)
    assert report.verdict == "accepted", report.sentence
    assert "inconclusive" not in caplog.text


def test_a_trainer_that_was_killed_behind_such_a_change_goes_on(
    job: potl.Job, tmp_path: Path
) -> None:
    Estimating.killed_at = LATE + 3
    with pytest.raises(KeyboardInterrupt):
        potl.record(build, tmp_path / "run", job=job)
    Estimating.killed_at = 0
    report = verified(potl.record(build, tmp_path / "run", job=job), job)
    assert report.verdict == "accepted", report.sentence


@pytest.mark.parametrize("name", ["d", "trust"])
def test_an_option_that_is_set_once_is_looked_at_wherever_it_was(
    job: potl.Job, tmp_path: Path, name: str
) -> None:
    Estimating.cheat = lambda group: group.update({name: 1e-3})
    run = potl.record(build, tmp_path / "run", job=job)
    Estimating.cheat = None
    report = verified(run, job, samples=1)  # of 8
    assert report.verdict == "rejected", report.sentence
    found = rejected_by(report.findings)
    assert "replay.optimizer" in found
    assert {one.last_step for one in report.findings if one.rule == "replay.optimizer"} >= {15}


def test_no_option_becomes_a_nan(job: potl.Job, tmp_path: Path) -> None:
    Estimating.cheat = lambda group: group.update(note=math.nan)
    run = potl.record(build, tmp_path / "run", job=job)
    report = verified(run, job)  # with steps that do the same, so that replays reproduce it
    assert report.verdict == "inconclusive", report.sentence
    assert "transcript.finite" in {one.rule for one in report.findings}
    Estimating.cheat = None
    assert verified(run, job, samples=1).verdict == "rejected"


def test_a_limit_becomes_infinite_where_replays_reproduce_it(job: potl.Job, tmp_path: Path) -> None:
    Estimating.cheat = lambda group: group.update(trust=math.inf, limit=1.0)
    run = potl.record(build, tmp_path / "run", job=job)
    report = verified(run, job)  # with steps that do the same
    assert report.verdict == "accepted", report.sentence
    Estimating.cheat = None
    report = verified(run, job, samples=1)
    assert report.verdict == "rejected", report.sentence
    assert "replay.optimizer" in rejected_by(report.findings)


def test_an_own_optimizer_that_changes_the_recipe_is_not_judged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def decaying() -> Task:
        model = net()
        return task(model, Decaying(model.parameters()), epochs=10)

    job = potl.Job.create(decaying, seed=7, checkpoint_every=3)
    run = potl.record(decaying, tmp_path / "run", job=job)
    remedy = "needs a name that torch's optimizers do not have"
    assert "weight_decay: is 0.5, agreed is 0" in caplog.text
    assert remedy in caplog.text
    report = verified(run, job, by=decaying)
    assert report.verdict == "inconclusive", report.sentence
    assert any(remedy in one.reason for one in report.findings)

    Estimating.killed_at = LATE + 3
    with pytest.raises(KeyboardInterrupt):
        potl.record(decaying, tmp_path / "killed", job=job)
    Estimating.killed_at = 0
    resumed = potl.record(decaying, tmp_path / "killed", job=job)
    assert verified(resumed, job, by=decaying).verdict == "inconclusive"


class Plain(torch.optim.SGD):
    """Keeps torch's step."""


def test_a_subclass_that_keeps_torchs_step_keeps_the_recipe(tmp_path: Path) -> None:
    cheats = False

    def plain() -> Task:
        model = net()
        optimizer = Plain(model.parameters(), lr=0.05)
        if cheats:
            steps = iter(range(1, 99))

            def decay(*_: Any) -> None:
                if next(steps) == FALSE:
                    optimizer.param_groups[0]["weight_decay"] = 0.5

            optimizer.register_step_post_hook(decay)
        return task(model, optimizer, epochs=10)

    job = potl.Job.create(plain, seed=7, checkpoint_every=3)
    cheats = True
    with pytest.raises(potl.NotReplayable, match="optimizers/0/0/weight_decay") as refused:
        potl.record(plain, tmp_path / "refused", job=job)
    assert "scheduler=" in str(refused.value)
    run = potl.record(plain, tmp_path / "run", job=job, check_job=False)
    cheats = False
    report = verified(run, job, by=plain)
    assert report.verdict == "rejected", report.sentence
    assert "agreed.recipe_state" in rejected_by(report.findings)


def test_options_by_torchs_names_are_the_recipes() -> None:
    names = {
        name
        for kind in vars(torch.optim).values()
        if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)
        for name in inspect.signature(kind).parameters
    }
    # Adafactor's threshold, and the base class's argument.
    assert names - set(_core.OPTIONS_OF_RECIPES) == {"d", "defaults"}
    parameters = [torch.nn.Parameter(torch.ones(1))]
    assert own_options(torch.optim.Adafactor(parameters)) == set()
    assert own_options(Estimating(parameters)) == {"done", "d", "limit", "trust", "note"}
