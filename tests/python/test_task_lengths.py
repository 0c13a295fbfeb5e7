# SPDX-License-Identifier: Apache-2.0
"""Lengths in steps, the one optimizer, and samples that make no batch."""

from pathlib import Path
from typing import Any

import driver_tasks as tasks
import pytest
import torch

import potl

COUNT = len(tasks.DATA)


def task(**changes: Any) -> potl.Task:
    return potl.Task(**tasks.options(**changes))


def short() -> potl.Task:
    """Ends within its second epoch of 12 steps."""
    return task(epochs=0, max_steps=17)


def create(build: Any, **options: Any) -> potl.Job:
    return potl.Job.create(build, **{"seed": 5, "checkpoint_every": 4, **options})


def test_a_run_that_ends_within_an_epoch_is_accepted(tmp_path: Path) -> None:
    job = create(short)
    assert (job.steps, job.epochs) == (17, 2)
    run = potl.record(short, tmp_path / "run", job=job)
    report = potl.verify(run, job=job, commitment=run.commit(), task=short, ledger=None)
    assert report.verdict == "accepted", report.json()


def test_a_length_in_steps_needs_no_epochs() -> None:
    assert (short().steps, short().epochs) == (17, 2)
    assert (task(epochs=50, max_steps=3).steps, task(epochs=50, max_steps=3).epochs) == (3, 1)
    assert task(epochs=1, max_steps=100).steps == 12
    with pytest.raises(potl.UsageError, match="max_steps"):
        task(max_steps=0)


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
        return task(dataset=Holes(hole), batch_size=COUNT)

    problems = potl.check(build)
    assert len(problems) == 1 and problems[0].prevents == "replay"
    with pytest.raises(potl.NotReplayable, match=what) as refused:
        create(build)
    assert "collate_fn=" in str(refused.value)
