# SPDX-License-Identifier: Apache-2.0
"""What is not finite is never accepted, and accuses whom no replay confirms."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from elsewhere import STEPS, Elsewhere, Lost
from lawful import data, net
from torch import nn
from verifying import judged

import potl
from potl import Task
from potl._job._gradient_norm import GradientNorm
from potl._report._model import outcome_of, replays_of

FALSE = 14
ALL = potl.PEV(fraction=0.3), potl.Replay(samples=9, top_q=0)
ONE = potl.PEV(fraction=0.3), potl.Replay(samples=1, top_q=0)  # of 8


class Faithful(Task):
    """Keeps a weight that no output depends on, and says what its losses are."""

    cheat: Callable[[Task, torch.Tensor], torch.Tensor] | None = None

    def step(self, batch: Any) -> torch.Tensor:
        loss = super().step(batch)
        done = self.model.get_buffer("done")
        done += 1
        return loss if self.cheat is None or done != FALSE else type(self).cheat(self, loss)  # type: ignore[misc]


def faithful() -> Task:
    model = net()
    model.register_buffer("done", torch.zeros((), dtype=torch.int64))
    model.register_parameter("spare", nn.Parameter(torch.ones(3)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    options = {"dataset": data(), "loss": F.cross_entropy, "batch_size": 8, "max_steps": STEPS}
    return Faithful(model=model, optimizer=optimizer, **options)


def diverging() -> Task:
    """Its rate is right for the first steps."""
    model = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 if step < 9 else 1e9)
    return Task(
        model=model,
        optimizer=optimizer,
        scheduler=schedule,
        dataset=data(),
        loss=F.cross_entropy,
        batch_size=8,
        max_steps=STEPS,
    )


def diverging_elsewhere() -> Task:
    model = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e9)
    options = {"dataset": data(), "loss": F.cross_entropy, "batch_size": 8, "max_steps": STEPS}
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.0 if step < 9 else 1.0)
    return Elsewhere(model=model, optimizer=optimizer, scheduler=schedule, **options)


@pytest.mark.parametrize("arithmetic", ["ord32", "stock"])
def test_a_recipe_that_diverges_accuses_nobody(arithmetic: str, tmp_path: Path) -> None:
    job = potl.Job.create(diverging, seed=7, checkpoint_every=3, arithmetic=arithmetic)
    run = potl.record(diverging, tmp_path / "run", job=job)
    report = judged(run, job, diverging, *ALL)
    assert report.verdict == "inconclusive", report.sentence
    said = [one.reason for one in report.findings if one.rule == "transcript.finite"]
    assert any("and no run with such a step is accepted" in one for one in said)
    assert any(one.startswith("the last committed state is not finite") for one in said)
    report.write(tmp_path / "report.json")
    document = json.loads((tmp_path / "report.json").read_text(), parse_constant=pytest.fail)
    assert document["answer"].startswith("No run with NaN or infinities is accepted.")
    assert any("agree on another job" in one for one in document["next"]["steps"])
    assert not any("each says what was missing" in one for one in document["next"]["steps"])
    assert outcome_of(replays_of(document)) == "4 of 10 fit, 6 could not be judged"


def test_the_bits_of_a_nan_accuse_nobody(tmp_path: Path) -> None:
    job = potl.Job.create(diverging_elsewhere, seed=7, checkpoint_every=3)
    run = potl.record(diverging_elsewhere, tmp_path / "run", job=job)
    Elsewhere.there = True
    try:
        report = judged(run, job, diverging_elsewhere, *ALL)
    finally:
        Elsewhere.there = False
    other = [one for one in report.findings if "ends in another state" in one.reason]
    assert other and report.verdict == "inconclusive", report.sentence


@pytest.mark.parametrize("is_challenged", [False, True])
def test_the_bits_of_a_nan_accuse_nobody_where_states_are_derived(
    is_challenged: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = diverging_elsewhere
    job = potl.Job.create(build, seed=7, checkpoint_every=3, store_every=15)
    run = potl.record(build, tmp_path / "run", job=job)
    note = run.commit()
    options: dict[str, Any] = {"checks": [potl.Replay(samples=9, top_q=0)]}
    if is_challenged:
        drawn = potl.challenge(run, job=job, commitment=note, ledger=tmp_path / "ledger", **options)
        options = {"challenge": drawn}
    monkeypatch.setattr(Elsewhere, "there", True)
    if is_challenged:
        with pytest.raises(potl.MismatchError, match="only the bits of a NaN depend on them"):
            potl.rederive(run.path, task=build, challenge=drawn)
    report = potl.verify(run, job=job, commitment=note, task=build, ledger=None, **options)
    assert report.verdict == "inconclusive", report.sentence
    assert any("the bits of a NaN are the processor's" in one.reason for one in report.findings)


def lost() -> Task:
    model = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 2))
    model.register_buffer("done", torch.zeros((), dtype=torch.int64))
    optimizer = torch.optim.Adafactor(model.parameters(), lr=0.01)

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(output, target) * torch.where(model.done == 18, 1e25, 1.0)

    options = {"dataset": data(), "batch_size": 8, "max_steps": STEPS}
    return Lost(model=model, optimizer=optimizer, loss=loss, **options)


class Spoiled(Elsewhere):
    """Makes NaN of what no loss depends on, so that no record says so, and until `healed`."""

    healed = STEPS

    def step(self, batch: Any) -> torch.Tensor:
        loss = super().step(batch)
        done = self.model.get_buffer("done")
        done += 1
        if done in (17, self.healed):
            with torch.no_grad():
                self.model.get_parameter("spare")[1] = math.nan if done == 17 else 1.0
        return loss


class Healed(Spoiled):
    healed = 20


def spoiled(task: type[Spoiled] = Spoiled) -> Task:
    model = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 2))
    model.register_buffer("done", torch.zeros((), dtype=torch.int64))
    model.register_parameter("spare", nn.Parameter(torch.ones(3)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    options = {"dataset": data(), "loss": F.cross_entropy, "batch_size": 8, "max_steps": STEPS}
    return task(model=model, optimizer=optimizer, **options)


def healed() -> Task:
    return spoiled(Healed)


@pytest.mark.parametrize(
    "build",
    [lost, spoiled, healed],
    ids=["of an update", "that no record tells", "that passes"],
)
def test_who_cannot_derive_the_first_nan_withholds_nothing(
    build: Callable[[], Task], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = potl.Job.create(build, seed=7, checkpoint_every=3, store_every=15)
    run = potl.record(build, tmp_path / "run", job=job)
    given: dict[str, Any] = {"job": job, "commitment": run.commit()}
    checks = [potl.Replay(samples=9, top_q=0)]
    drawn = potl.challenge(run, **given, checks=checks, ledger=tmp_path / "ledger")
    with (
        monkeypatch.context() as there,
        pytest.raises(potl.MismatchError, match="state of step 18"),
    ):
        there.setattr(Elsewhere, "there", True)
        potl.rederive(run.path, task=build, challenge=drawn)
    report = potl.verify(run, **given, task=build, ledger=None, challenge=drawn)
    assert report.verdict == "inconclusive", report.sentence


class Rooted(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weight.sqrt(), self.bias)


class Turning(Task):
    """While `lying`, of a trainer who stores state 15 with a weight of the other sign."""

    lying = False
    done = 0

    def step(self, batch: Any) -> torch.Tensor:
        weight = next(self.model.parameters()).detach()
        if type(self).lying:
            weight.abs_()
        loss = super().step(batch)
        self.done += 1
        if type(self).lying and self.done == 15:
            weight[0, 0] *= -1
        return loss


def turning() -> Task:
    model = Rooted(6, 2)
    nn.init.constant_(model.weight, 0.5)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    options = {"dataset": data(), "loss": F.cross_entropy, "batch_size": 8, "max_steps": STEPS}
    return Turning(model=model, optimizer=optimizer, **options)


def test_a_nan_excuses_no_record_that_has_a_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = potl.Job.create(turning, seed=7, checkpoint_every=3, store_every=15)
    with monkeypatch.context() as cheat:
        cheat.setattr(Turning, "lying", True)
        run = potl.record(turning, tmp_path / "run", job=job)
    note = run.commit()
    for number in range(1, 60):  # all draws miss what is derived with probability 1e-9
        report = judged(
            run,
            job,
            turning,
            potl.Replay(samples=2, top_q=0, reach=0),
            commitment=note,
            nonce=bytes([number] * 32),
        )
        said = [one for one in report.findings if "from the state of step 15" in one.reason]
        if said:
            break
    assert report.verdict == "rejected", report.sentence
    assert "step 16 is the first that ends in other bits" in said[0].reason


def test_work_is_not_denied_by_the_bits_of_a_nan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build, nonce = diverging_elsewhere, bytes([9] * 32)
    job = potl.Job.create(build, seed=7, checkpoint_every=3)
    run = potl.record(build, tmp_path / "run", job=job)
    run.commit()
    potl.audit(run, job=job, task=build, log=tmp_path / "own", nonce=nonce)
    monkeypatch.setattr(Elsewhere, "there", True)
    found = potl.check_audit(tmp_path / "own", run=run, job=job, task=build, nonce=nonce, steps=20)
    assert found.worked is None and "the bits of a NaN are the processor's" in found.reason


@pytest.mark.parametrize(
    ("build", "step"),
    [(diverging_elsewhere, 13), (lost, 18)],
    ids=["of a loss", "the first one of an update"],
)
def test_an_audit_does_not_accuse_by_the_bits_of_a_nan(
    build: Callable[[], Task], step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = potl.Job.create(build, seed=7, checkpoint_every=3)
    run = potl.record(build, tmp_path / "run", job=job)
    monkeypatch.setattr(Elsewhere, "there", True)
    audit = potl.audit(run, job=job, task=build, log=tmp_path / "own")
    assert audit.difference is not None
    assert (audit.difference.step, audit.difference.field) == (step, "state")
    assert audit.agrees is None, audit.reason
    assert "no verifier accepts such a run" in audit.reason


def test_an_audit_does_not_agree_to_a_loss_that_is_not_finite(tmp_path: Path) -> None:
    job = potl.Job.create(diverging, seed=7, checkpoint_every=3, arithmetic="ord32")
    run = potl.record(diverging, tmp_path / "run", job=job)
    audit = potl.audit(run, job=job, task=diverging, log=tmp_path / "own")
    assert audit.difference is None and audit.steps == STEPS
    assert audit.agrees is None, audit.reason
    assert "no run with such a step is accepted" in audit.reason


def test_an_audit_accuses_of_what_came_before_a_nan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = potl.Job.create(diverging_elsewhere, seed=7, checkpoint_every=3)
    with monkeypatch.context() as cheat:
        cheat.setattr(Elsewhere, "nudged", True)
        run = potl.record(diverging_elsewhere, tmp_path / "run", job=job)
    log = tmp_path / "own"
    audit = potl.audit(run, job=job, task=diverging_elsewhere, log=log, to_the_end=True)
    assert audit.agrees is False and audit.difference is not None
    assert (audit.difference.step, audit.difference.field) == (3, "state")


def test_a_diff_says_what_the_bits_of_a_nan_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = potl.Job.create(diverging_elsewhere, seed=7, checkpoint_every=3)
    potl.record(diverging_elsewhere, tmp_path / "here", job=job)
    monkeypatch.setattr(Elsewhere, "there", True)
    potl.record(diverging_elsewhere, tmp_path / "there", job=job)
    found = potl.diff(tmp_path / "here", tmp_path / "there")
    assert any("the bits of a NaN are the processor's" in one for one in found.causes)


def guarded() -> Task:
    model = nn.Linear(6, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 if step < 9 else 3e39)
    options = {"dataset": data(), "batch_size": 8, "max_steps": STEPS, "grad_clip": 1.0}
    return Task(
        model=model, optimizer=optimizer, scheduler=schedule, loss=F.cross_entropy, **options
    )


def test_a_guarded_training_that_diverges_is_not_to_be_repeated() -> None:
    job = potl.Job.create(guarded, seed=7, checkpoint_every=3)
    guard = potl.SpotCheck(guarded, job=job, key=b"a secret of both sides", steps_at_risk=2)
    report = guard.train(potl.spot_check.Worker(guarded))
    assert report.verdict == "inconclusive", report.sentence
    (step,) = json.loads(report.json())["next"]["steps"]
    assert step.startswith("Agree on another job")


def _no_loss(task: Task, loss: torch.Tensor) -> torch.Tensor:
    return loss * math.nan


def _no_weight(task: Task, loss: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        task.model.get_parameter("spare")[1] = math.nan
    return loss


@pytest.mark.parametrize("arithmetic", ["ord32", "stock"])
@pytest.mark.parametrize("cheat", [_no_loss, _no_weight])
def test_a_number_that_no_step_lost_rejects_wherever_it_is(
    cheat: Callable[..., Any], arithmetic: str, tmp_path: Path
) -> None:
    job = potl.Job.create(faithful, seed=7, checkpoint_every=3, arithmetic=arithmetic)
    Faithful.cheat = cheat
    try:
        run = potl.record(faithful, tmp_path / "run", job=job)
    finally:
        Faithful.cheat = None
    report = judged(run, job, faithful, *ONE)
    assert report.verdict == "rejected", report.sentence
    places = [(one.first_step, one.last_step) for one in report.findings if one.result == "reject"]
    assert any(first <= FALSE <= last for first, last in places if first and last)


@pytest.mark.parametrize(
    ("arithmetic", "verdict"), [("ord32", "rejected"), ("stock", "inconclusive")]
)
def test_what_a_record_alone_says_of_gradients_rejects_in_exact_arithmetic(
    arithmetic: str, verdict: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = potl.Job.create(faithful, seed=7, checkpoint_every=3, arithmetic=arithmetic)
    steps = iter(range(1, STEPS + 1))
    with monkeypatch.context() as cheating:
        norm = property(lambda _: math.inf if next(steps) == FALSE else 1.0)
        cheating.setattr(GradientNorm, "value", norm)
        run = potl.record(faithful, tmp_path / "run", job=job)
    report = judged(run, job, faithful, *ONE)
    assert report.verdict == verdict, report.sentence
    assert f"step {FALSE}" in report.sentence
