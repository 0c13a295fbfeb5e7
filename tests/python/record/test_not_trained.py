# SPDX-License-Identifier: Apache-2.0
"""What a net does not train is copied and hashed once, and is recorded as it is all the same."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import driver_tasks as tasks
import numpy as np
import pure_format as pure
import pytest
import torch
from torch import nn

import potl
from potl import _core
from potl._job._session import Session

WIDTH = 160  # 100 KiB of weights


class Adapted(nn.Module):
    """A large layer that is not trained, beside one that is."""

    def __init__(self, between: Callable[[nn.Parameter, int], None] | None = None) -> None:
        super().__init__()
        self.rise = nn.Linear(16, WIDTH).requires_grad_(False)
        self.whole = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.trained = nn.Linear(WIDTH, 4)
        self.between = between
        self.steps = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.trained(torch.relu(self.whole(torch.relu(self.rise(x)))))
        self.steps += 1
        if self.between is not None:
            self.between(self.whole.weight, self.steps)
        return y


def task(between: Callable[[nn.Parameter, int], None] | None = None) -> potl.Task:
    return potl.Task(**tasks.options(model=Adapted(between)))


def digests(
    between: Callable[[nn.Parameter, int], None] | None, keep: bool, steps: int = 9
) -> list[bytes]:
    with Session.open(lambda: task(between), seed=7) as session:
        found = [session.capture(keep=keep).digest()]
        for step, _, batch in session.batches(1, steps):
            session.run_step(step, batch)
            found.append(session.capture(keep=keep, whole=False).digest())
        return found


def address(state: _core.State) -> int:
    view = state.tree()["model"]["parameters"]["whole.weight"]
    return int(np.frombuffer(view.data, dtype=np.uint8).ctypes.data)


def drift(weight: nn.Parameter, step: int) -> None:
    """As the teacher of a self-supervised net is averaged; torch counts no write."""
    weight.data.mul_(0.99)


def late_drift(weight: nn.Parameter, step: int) -> None:
    if step == 6:
        drift(weight, step)


def counted(weight: nn.Parameter, step: int) -> None:
    if step == 6:
        with torch.no_grad():
            weight[3, 3] += 1


def test_weights_that_stay_are_hashed_as_any() -> None:
    assert digests(None, keep=True) == digests(None, keep=False)


@pytest.mark.parametrize("between", [drift, late_drift, counted])
def test_weights_that_are_written_all_the_same_are_recorded_as_they_are(
    between: Callable[[nn.Parameter, int], None],
) -> None:
    assert digests(between, keep=True) == digests(between, keep=False)


def test_weights_that_stay_are_copied_once() -> None:
    with Session.open(task, seed=7) as session:
        addresses = set()
        states: list[_core.State] = []  # held, so that no memory is used again
        for step, _, batch in session.batches(1, 4):
            session.run_step(step, batch)
            states.append(session.capture(keep=True))
            addresses.add(address(states[-1]))
        # The first is not known to stay.
        assert len(addresses) == 2


def test_a_verifier_copies_everything() -> None:
    with Session.open(task, seed=7) as session:
        states = [session.capture() for _ in range(3)]
        assert len(set(map(address, states))) == 3


def test_one_weight_that_torch_did_not_count_stops_the_recording(tmp_path: Path) -> None:
    def one(weight: nn.Parameter, step: int) -> None:
        if step == 10:
            weight.data[3, 3] += 1

    job = potl.Job.create(task, seed=7, checkpoint_every=4)
    prover = potl.Prover(lambda: task(one), tmp_path / "run", job=job, check_job=False)
    reached = 0
    with (
        pytest.raises(
            potl.UsageError, match=r"(?s)model/parameters/whole\.weight.*no_grad.*new directory"
        ),
        prover,
    ):
        for step in prover.steps():
            reached = step.number
    # A state that is stored is compared as a whole.
    assert reached < 12


def test_a_run_with_weights_that_stay_is_accepted(tmp_path: Path) -> None:
    job = potl.Job.create(task, seed=7, checkpoint_every=4)
    run = potl.record(task, tmp_path / "run", job=job)
    run.export(tmp_path / "model.safetensors")
    report = potl.verify(
        run.path,
        job=job,
        commitment=run.commit(),
        task=task,
        model=tmp_path / "model.safetensors",
        checks=[potl.Replay(samples=6)],
    )
    assert report.verdict == "accepted", report


def test_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    job = potl.Job.create(task, seed=7, checkpoint_every=4)
    whole = potl.record(task, tmp_path / "whole", job=job)
    with potl.Prover(task, tmp_path / "run", job=job) as prover:
        for step in prover.steps():
            if step.number == 10:
                break
    again = potl.record(task, tmp_path / "run", job=job)
    assert again.final_digest == whole.final_digest


# ------------------------------------------------------------------------------- checkpoints


@pytest.fixture(scope="module")
def job() -> potl.Job:
    return potl.Job.create(task, seed=7, checkpoint_every=4, arithmetic="ord32", store_every=4)


@pytest.fixture
def run(job: potl.Job, tmp_path: Path) -> potl.Run:
    return potl.record(task, tmp_path / "run", job=job)


def judged(run: potl.Run, job: potl.Job, **more: Any) -> potl.Report:
    run.export(run.path.parent / "model.safetensors")
    return potl.verify(
        run.path,
        job=job,
        commitment=run.commit(),
        task=task,
        model=run.path.parent / "model.safetensors",
        checks=[potl.Replay(samples=6)],
        **more,
    )


def checkpoint(run: potl.Run, step: int) -> Path:
    return Path(run.path) / "checkpoints" / f"step-{step}.safetensors"


def test_weights_that_stay_are_stored_once(run: potl.Run, job: potl.Job) -> None:
    assert checkpoint(run, 0).stat().st_size > WIDTH * WIDTH * 4
    assert all(checkpoint(run, step).stat().st_size < 20_000 for step in range(4, 25, 4))
    assert judged(run, job).verdict == "accepted"


def test_a_second_implementation_reads_what_is_stored_once(run: potl.Run) -> None:
    base = checkpoint(run, 0).read_bytes()
    _, initial, _ = pure.parse_checkpoint(base)
    _, contents, digest = pure.parse_checkpoint(checkpoint(run, 8).read_bytes(), base)
    assert contents["model/parameters/whole.weight"] == initial["model/parameters/whole.weight"]
    assert digest == _core.State.load_unverified(str(checkpoint(run, 8))).digest()


@pytest.mark.parametrize("damage", ["removed", "other"])
def test_the_initial_state_is_not_to_be_withheld(
    run: potl.Run, job: potl.Job, damage: str, tmp_path: Path
) -> None:
    run.commit()
    run.export(tmp_path / "model.safetensors")
    if damage == "removed":
        checkpoint(run, 0).unlink()
    else:
        with Session.open(task, seed=8) as session:
            session.capture().save(str(checkpoint(run, 0)))
    report = potl.verify(
        run.path, job=job, commitment=run.commit(), task=task,
        model=tmp_path / "model.safetensors", checks=[potl.Replay(samples=6)],
    )  # fmt: skip
    assert report.verdict == "rejected", report


def test_a_limit_of_the_verifier_for_the_initial_state_accuses_nobody(
    run: potl.Run, job: potl.Job
) -> None:
    small, large = (checkpoint(run, step).stat().st_size for step in (4, 0))
    assert small < 50_000 < large
    report = judged(run, job, max_checkpoint_bytes=50_000)
    assert report.verdict == "inconclusive", report


def test_a_stored_state_starts_another_training(run: potl.Run) -> None:
    state = _core.State.load_unverified(str(checkpoint(run, 8)))
    whole = state.tree()["model"]["parameters"]["whole.weight"]
    with Session.open(task, seed=7) as session:
        first = session.capture().tree()["model"]["parameters"]["whole.weight"]
        assert whole.data == first.data
