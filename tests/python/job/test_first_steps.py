# SPDX-License-Identifier: Apache-2.0
"""An exact job says where its first steps end. Who ends them otherwise is told, and accuses nobody.

The other machine is a rounding of exp: processors cannot be exchanged in a test.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tasks
import torch
from torch import nn
from torch.nn import functional

import potl
from potl import _core
from potl._job import _first_steps, _trial
from potl._job._agreement import open_checked
from potl._remote._remote import Place
from potl._verify import _worker

OTHER_BITS = r"step {} ends in other bits on this machine than on the one that made the job"
REMEDY = "compute it in torch or in integers, or use a machine like that one"

# The first step that this machine computes otherwise.
_machine = {"from": math.inf}


@pytest.fixture(autouse=True)
def the_machine_of_the_job() -> Iterator[None]:
    _machine["from"] = math.inf
    yield
    _machine["from"] = math.inf


def another_machine(first: int = 1) -> None:
    _machine["from"] = first


def exp(x: float, step: int) -> float:
    """NumPy's, as another processor might have it."""
    out = np.exp(np.float32(x))
    # Of more than one bit, so that no later rounding hides it.
    return float(out * np.float32(1 + 2**-8) if step >= _machine["from"] else out)


# ---------------------------------------------------------------------- tasks that leave torch


def updated(task: potl.Task, loss: torch.Tensor) -> torch.Tensor:
    task.optimizers[0].zero_grad()
    loss.backward()
    task.update(loss.detach())
    return loss.detach()


class Weighing(potl.Task):
    """Weighs the samples of a step by their first feature."""

    def compute_loss(self, batch: Any, reduction: str = "mean") -> torch.Tensor:
        loss = super().compute_loss(batch, reduction)
        return loss * exp(float(batch[0][0, 0]), self.schedulers[0].last_epoch + 1)


class Stepping(Weighing):
    def step(self, batch: Any) -> torch.Tensor:
        return updated(self, self.compute_loss(batch))


class Reporting(potl.Task):
    """Trains in torch, and reports a loss that NumPy computes."""

    def step(self, batch: Any) -> torch.Tensor:
        x, y = batch
        step = self.schedulers[0].last_epoch + 1
        loss = updated(self, functional.cross_entropy(self.model(x), y))
        return torch.tensor(exp(-float(loss), step))


def made(kind: type[potl.Task], **options: Any) -> Callable[[], potl.Task]:
    def build() -> potl.Task:
        model = nn.Sequential(nn.Linear(8, 6), nn.Dropout(0.2), nn.ReLU(), nn.Linear(6, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1000)  # which counts the steps
        chosen: dict[str, Any] = {"dataset": tasks.task(model).dataset, "batch_size": 12}
        chosen |= {"epochs": 3, "loss": functional.cross_entropy, "scheduler_interval": "step"}
        return kind(model=model, optimizer=optimizer, scheduler=schedule, **{**chosen, **options})

    return build


weighing, stepping, reporting = made(Weighing), made(Stepping), made(Reporting, loss=None)


def create(build: Callable[[], potl.Task], **options: Any) -> potl.Job:
    options = {"seed": 7, "checkpoint_every": 4, "check": False, **options}
    return potl.Job.create(build, **options)


def pins(job: potl.Job) -> Any:
    return job.core.fields()["task"].get("first_steps")


def with_pins(job: potl.Job, value: Any) -> potl.Job:
    return job.replace(task={**job.core.fields()["task"], "first_steps": value})


def without_pins(job: potl.Job) -> potl.Job:
    return job.replace(task=_first_steps.without_ends(job.core.fields()["task"]))


# ---------------------------------------------------------------------- what is pinned


def test_a_job_in_another_arithmetic_says_nothing_of_the_first_steps(tmp_path: Path) -> None:
    job = create(tasks.plain)
    assert pins(job.replace(arithmetic="ord32")) == pins(job) is not None
    other = job.replace(arithmetic="cr32")
    assert pins(other) is None
    assert len(potl.record(tasks.plain, tmp_path / "run", job=other).losses) == other.steps


def recorded_ends(run: Path, job: potl.Job) -> list[str]:
    steps = _core.Evidence.open(str(run), job=job.core, commitment=None).steps()
    return [
        hashlib.sha256(b"potl.step.v1\0" + state + struct.pack(">d", loss)).hexdigest()
        for state, loss in zip(steps["state"], steps["loss"], strict=True)
    ]


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize(
    "build",
    [
        *(weighing, stepping, reporting, made(Weighing, accumulate=3)),
        *(tasks.convolution, tasks.adam, tasks.scaled),
    ],
    ids=["loss", "step", "report", "micro-batches", "batch norm", "adam", "skipped updates"],
)
def test_a_job_says_where_the_steps_that_were_tried_end_in_a_recording(
    build: Callable[[], potl.Task], check: bool, tmp_path: Path
) -> None:
    job = create(build, check=check)
    run = potl.record(build, tmp_path / "run", job=job)
    assert pins(job) == recorded_ends(run.path, job)[: 2 if check else 1]


def orthogonal() -> potl.Task:
    task = weighing()
    with torch.no_grad():
        weight = nn.init.orthogonal_(task.model[0].weight)
        weight *= 1 if _machine["from"] > 1 else 1 + 2**-16
    return task


def test_first_steps_begin_with_the_state_that_the_job_brings(tmp_path: Path) -> None:
    job = create(orthogonal, check=True)
    assert job.initial is not None and len(pins(job)) == 2
    another_machine()
    with pytest.raises(potl.JobMismatch, match=OTHER_BITS.format(1)):
        potl.record(orthogonal, tmp_path / "other", job=job)
    another_machine(2)
    with pytest.raises(potl.JobMismatch, match=OTHER_BITS.format(2)):
        potl.record(orthogonal, tmp_path / "run", job=job)


def test_a_training_of_one_step_pins_one(tmp_path: Path) -> None:
    build = made(Stepping, epochs=0, max_steps=1)
    job = create(build, check=True)
    run = potl.record(build, tmp_path / "run", job=job)
    assert pins(job) == recorded_ends(run.path, job) and len(pins(job)) == 1


@pytest.mark.parametrize("arithmetic", ["stock", "log64"])
def test_arithmetic_that_has_other_bits_elsewhere_pins_none(arithmetic: str) -> None:
    job = create(tasks.plain, arithmetic=arithmetic)
    assert pins(job) is None
    assert with_pins(job, ["0" * 64]).core.first_steps() == []


def test_a_loss_that_is_no_number_is_one_bit_pattern() -> None:
    nan = struct.unpack(">d", bytes.fromhex("fff8000000000001"))[0]
    assert _first_steps.end_of(bytes(32), nan) == _first_steps.end_of(bytes(32), math.nan)
    assert _first_steps.end_of(bytes(32), 0.0) != _first_steps.end_of(bytes(32), -0.0)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every step that is trained."""
    out: list[int] = []
    run_step = potl.Session.run_step

    def counted(self: potl.Session, step: int, *others: Any, **options: Any) -> Any:
        out.append(step)
        return run_step(self, step, *others, **options)

    monkeypatch.setattr(potl.Session, "run_step", counted)
    return out


def test_no_step_is_trained_to_be_pinned_or_compared(
    trained: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def all_of(name: str) -> list[int]:
        trained.clear()
        job = create(stepping, check=True)
        assert (pins(job) is None) == (name == "unpinned")
        run = potl.record(stepping, tmp_path / name, job=job)
        assert verified(run, job, stepping).verdict == "accepted"
        return [*trained]

    pinned = all_of("pinned")
    monkeypatch.setattr(_trial._core, "pins_first_steps", lambda arithmetic: False)
    assert all_of("unpinned") == pinned


# ---------------------------------------------------------------------- who trains


@pytest.mark.parametrize("build", [weighing, stepping, reporting], ids=["loss", "step", "report"])
@pytest.mark.parametrize("step", [1, 2])
def test_a_trainer_is_told_at_once(
    build: Callable[[], potl.Task], step: int, tmp_path: Path
) -> None:
    job = create(build, check=True)
    another_machine(step)
    with pytest.raises(potl.JobMismatch, match=OTHER_BITS.format(step)) as error:
        potl.record(build, tmp_path / "run", job=job)
    assert "a teacher's weights" in str(error.value)
    assert REMEDY in str(error.value)
    # What was recorded before is of use on a machine like the job's.
    _machine["from"] = math.inf
    run = potl.record(build, tmp_path / "run", job=job)
    assert verified(run, job, build).verdict == "accepted"


def test_a_difference_in_later_steps_is_not_seen(tmp_path: Path) -> None:
    job = create(stepping, check=True)
    another_machine(3)
    potl.record(stepping, tmp_path / "run", job=job)


def test_what_the_machines_differ_in_is_named(tmp_path: Path) -> None:
    job = create(stepping)
    elsewhere = {**job.core.fields()["environment"], "instructions": "AVX1024", "threads": 99}
    another_machine()
    with pytest.raises(potl.JobMismatch, match=r"\(here instructions .+, there AVX1024\)"):
        potl.record(stepping, tmp_path / "run", job=job.replace(environment=elsewhere))


class Restless(potl.Task):
    def compute_loss(self, batch: Any, reduction: str = "mean") -> torch.Tensor:
        return super().compute_loss(batch, reduction) * next(_noise)


_noise = itertools.count(1)


def test_steps_that_nothing_seeds_are_called_so(tmp_path: Path) -> None:
    job = create(made(Restless))
    with pytest.raises(potl.JobMismatch, match="step 1 ends in other bits each time that"):
        potl.record(made(Restless), tmp_path / "run", job=job)


def test_an_audit_on_another_machine_accuses_nobody(tmp_path: Path) -> None:
    job = create(stepping)
    run = potl.record(stepping, tmp_path / "run", job=job)
    another_machine()
    with pytest.raises(potl.JobMismatch, match=OTHER_BITS.format(1)):
        potl.audit(run, job=job, task=stepping, log=tmp_path / "log")


def test_who_checks_an_audit_on_another_machine_accuses_nobody(tmp_path: Path) -> None:
    job, nonce, log = create(stepping), bytes([9] * 32), tmp_path / "log"
    run = potl.record(stepping, tmp_path / "run", job=job)
    assert potl.audit(run, job=job, task=stepping, log=log, nonce=nonce).agrees
    another_machine()
    found = potl.check_audit(log, run=run, job=job, task=stepping, nonce=nonce)
    assert found.worked is None
    assert OTHER_BITS.format(1) in found.reason


# ---------------------------------------------------------------------- who verifies


def verified(
    run: Any, job: potl.Job | None, build: Callable[[], potl.Task], **options: Any
) -> potl.Report:
    options = {"commitment": run.commit(), "nonce": bytes([1] * 32), **options}
    return potl.verify(run, job=job, task=build, ledger=None, **options)


CHECKS: list[list[Any]] = [[potl.Replay(samples=3)], [potl.PEV(fraction=1.0)], []]
NAMES = ["replay", "pev", "all"]


@pytest.mark.parametrize("checks", CHECKS, ids=NAMES)
@pytest.mark.parametrize("build", [weighing, stepping, reporting], ids=["loss", "step", "report"])
def test_a_verifier_on_another_machine_rejects_nothing(
    build: Callable[[], potl.Task], checks: list[Any], tmp_path: Path
) -> None:
    job = create(build, check=True)
    run = potl.record(build, tmp_path / "run", job=job)
    another_machine()
    report = verified(run, job, build, checks=checks or None)
    assert report.verdict == "inconclusive"
    assert OTHER_BITS.format(1) in report.json() and REMEDY in report.json()
    assert not any(one.result == "reject" for one in report.findings)


class Naming(torch.optim.SGD):
    """Keeps what it counts under another name in another version of its library."""

    def step(self, closure: Any = None) -> Any:
        name = "count" if _machine["from"] == math.inf else "updates"
        for parameter in self.param_groups[0]["params"]:
            self.state[parameter][name] = self.state[parameter].get(name, 0) + 1
        return super().step(closure)


def naming() -> potl.Task:
    model = nn.Linear(8, 4)
    return tasks.task(model, Naming(model.parameters(), lr=0.1))


@pytest.mark.parametrize("checks", CHECKS, ids=NAMES)
def test_a_verifier_whose_states_have_another_form_rejects_nothing(
    checks: list[Any], tmp_path: Path
) -> None:
    job = create(naming)
    without = without_pins(job)
    run = potl.record(naming, tmp_path / "run", job=job)
    earlier = potl.record(naming, tmp_path / "earlier", job=without)
    another_machine()
    report = verified(run, job, naming, checks=checks or None)
    assert report.verdict == "inconclusive", report.json()
    assert OTHER_BITS.format(1) in report.json()
    report = verified(earlier, without, naming, checks=checks or None)
    assert report.verdict == "rejected" and "has not the agreed form" in report.json()


@pytest.mark.parametrize(
    ("build", "checks"),
    [(weighing, CHECKS[2]), (stepping, CHECKS[1]), (reporting, CHECKS[0])],
    ids=["loss, all", "step, pev", "report, replay"],
)
def test_jobs_of_earlier_builds_are_judged_as_before(
    build: Callable[[], potl.Task], checks: list[Any], tmp_path: Path
) -> None:
    job = without_pins(create(build))
    run = potl.record(build, tmp_path / "run", job=job)
    assert verified(run, job, build).verdict == "accepted"
    another_machine()
    assert verified(run, job, build, checks=checks or None).verdict == "rejected"
    potl.record(build, tmp_path / "other", job=job)


def test_states_that_are_derived_on_another_machine_reject_nothing(tmp_path: Path) -> None:
    job = create(stepping, store_every=12)
    run = potl.record(stepping, tmp_path / "run", job=job)
    another_machine()
    report = verified(run, job, stepping, checks=[potl.PEV(fraction=1.0)])
    assert report.verdict == "inconclusive"
    assert OTHER_BITS.format(1) in report.json()


@pytest.mark.parametrize("step", [1, 2])
def test_who_differs_from_the_job_as_the_trainer_does_accepts_nothing(
    step: int, tmp_path: Path
) -> None:
    job = create(stepping, check=True)
    another_machine(step)
    with potl.Prover(stepping, tmp_path / "run", job=job, check_job=False) as prover:
        prover.run_to_the_end()
    report = verified(prover.run, job, stepping)
    assert report.verdict == "inconclusive"
    assert OTHER_BITS.format(step) in report.sentence
    assert not any(one.result == "reject" for one in report.findings)


def test_the_trainers_own_pins_excuse_nobody(tmp_path: Path) -> None:
    job = create(stepping)
    run = potl.record(stepping, tmp_path / "run", job=job)
    another_machine()
    assert verified(run, job, stepping).verdict == "inconclusive"
    assert verified(run, None, stepping).verdict == "rejected"


class Cheating(Stepping):
    """Leaves out half of each batch, later on."""

    def step(self, batch: Any) -> torch.Tensor:
        half = self.schedulers[0].last_epoch >= 4
        return super().step([part[:6] for part in batch] if half else batch)


def cheated(job: potl.Job, path: Path) -> potl.Run:
    with potl.Prover(made(Cheating), path, job=job, check_job=False) as prover:
        prover.run_to_the_end()
    return prover.run


@pytest.mark.parametrize("checks", CHECKS, ids=NAMES)
def test_false_steps_are_rejected_where_the_machine_ends_the_first_ones_as_agreed(
    checks: list[Any], tmp_path: Path
) -> None:
    job = create(stepping, check=True)
    run = cheated(job, tmp_path / "run")
    assert recorded_ends(run.path, job)[:2] == pins(job)
    report = verified(run, job, stepping, checks=checks or None)
    assert report.verdict == "rejected"
    assert "on this machine than on the one" not in report.json()
    # Another machine does not know.
    another_machine()
    assert verified(run, job, stepping, checks=checks or None).verdict == "inconclusive"


def test_what_nobody_computed_rejects_on_any_machine(tmp_path: Path) -> None:
    job, key = create(stepping), tmp_path / "key.pem"
    run = potl.record(stepping, tmp_path / "run", job=job, key=key)
    other = potl.record(stepping, tmp_path / "other", job=job, key=key)
    another_machine()
    assert verified(run, job, stepping, commitment=other.commit()).verdict == "rejected"


def test_a_worker_looks_at_its_own_machine_and_trains_nothing_for_it(
    trained: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = create(stepping)
    run = potl.record(stepping, tmp_path / "run", job=job)
    note = str(run.commit())
    request = _core.SegmentRequest(start=4, end=8)

    def answered(own: bool) -> Any:
        evidence = _core.Evidence.open(
            str(run.path), job=job.core if own else None, commitment=note
        )
        monkeypatch.setattr(_worker, "_ready", None)
        setup = _worker.Setup.of(
            Place.of(run.path),
            evidence,
            note=note,
            task=f"{__name__}:stepping",
            timeout=None,
            state_bytes=evidence.load_state(0).nbytes,
            max_checkpoint_bytes=None,
        )
        trained.clear()
        return _worker.fulfil(setup, request)

    assert answered(True).status == "ok" and answered(True).digest_equal
    another_machine()
    assert answered(True).status == "unrepeatable"
    steps = [*trained]
    found = answered(False)
    assert found.status == "ok" and not found.digest_equal
    assert steps == trained
    monkeypatch.setattr(_worker, "_ready", None)


def test_a_monitor_on_another_machine_rejects_nothing(tmp_path: Path) -> None:
    job = create(stepping)
    run = potl.record(stepping, tmp_path / "run", job=job)
    another_machine()
    report = potl.monitor(run, job=job, task=stepping, every=0)
    assert report.verdict == "inconclusive"
    assert OTHER_BITS.format(1) in report.json()
    _machine["from"] = math.inf
    cheat = cheated(job, tmp_path / "cheat")
    assert potl.monitor(cheat, job=job, task=stepping, samples=3, every=0).verdict == "rejected"


# ---------------------------------------------------------------------- what a job may say


@pytest.mark.parametrize(
    "value",
    [3, "x", {}, [], ["0"], ["0" * 64] * 3, ["0" * 64, 1], ["0" * 63 + "\n"], ["G" * 64]],
    ids=repr,
)
def test_what_is_no_list_of_digests_is_malformed(value: Any, tmp_path: Path) -> None:
    job = with_pins(create(stepping), value)
    with pytest.raises(potl.MalformedError, match=r"task\.first_steps"):
        open_checked(stepping, job)
    with pytest.raises(potl.MalformedError, match=r"task\.first_steps"):
        potl.record(stepping, tmp_path / "run", job=job)


def test_jobs_pin_the_same_digests_for_ever() -> None:
    ends = _first_steps.end_of(bytes(32), 0.5)
    assert ends == "6712707409f1a372ad92ef0031ec25a69dfa022601a43bed2c46e6d34d2ac7b7"
