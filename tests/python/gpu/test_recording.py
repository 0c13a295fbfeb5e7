# SPDX-License-Identifier: Apache-2.0
"""A state is hashed by the device that holds it, and is recorded as if the CPU had.

Where there is no CUDA device, simulated blocks hash tensors of the CPU.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pure_format as pure
import pytest
import tasks
import torch
from torch import nn

import potl
from potl import Session, Task, _core
from potl._arithmetic import _library
from potl._job import _training_state
from potl._job._gradient_norm import GradientNorm
from potl._task._capture import TreeBuilder

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"

Build = Callable[[], Task]


@pytest.fixture(autouse=True)
def _hashing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    library = _library.module()
    if not GPU:
        library.use_device("cpu", importlib.import_module("potl._simulated").kernels())
        monkeypatch.setattr(_training_state, "HASHING", frozenset({"cpu"}))
    yield
    if not GPU:
        library.use_device("cpu", None)


@pytest.mark.parametrize(("gradient", "norm"), [(3e25, 5e25), (math.nan, math.nan)])
def test_gradients_are_told_to_be_finite_where_there_is_no_float64(
    gradient: float, norm: float
) -> None:
    weights = [nn.Parameter(torch.ones(1, device=DEVICE)) for _ in range(2)]
    optimizer = torch.optim.SGD(weights)
    watched = GradientNorm([optimizer])
    weights[0].grad, weights[1].grad = (torch.full_like(weights[0], g) for g in (gradient, 4e25))
    with potl.deterministic("ord32"):
        optimizer.step()
    assert watched.value == pytest.approx(norm, nan_ok=True)


def placed(device: str, build: Build) -> Task:
    task = build()
    task.model.to(device)
    return task


def on_device(build: Build) -> Build:
    return functools.partial(placed, DEVICE, build)


def mixed() -> Task:
    """Tensors of several types and layouts, one of them without elements."""
    task = tasks.channels_last()
    model = task.model
    model.register_buffer("empty", torch.empty(0, 3))
    model.register_buffer("narrow", torch.arange(5).bfloat16())
    model.register_buffer("turned", torch.arange(12.0).view(3, 4).t())
    model.register_buffer("imaginary", torch.arange(6.0).to(torch.complex64).conj())
    model.register_buffer("large", torch.arange(40_000))
    return task


BUILDS = [tasks.plain, tasks.adam, tasks.tied, tasks.frozen, tasks.batch_norm, mixed]


@pytest.mark.parametrize("build", BUILDS, ids=lambda build: build.__name__)
def test_a_device_finds_the_digest_of_a_capture(build: Build) -> None:
    with Session.open(on_device(build), seed=5) as session, session.active():
        for step, _, batch in session.batches(1, 3):
            session.run_step(step, batch)
            assert session._digest_there() == session.capture(keep=True).digest()
            assert session._digest_there() == session.capture().digest()


def test_what_lies_on_a_device_is_counted_though_it_is_copied() -> None:
    task = placed(DEVICE, mixed)
    builder = TreeBuilder(task)
    builder.tree({}, there=frozenset({DEVICE}))
    model = [*task.model.parameters(), *task.model.buffers()]
    assert builder.places == {torch.device(model[0].device): sum(one.nbytes for one in model)}


def test_a_state_that_the_cpu_holds_is_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_training_state, "HASHING", frozenset({"cuda"}))
    with Session.open(tasks.plain, seed=5) as session:
        assert session._digest_there() is None


@pytest.mark.skipif(not GPU, reason="no CUDA device, or a torch without CUDA")
def test_a_state_of_which_the_cpu_holds_much_is_left_to_it() -> None:
    class Halved(nn.Linear):
        """Its extra state stays on the CPU."""

        def get_extra_state(self) -> torch.Tensor:
            return torch.zeros(1 << 20)

        def set_extra_state(self, state: torch.Tensor) -> None: ...

    def build() -> Task:
        return tasks.task(Halved(8, 4).to("cuda"))

    with Session.open(build, seed=5) as session:
        assert session._digest_there() is None


def states(run: potl.Run) -> list[bytes]:
    """After each step, as the log has them."""
    return [one.state for one in pure.Run.read(run.path).records if isinstance(one, pure.Step)]


def test_a_run_is_recorded_as_if_the_cpu_had_hashed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = on_device(tasks.adam)
    job = potl.Job.create(build, seed=7, checkpoint_every=4)
    captured: list[int] = []
    whole = Session.capture

    def counted(session: Session, **options: bool) -> _core.State:
        captured.append(session.step)
        return whole(session, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Session, "capture", counted)
        run = potl.record(build, tmp_path / "there", job=job)
    # What is stored, and the first steps, to whose forms later ones are held, was copied.
    steps = job.core.steps
    assert set(captured) == {0, 1, 2, *range(4, steps, 4), steps}

    monkeypatch.setattr(_training_state, "HASHING", frozenset())
    assert states(run) == states(potl.record(build, tmp_path / "here", job=job))
    report = potl.verify(run, job=job, task=build, commitment=run.commit(), ledger=False)
    assert report.verdict == "accepted", report.sentence


def test_a_recording_goes_on_from_what_was_stored(tmp_path: Path) -> None:
    build = on_device(tasks.batch_norm)
    job = potl.Job.create(build, seed=7, checkpoint_every=4)
    with potl.Prover(build, tmp_path / "run", job=job) as prover:
        for step in prover.steps():
            if step.number == 6:
                break
    run = potl.record(build, tmp_path / "run", job=job)
    assert states(run)[-1] == states(potl.record(build, tmp_path / "whole", job=job))[-1]


def test_a_repetition_that_is_proved_sees_every_state(tmp_path: Path) -> None:
    build = on_device(tasks.plain)
    job = potl.Job.create(build, seed=7, checkpoint_every=4)
    run = potl.record(build, tmp_path / "run", job=job)
    audit = potl.audit(run, job=job, task=build, log=tmp_path / "log", nonce=bytes(range(32)))
    assert audit.agrees, audit.reason


@pytest.mark.parametrize("build", [tasks.plain, tasks.channels_last], ids=["mlp", "convolution"])
def test_a_run_in_log64_is_audited_on_a_cpu(build: Build, tmp_path: Path) -> None:
    """The device adds in another order than the CPU, which follows the trainer's log."""
    here = functools.partial(placed, "cpu", build)
    job = potl.Job.create(here, seed=7, checkpoint_every=4, arithmetic="log64")
    run = potl.record(on_device(build), tmp_path / "run", job=job)
    if not GPU:
        _library.module().use_device("cpu", None)
    audit = potl.audit(run, job=job, task=here, log=tmp_path / "log")
    assert audit.agrees, audit.reason
    report = potl.verify(run, job=job, task=here, commitment=run.commit(), ledger=False)
    assert report.verdict == "accepted", report.sentence


def test_an_audit_in_log64_on_a_device_is_refused(tmp_path: Path) -> None:
    build = on_device(tasks.plain)
    job = potl.Job.create(build, seed=7, checkpoint_every=4, arithmetic="log64")
    run = potl.record(build, tmp_path / "run", job=job)
    with pytest.raises(potl.NotReproducible, match="an audit in log64 on"):
        potl.audit(run, job=job, task=build, log=tmp_path / "log")
    # What the verifier's own device cannot do accuses nobody.
    report = potl.verify(run, job=job, task=build, commitment=run.commit(), ledger=False)
    assert report.verdict == "inconclusive", report.sentence
    assert "an audit in log64 on" in str(report), report
