# SPDX-License-Identifier: Apache-2.0
"""A worker's own loop under a guard: potl.SpotCheckedOptimizer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from guarded import KEY, build, own_loop as honest
from torch.nn import functional

import potl
from potl._spot_check._own_loop import OwnLoop

Loop = Callable[[OwnLoop], None]


def smoothing(guard: OwnLoop) -> None:
    """A loop with another loss than the agreed one."""
    model = guard.task.model
    assert guard.task.optimizer is not None
    optimizer = potl.SpotCheckedOptimizer(guard.task.optimizer, guard)
    for _, (images, labels) in guard.steps():
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(images), labels, label_smoothing=0.1)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step(loss)


def forgetful(guard: OwnLoop) -> None:
    for _ in guard.steps():
        pass


def both(folder: Path, loop: Loop, arithmetic: str) -> tuple[potl.SpotCheck, potl.Report, str]:
    """Guard and loop, each in a thread: their steps take turns."""
    job = potl.Job.create(build, seed=3, checkpoint_every=10, arithmetic=arithmetic)
    address = f"unix:{folder}/loop.sock"
    guard = potl.SpotCheck(build, job=job, key=KEY, steps_at_risk=2)
    said: list[str] = []

    def run() -> None:
        with potl.spot_check.Worker(build, key=KEY).open(address) as link:
            try:
                loop(link)
                said.append(link.reason)
            except (potl.UsageError, potl.StorageError) as error:
                said.append(str(error))

    worker = threading.Thread(target=run)
    worker.start()
    # Steps of both sides would draw from one process's generators: checks wait for the segment.
    guard._background = False
    report = guard.train(address)
    worker.join()
    return guard, report, said[0]


@pytest.mark.parametrize("arithmetic", ["stock", "ord32"])
def test_a_loop_of_ones_own_is_guarded(tmp_path: Path, arithmetic: str) -> None:
    guard, report, reason = both(tmp_path, honest, arithmetic)
    assert report.verdict == "accepted", report.sentence
    assert reason == ""
    with potl.Session.open(build, seed=3, job=guard._job) as session:
        for step, _, batch in session.batches(1, 58):
            session.run_step(step, batch)
        for ours, theirs in zip(
            guard.task.model.parameters(), session.task.model.parameters(), strict=True
        ):
            assert torch.equal(ours, theirs)


def test_another_loss_is_caught(tmp_path: Path) -> None:
    _, report, reason = both(tmp_path, smoothing, "ord32")
    assert report.verdict == "rejected"
    assert "is false" in reason


def test_a_loop_that_sends_nothing_is_told_so(tmp_path: Path) -> None:
    _, report, reason = both(tmp_path, forgetful, "ord32")
    assert report.verdict == "inconclusive"
    assert "call optimizer.step(loss) in the loop" in reason


def test_only_the_tasks_own_optimizer_is_taken(tmp_path: Path) -> None:
    def other(guard: OwnLoop) -> None:
        potl.SpotCheckedOptimizer(torch.optim.SGD(guard.task.model.parameters(), lr=0.1), guard)

    _, report, reason = both(tmp_path, other, "ord32")
    assert report.verdict == "inconclusive"
    assert "not the agreed task's" in reason
