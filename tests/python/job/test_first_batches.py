# SPDX-License-Identifier: Apache-2.0
"""A machine on which the user's data code computes other bits refuses the job, and accuses nobody.

The other machine is a number that the data code adds: processors cannot be exchanged in a test.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tasks
import torch
from torch.utils.data import Dataset, Subset, TensorDataset, default_collate

import potl
from potl._job import _first_batches
from potl._job._agreement import open_checked
from potl._remote._remote import Place
from potl._task._data import scan
from potl._task._sample_bytes import sample_bytes
from potl._verify import _worker

OTHER_BITS = "the batch of step {} has other bits on this machine"
REMEDY = "compute it in integers, or prepare the data once and store them, or use a machine like"

# What this machine adds.
_machine = {"adds": 0.0}


@pytest.fixture(autouse=True)
def this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    _machine["adds"] = 0.0
    monkeypatch.setattr(_first_batches, "_said", set())


def another_machine() -> None:
    _machine["adds"] = 1e-6


# ---------------------------------------------------------------------- data code of every kind


def augmented(sample: Any) -> Any:
    """Draws from all three generators, and computes nothing that depends on a processor."""
    x, y = sample
    noise = torch.rand(8) + random.random() + np.random.rand()
    return x + noise.to(x.dtype) + _machine["adds"], y


def mixed(samples: list[Any]) -> Any:
    x, y = default_collate(samples)
    return x.flip(0) + _machine["adds"], y


class Drawing(Dataset[Any]):
    """Augments while it reads, but not what is hashed: as a machine would that differs rarely."""

    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> Any:
        drawn = torch.rand(8)
        return tasks.X[index] + drawn, tasks.Y[index]


def transformed() -> potl.Task:
    return tasks.task(tasks.mlp(), transform=augmented)


def collated() -> potl.Task:
    return tasks.task(tasks.mlp(), collate_fn=mixed)


def drawing() -> potl.Task:
    return tasks.task(tasks.mlp(), dataset=Drawing())


def create(build: Callable[[], potl.Task], **options: Any) -> potl.Job:
    options = {"seed": 7, "checkpoint_every": 4, "check": False, **options}
    return potl.Job.create(build, **options)


def pins(job: potl.Job) -> Any:
    return job.core.fields()["task"].get("first_batches")


# ---------------------------------------------------------------------- what is pinned


@pytest.mark.parametrize("build", [transformed, collated, drawing])
def test_an_exact_job_pins_the_first_four_batches_of_the_users_code(build: Any) -> None:
    job = create(build)
    with open_checked(build, job) as session:
        made = [session.batch(step, session.sample_ids(step)) for step in (1, 2, 3, 4)]
    assert pins(job) == [
        hashlib.sha256(b"potl.batch.v1\0" + sample_bytes(batch)).hexdigest() for batch in made
    ]


def test_what_the_data_root_has_already_is_not_pinned() -> None:
    rows = Subset(TensorDataset(tasks.X, tasks.Y), range(40))
    for dataset in (TensorDataset(tasks.X, tasks.Y), rows):
        job = create(lambda dataset=dataset: tasks.task(tasks.mlp(), dataset=dataset))
        assert pins(job) is None


def test_stock_arithmetic_pins_no_bits() -> None:
    job = create(transformed, arithmetic="stock")
    assert pins(job) is None
    another_machine()
    open_checked(transformed, job).close()


def test_a_short_training_pins_as_many_as_it_has() -> None:
    def build() -> potl.Task:
        return tasks.task(tasks.mlp(), transform=augmented, epochs=0, max_steps=2)

    job = create(build)
    assert len(pins(job)) == 2
    open_checked(build, job).close()


def test_generators_and_data_are_as_before() -> None:
    def generators() -> tuple[Any, ...]:
        return torch.get_rng_state().tolist(), random.getstate(), repr(np.random.get_state())

    torch.randn(3)
    random.gauss(0, 1)
    np.random.normal()
    dataset = TensorDataset(tasks.X.clone(), tasks.Y)

    def build() -> potl.Task:
        return tasks.task(tasks.mlp(), dataset=dataset, transform=augmented)

    root, before = scan(dataset).root, generators()
    job = create(build)
    open_checked(build, job).close()
    assert pins(job) == pins(create(transformed))
    assert generators() == before and scan(dataset).root == root


class Pair(NamedTuple):
    x: Any
    y: Any


class Opaque:
    def __init__(self, x: Any) -> None:
        self.x = x


class Unwrapping(potl.Task):
    def compute_loss(self, batch: Any, reduction: str = "mean") -> Any:
        x, y = batch
        return super().compute_loss([getattr(x, "x", x), y], reduction)


def of_a_type(make: Callable[[Any], Any]) -> Callable[[], potl.Task]:
    def collate(samples: list[Any]) -> Any:
        x, y = default_collate(samples)
        return Pair(make(x), y)

    def build() -> potl.Task:
        task = tasks.task(tasks.mlp(), collate_fn=collate)
        task.__class__ = Unwrapping
        return task

    return build


def test_batches_without_canonical_bytes_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        job = create(of_a_type(Opaque))
        create(of_a_type(Opaque))
    assert pins(job) is None
    (warning,) = [one.getMessage() for one in caplog.records]
    assert warning.startswith("batch[0] is a ") and "Opaque, which has no canonical" in warning
    assert "So the job cannot pin its first batches" in warning
    open_checked(of_a_type(Opaque), job).close()


# ---------------------------------------------------------------------- who makes others


@pytest.mark.parametrize("build", [transformed, collated])
def test_a_trainer_is_refused_before_anything_is_trained(build: Any, tmp_path: Path) -> None:
    job = create(build)
    another_machine()
    with pytest.raises(potl.JobMismatch, match=OTHER_BITS.format(1)) as error:
        potl.record(build, tmp_path / "run", job=job)
    assert REMEDY in str(error.value)
    assert not potl._core.holds_run(str(tmp_path / "run"))


def restless(sample: Any) -> Any:
    x, y = sample
    return x + next(_noise), y


_noise = itertools.count()


def test_batches_that_nothing_seeds_are_called_so(tmp_path: Path) -> None:
    def build() -> potl.Task:
        return tasks.task(tasks.mlp(), transform=restless)

    job = create(build)
    with pytest.raises(potl.JobMismatch, match="another one each time that it is made"):
        potl.record(build, tmp_path / "run", job=job)


def test_what_the_machines_differ_in_is_named() -> None:
    job = create(transformed)
    elsewhere = {**job.core.fields()["environment"], "instructions": "AVX1024", "threads": 99}
    job = job.replace(environment=elsewhere)
    another_machine()
    with pytest.raises(potl.JobMismatch, match=r"\(here instructions .+, there AVX1024\)"):
        open_checked(transformed, job)


def test_a_verifier_is_told_and_gives_no_verdict(tmp_path: Path) -> None:
    job = create(transformed)
    run = potl.record(transformed, tmp_path / "run", job=job)
    note = run.commit()
    honest: dict[str, Any] = {"job": job, "commitment": note, "ledger": None}
    assert potl.verify(run, task=transformed, **honest).verdict == "accepted"
    (tmp_path / "run" / "checkpoints" / "step-4.safetensors").unlink()
    another_machine()
    with pytest.raises(potl.JobMismatch, match=OTHER_BITS.format(1)):
        potl.verify(run, task=transformed, **honest)
    # The job that the run brings pins them, too.
    with pytest.raises(potl.JobMismatch, match=OTHER_BITS.format(1)):
        potl.verify(run, task=transformed, **{**honest, "job": None})
    with pytest.raises(potl.JobMismatch, match=OTHER_BITS.format(1)):
        potl.rederive(run, task=transformed)


def stepping_a_set() -> potl.Task:
    """As build() is in a process in which a set of names has another order."""
    built = tasks.plain()
    named = [parameter for _, parameter in built.model.named_parameters()]
    optimizer = torch.optim.SGD(named[:: -1 if _machine["adds"] else 1], lr=0.1, momentum=0.9)
    return tasks.task(built.model, optimizer)


def configured() -> potl.Task:
    """As build() is where another configuration file lies."""
    return tasks.task(tasks.mlp(torch.nn.Dropout(0.5 if _machine["adds"] else 0.1)))


@pytest.mark.parametrize(
    ("build", "what"),
    [
        (transformed, OTHER_BITS.format(1)),
        (stepping_a_set, "optimizers/0 steps other parameters"),
        (configured, "Dropout.p is 0.5, agreed was 0.1"),
    ],
    ids=["batches", "order of parameters", "options of layers"],
)
def test_a_worker_that_makes_something_else_answers_nothing(
    build: Callable[[], potl.Task], what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = create(build)
    run = potl.record(build, tmp_path / "run", job=job)
    note = str(run.commit())
    evidence = potl._core.Evidence.open(str(run.path), job=job.core, commitment=note)
    setup = _worker.Setup.of(
        Place.of(run.path),
        evidence,
        note=note,
        task=f"{__name__}:{build.__name__}",
        timeout=None,
        state_bytes=evidence.load_state(0).nbytes,
        max_checkpoint_bytes=None,
    )
    monkeypatch.setattr(_worker, "_ready", None)
    monkeypatch.setattr(_worker, "_refused", None)
    another_machine()
    request = potl._core.SegmentRequest(start=0, end=4)
    with pytest.raises(potl.JobMismatch, match=what):
        _worker.fulfil(setup, request)
    _machine["adds"] = 0.0  # it is not built again for each request
    with pytest.raises(potl.JobMismatch):
        _worker.fulfil(setup, request)
    monkeypatch.setattr(_worker, "_refused", None)
    assert _worker.fulfil(setup, request).status == "ok"
    monkeypatch.setattr(_worker, "_ready", None)


@pytest.mark.parametrize("step", range(1, 6))
def test_a_difference_shows_in_any_of_the_four(step: int) -> None:
    def build() -> potl.Task:
        return tasks.task(tasks.mlp(), transform=rarely, batch_size=6)

    def rarely(sample: Any) -> Any:
        x, y = augmented(sample)
        return (x + 1e-6 if torch.equal(sample[0], unlike) else x), y

    unlike = torch.zeros(8)
    job = create(build)
    unlike = tasks.X[job.core.sample_ids(step)[0]]
    with potl.Session.open(build, seed=7, job=job) as session:
        found = list(_first_batches.batch_differences(session, job.core))
    assert [one.startswith(OTHER_BITS.format(step)) for one in found] == [True] * (step <= 4)


def test_batches_of_another_type_are_another() -> None:
    build = of_a_type(lambda x: x)
    job = create(build)
    with potl.Session.open(of_a_type(Opaque), seed=7, job=job) as session:
        (said,) = _first_batches.batch_differences(session, job.core)
    assert said.startswith(OTHER_BITS.format(1))


def test_other_code_is_named_alone() -> None:
    job = create(transformed)
    with pytest.raises(potl.JobMismatch) as error:
        open_checked(collated, job)
    assert "batch of step" not in str(error.value)


# ---------------------------------------------------------------------- what a job may say


def with_pins(job: potl.Job, value: Any) -> potl.Job:
    return job.replace(task={**job.core.fields()["task"], "first_batches": value})


def test_jobs_of_earlier_builds_are_compared_as_before() -> None:
    job = create(transformed)
    task = {k: v for k, v in job.core.fields()["task"].items() if k != "first_batches"}
    another_machine()
    open_checked(transformed, job.replace(task=task)).close()


@pytest.mark.parametrize("value", [None, 3, "x", {}, [], ["0"], ["0"] * 5, ["0", "0", "0", 1]])
def test_what_is_no_list_of_digests_is_malformed(value: Any) -> None:
    job = with_pins(create(transformed), value)
    with pytest.raises(potl.MalformedError, match="task/first_batches"):
        open_checked(transformed, job)


# ---------------------------------------------------------------------- warnings


def normal(sample: Any) -> Any:
    x, y = sample
    return torch.softmax(x, 0).exp(), y


def mixed_up(samples: list[Any]) -> Any:
    """Draws by every operator that potl has in torch's place."""
    x, y = default_collate(samples)
    one, rates = torch.tensor(0.5), torch.full((8,), 2.0)
    share = torch.distributions.Beta(one, one).sample() + torch.distributions.Gamma(one, 1).sample()
    counts = torch.poisson(rates) + torch.binomial(rates, torch.full((8,), 0.5))
    which = torch.multinomial(torch.ones(len(x)), len(x))
    skew = torch.empty(8).cauchy_() + torch.empty(8).geometric_(0.5) + torch.empty(8).exponential_()
    return (share * x + x[which] + counts + skew).to(x.dtype), y


def test_what_potl_draws_in_torchs_place_is_not_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        create(lambda: tasks.task(tasks.mlp(), collate_fn=mixed_up))
    assert not caplog.records


def test_operators_of_torch_that_differ_elsewhere_are_warned_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        create(transformed)
        create(collated)
        assert not caplog.records
        for _ in range(2):
            create(lambda: tasks.task(tasks.mlp(), transform=normal))
    (warning,) = [one.getMessage() for one in caplog.records]
    assert "uses _softmax, exp of torch, whose bits may depend" in warning
    assert "compute it in integers, or prepare the data once" in warning
