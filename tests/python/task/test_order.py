# SPDX-License-Identifier: Apache-2.0
"""Orders and lengths that a task brings: all of them functions of the job's seed, all of them
audited.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import driver_tasks as tasks
import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, WeightedRandomSampler

import potl
from potl import _core
from potl._attacks import Scene

COUNT = len(tasks.DATA)


class ByLength:
    """Samples of like length together, the groups in another order in each epoch."""

    def __init__(self) -> None:
        self.lengths = [index % 7 for index in range(COUNT)]
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return COUNT

    def __iter__(self) -> Iterator[int]:
        groups = torch.randperm(7).tolist()
        return iter(sorted(range(COUNT), key=lambda i: groups[self.lengths[i]]))


def task(**changes: Any) -> potl.Task:
    return potl.Task(**tasks.options(**changes))


def in_order() -> potl.Task:
    return task(shuffle=False)


def weighted() -> potl.Task:
    weights = [1.0 + (index % 3) for index in range(COUNT)]
    return task(sampler=WeightedRandomSampler(weights, 100))


def by_length() -> potl.Task:
    return task(sampler=ByLength(), drop_last=True)


def short() -> potl.Task:
    """Ends within its second epoch of 12 steps."""
    return task(epochs=0, max_steps=17)


def create(build: Any, **options: Any) -> potl.Job:
    return potl.Job.create(build, **{"seed": 5, "checkpoint_every": 4, **options})


def ids_of(build: Any, steps: range, seed: int = 5) -> list[list[int]]:
    with potl.Session.open(build, seed=seed) as session:
        return [session.sample_ids(step) for step in steps]


@pytest.mark.parametrize("build", [in_order, weighted, by_length, short])
def test_such_a_run_is_recorded_verified_and_accepted(build: Any, tmp_path: Path) -> None:
    job = create(build)
    run = potl.record(build, tmp_path / "run", job=job)
    report = potl.verify(run, job=job, commitment=run.commit(), task=build, ledger=None)
    assert report.verdict == "accepted", report.json()
    assert any(f.rule == "agreed.batch_order" and f.result == "pass" for f in report.findings)


def test_samples_come_in_their_own_order() -> None:
    first, second = ids_of(in_order, range(1, 13)), ids_of(in_order, range(13, 25))
    assert first == second == [list(range(at, at + 16)) for at in range(0, COUNT, 16)]


@pytest.mark.parametrize("build", [weighted, by_length])
def test_an_order_follows_from_seed_and_epoch(build: Any) -> None:
    per_epoch = build().steps_per_epoch
    first = ids_of(build, range(1, per_epoch + 1))
    assert first == ids_of(build, range(1, per_epoch + 1))
    assert first != ids_of(build, range(per_epoch + 1, 2 * per_epoch + 1))
    assert first != ids_of(build, range(1, per_epoch + 1), seed=6)
    # Asked for in any order of steps.
    assert ids_of(build, range(per_epoch, 0, -1)) == first[::-1]


def test_a_sampler_decides_how_many_samples_an_epoch_has() -> None:
    assert (weighted().steps_per_epoch, weighted().steps) == (7, 14)
    job = create(weighted)
    assert (job.core.steps_per_epoch, job.steps) == (7, 14)
    assert len(ids_of(weighted, range(7, 8))[0]) == 4


def test_a_length_in_steps_needs_no_epochs() -> None:
    assert (short().steps, short().epochs) == (17, 2)
    assert (task(epochs=50, max_steps=3).steps, task(epochs=50, max_steps=3).epochs) == (3, 1)
    assert task(epochs=1, max_steps=100).steps == 12
    with pytest.raises(potl.UsageError, match="max_steps"):
        task(max_steps=0)
    with pytest.raises(potl.UsageError, match="epochs is None"):
        task(epochs=None, max_steps=3)


class Counting(ByLength):
    """Another order each time it is asked."""

    def __iter__(self) -> Iterator[int]:
        self.epoch += 1
        return iter(sorted(range(COUNT), key=lambda i: i * self.epoch % 11))

    def set_epoch(self, epoch: int) -> None:
        pass


class Growing(ByLength):
    """More samples in each epoch, as curricula have them."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self)))

    def __len__(self) -> int:
        return COUNT - 4 + self.epoch


class Yielding(ByLength):
    def __init__(self, values: list[Any]) -> None:
        self.values = values

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)


@pytest.mark.parametrize(
    ("sampler", "what"),
    [
        (Counting(), "two draws of its first epoch differ"),
        (Yielding([0.5] * COUNT), "something else than indices"),
        (Yielding([0] * (COUNT - 1)), "its length is"),
        (Growing(), f"yields {COUNT - 3} indices in epoch 1, its length is {COUNT - 4}"),
        (Yielding([COUNT] * COUNT), "not those of"),
        (Yielding([-1] * COUNT), "not those of"),
    ],
)
def test_what_is_no_order_is_refused_with_the_remedy(sampler: Any, what: str) -> None:
    with pytest.raises(potl.NotReplayable, match=what) as refused:
        create(lambda: task(sampler=sampler))
    assert "set_epoch" in refused.value.problems[0].remedy


def test_a_sampler_that_the_steps_change_is_refused_before_anything_is_agreed() -> None:
    """Hard samples are drawn more often, by the losses of those before."""

    class Mining(potl.Task):
        def step(self, batch: Any) -> torch.Tensor:
            loss = super().step(batch)
            self.sampler.weights[:8] += 1
            return loss

    def build() -> potl.Task:
        sampler = WeightedRandomSampler(torch.ones(COUNT).tolist(), COUNT)
        return Mining(**tasks.options(sampler=sampler))

    with pytest.raises(potl.NotReplayable, match="two draws of its first epoch differ") as refused:
        create(build)
    assert "weigh the samples of a batch in Task.step" in refused.value.problems[0].remedy


def test_a_sampler_of_batches_is_refused_with_where_its_parts_go() -> None:
    with pytest.raises(potl.NotReplayable, match="it yields batches") as refused:
        create(lambda: task(sampler=BatchSampler(range(COUNT), 16, False)))
    remedy = refused.value.problems[0].remedy
    assert "its batch size as batch_size=" in remedy and "batches of several sizes" in remedy


def test_a_sampler_without_length_or_beside_shuffle_is_a_usage_error() -> None:
    with pytest.raises(potl.UsageError, match="sampler is a"):
        task(sampler=iter(range(3)))
    with pytest.raises(potl.UsageError, match="exclude each other"):
        task(sampler=ByLength(), shuffle=False)


def test_another_order_than_agreed_is_a_mismatch(tmp_path: Path) -> None:
    for agreed, other in ((in_order, tasks.build), (tasks.build, in_order), (by_length, in_order)):
        job = create(agreed)
        with pytest.raises(potl.JobMismatch, match=r"order|samples"):
            potl.record(other, tmp_path / "run", job=job)


@pytest.mark.parametrize("step", [1, 5, 24])
def test_one_step_on_other_samples_is_rejected(step: int, tmp_path: Path) -> None:
    """Though the verifier of the record alone has no sampler."""
    scene = Scene(tmp_path, in_order, checkpoint_every=4, arithmetic="auto")

    def lie(session: Any, number: int) -> list[int]:
        ids: list[int] = session.sample_ids(number)
        return ids[::-1] if number == step else ids

    report = scene.verify(scene.forged("lie", sample_ids=lie))
    assert report.verdict == "rejected"
    assert "agreed.batch_order" in {f.rule for f in report.findings if f.result == "reject"}
    honest = scene.verify(scene.honest)
    assert honest.verdict == "accepted", honest.sentence


def test_steps_before_a_resume_are_compared_too(tmp_path: Path) -> None:
    job, path = create(in_order), tmp_path / "run"
    for last in (6, 24):
        with potl.Prover(in_order, path, job=job) as prover:
            for done in prover.steps():
                if done.number == last:
                    break
    run = potl.Run(path)
    report = potl.verify(run, job=job, commitment=run.commit(), task=in_order, ledger=None)
    assert report.verdict == "accepted", report.json()
    assert run.inspect()["resumes"]


def test_a_run_that_goes_on_is_not_accused_of_another_order(tmp_path: Path) -> None:
    """The second session is looked at before it has trained the steps after 5 again."""
    job, path = potl.Job.create(weighted, seed=7, checkpoint_every=4), tmp_path / "run"
    for last in (7, 5):
        with potl.Prover(weighted, path, job=job) as prover:
            for done in prover.steps():
                if done.number == last:
                    break
        reports = [
            potl.monitor(path, job=job, task=weighted, every=0, timeout=0),
            potl.verify(path, job=job, task=weighted, ledger=None),
        ]
        for report in reports:
            results = {f.rule: f.result for f in report.findings}
            assert report.verdict == "inconclusive", report.sentence
            assert results["agreed.batch_order"] == "inconclusive"
    assert len(potl.Run(path).inspect()["resumes"]) == 1


def test_the_job_alone_does_not_give_such_ids() -> None:
    job = create(in_order)
    assert job.core.fields()["order"]["samples"] == COUNT
    with pytest.raises(potl.UsageError, match="the task's own"):
        job.core.sample_ids(1)


# ---------------------------------------------------------------------- what else a task takes


def test_the_only_optimizer_has_a_name() -> None:
    built = tasks.build()
    assert built.optimizer is built.optimizers[0]
    net = tasks.model()
    two = [torch.optim.SGD(layer.parameters(), lr=0.1) for layer in (net[0], net[4])]
    assert task(model=net, optimizer=two).optimizer is None


class Holes(torch.utils.data.Dataset[Any]):
    """Gives samples, or what a loader makes of a file that it cannot read."""

    def __init__(self, hole: Any) -> None:
        self.hole = hole

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        return self.hole if index == 3 else tasks.DATA[index]


@pytest.mark.parametrize(
    ("hole", "what"),
    [(None, r"dataset\[3\] is None"), ((torch.zeros(5), 1), "equal size")],
)
def test_samples_that_make_no_batch_are_refused_with_the_remedy(hole: Any, what: str) -> None:
    def build() -> potl.Task:
        return task(dataset=Holes(hole), shuffle=False)

    problems = potl.check(build)
    assert len(problems) == 1 and problems[0].prevents == "replay"
    with pytest.raises(potl.NotReplayable, match=what) as refused:
        create(build)
    assert "collate_fn=" in str(refused.value)


def test_arrays_of_inputs_and_labels_are_no_data_set_and_make_one() -> None:
    with pytest.raises(potl.NotReplayable, match=r"TensorDataset\(x, y\)"):
        create(lambda: task(dataset=tuple(tasks.DATA.tensors)))


def test_the_digest_of_an_order_never_changes() -> None:
    steps = [np.array([0, 1]), np.arange(1, 3)[1:]]
    assert _core.digest_of_order(iter(steps)).hex() == (
        "b8977a8bf216253d5ef6c7230aec16436132e9bbd84667853e34b1924c217f0d"
    )
    for wrong in (np.array([0, 1], dtype="<i4"), np.arange(4)[::2], np.zeros((1, 2), np.int64)):
        with pytest.raises(TypeError, match="contiguous int64"):
            _core.digest_of_order([wrong])
