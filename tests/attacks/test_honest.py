# SPDX-License-Identifier: Apache-2.0
"""Honest trainers are accepted: other seeds, other thread counts, restarts and resumes. Never
inconclusive.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from verifying import judged

from potl import Replay, Task, _core
from potl._attacks import Forgery, Scene, _tasks as tasks
from potl._job._session import Session

KINDS = ("plain", "momentum", "adam")


def convolutional() -> Task:
    """A net whose gradients torch adds up in another order with another number of threads."""
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(512, 10),
    )
    return Task(
        model=model,
        optimizer=torch.optim.Adam(model.parameters(), lr=1e-2),
        dataset=tasks.digits(tasks.SMALL, image=True),
        loss=nn.functional.cross_entropy,
        batch_size=64,
        epochs=6,
    )


@pytest.mark.parametrize("seed", range(20))
def test_an_honest_run_is_accepted_under_any_seed(seed: int, tmp_path: Path) -> None:
    kind = KINDS[seed % len(KINDS)]
    scene = Scene(tmp_path, getattr(tasks, kind), seed=seed, checkpoint_every=4)
    report = scene.verify(scene.honest)
    assert report.verdict == "accepted", report.sentence


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("recorded", "verified"), [(1, 2), (2, 1)])
def test_thread_counts_of_trainer_and_verifier_may_differ(
    kind: str, recorded: int, verified: int, tmp_path: Path, set_threads: Callable[[int], None]
) -> None:
    scene = Scene(tmp_path, getattr(tasks, kind), checkpoint_every=4)
    set_threads(recorded)
    honest = scene.honest
    set_threads(verified)
    report = scene.verify(honest)
    assert report.verdict == "accepted", report.sentence


def test_an_honest_run_in_which_rounding_grows_beyond_the_cap_is_no_cheat(
    tmp_path: Path, set_threads: Callable[[int], None]
) -> None:
    """Neither trainer nor verifier can do better here: that is inconclusive, with the remedy."""
    scene = Scene(tmp_path, convolutional, checkpoint_every=8)
    scene.job = scene.job.replace(tolerance_cap=1e-12)
    set_threads(2)
    honest = scene.honest
    set_threads(1)
    report = judged(
        honest.run, scene.job, convolutional, Replay(samples=12), commitment=honest.commitment
    )
    assert not all(one["equal"] for one in report.document["replays"]), "the threads did not matter"
    assert report.verdict == "inconclusive", report.sentence
    assert "agree on an exact arithmetic" in report.sentence


class Unfused(tasks.Taught):
    """The average of a machine that rounds products before it adds them."""

    @staticmethod
    def follow(average: torch.Tensor, p: torch.Tensor) -> None:
        average.copy_(average * 0.9 + p * 0.1)


def test_an_average_that_another_machine_rounds_otherwise_is_accepted(tmp_path: Path) -> None:
    scene = Scene(tmp_path, tasks.taught, checkpoint_every=4)
    path, job = scene.path("unfused"), scene.job
    recorder = _core.Recorder.create(str(path), job.core, scene.key, software="potl test")
    with (
        Session.open(lambda: tasks.taught(Unfused), seed=job.seed, job=job) as session,
        session._roughen(1),
    ):
        recorder.append_initial(session.capture())
        for step, ids, batch in session.batches(1, job.steps):
            scene.append(recorder, session, step, ids, session.run_step(step, batch))
        recorder.close()
    report = scene.verify(Forgery(run=path, commitment=scene.commit(path)))
    assert not any(one["equal"] for one in report.document["replays"])
    assert report.verdict == "accepted", report.sentence


@pytest.mark.parametrize("stop", [1, 7, 8, 30])
def test_a_resumed_run_is_accepted(stop: int, tmp_path: Path) -> None:
    scene = Scene(tmp_path, tasks.momentum, checkpoint_every=4)
    path = scene.path("resumed")
    job = scene.job.core
    with Session.open(scene.build, seed=scene.job.seed, job=scene.job) as session:
        recorder = _core.Recorder.create(str(path), job, scene.key, software="potl test")
        recorder.append_initial(session.capture())
        for step, ids, batch in session.batches(1, stop):
            scene.append(recorder, session, step, ids, session.run_step(step, batch))
        recorder.abandon()
    with Session.open(scene.build, seed=scene.job.seed, job=scene.job) as session:
        recorder, begin, state = _core.Recorder.resume(
            str(path), job, scene.key, software="potl test"
        )
        session.restore(state)
        for step, ids, batch in session.batches(begin + 1, job.steps):
            scene.append(recorder, session, step, ids, session.run_step(step, batch))
        recorder.close()
    report = scene.verify(Forgery(run=path, commitment=scene.commit(path)))
    assert report.verdict == "accepted", report.sentence
