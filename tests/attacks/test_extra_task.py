# SPDX-License-Identifier: Apache-2.0
"""A22: a trainer that stops early, where nobody replays, is stopped by the extra task's two rules
and by nothing else.

It is no item of the catalogue, whose forgeries fall to one rule each.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

import pytest
from transcript_helpers import rejected_by

pytest.importorskip("sklearn")

import torch
import torch.nn.functional as F
from torch import nn

import potl
from potl import _core
from potl._attacks import Forgery, Scene, _tasks
from potl._attacks._scene import Weights, assign, parameters
from potl._job._session import Session

from .conftest import rule_off

EPOCHS, HONEST_EPOCHS, EVERY = 16, 1, 20


@functools.cache
def mixed(key: Path) -> torch.utils.data.TensorDataset:
    """Digits with extra samples of a key that is the same in every run."""
    key.write_text(hashlib.sha256(b"A22").hexdigest() + "\n")
    data: torch.utils.data.TensorDataset = potl.ExtraTask(
        key, like=_tasks.digits(image=True), submissions=4
    ).mix(_tasks.digits(image=True))
    return data


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    folder = tmp_path_factory.mktemp("A22")
    data = mixed(folder / "extra.key")

    def build() -> potl.Task:
        model = nn.Sequential(
            nn.Flatten(),
            nn.Linear(64, 256),
            nn.ReLU(),
            nn.Linear(256, 256),
            nn.ReLU(),
            nn.Linear(256, 10),
        )
        return potl.Task(
            model=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.3),
            dataset=data,
            loss=F.cross_entropy,
            batch_size=32,
            epochs=EPOCHS,
        )

    return Scene(folder, build, checkpoint_every=EVERY, samples=1)


@pytest.fixture(scope="module")
def early(scene: Scene) -> Forgery:
    """Trains one epoch, then returns to its weights after every segment; only the last one, which
    is always replayed, is real again. The draw is the forger's luck.
    """
    job = scene.job.core
    stop = job.steps * HONEST_EPOCHS // EPOCHS // EVERY * EVERY
    kept: Weights = {}

    def freeze(session: Session, step: int) -> None:
        if step == stop:
            kept.update(parameters(session))
        elif stop < step < job.steps:
            assign(session, kept)

    forgery = scene.forged("A22", rewrite=freeze)
    evidence = _core.Evidence.open(str(forgery.run), job=job, commitment=forgery.commitment)
    options = potl.Replay(samples=1, top_q=0, reach=0).options()
    for number in range(10_000):
        nonce = hashlib.sha256(number.to_bytes(8, "little")).digest()
        plan = _core.plan_check("replay", evidence, options, nonce)
        ends = [one.from_step + one.steps for one in plan]
        if all(end <= stop or end == job.steps for end in ends):
            return scene.with_options(forgery, samples=1, nonce=nonce)
    raise RuntimeError("every draw looks at a frozen segment")


def checks(scene: Scene) -> list[object]:
    return [*scene.checks(1), potl.ExtraTask(scene.directory / "extra.key")]


def test_the_honest_run_passes(scene: Scene) -> None:
    report = scene.verify(scene.honest, checks=checks(scene), policy=potl.Policy(probability=0))
    assert report.verdict == "accepted", report.sentence


def test_an_early_stop_that_is_not_drawn_falls_to_the_extra_task(
    scene: Scene, early: Forgery
) -> None:
    assert scene.verify(early).verdict == "accepted"  # nobody asks the model
    report = scene.verify(early, checks=checks(scene))
    assert report.verdict == "rejected", report.sentence
    rejecting = rejected_by(report.findings)
    assert rejecting == {"extra_task.hits", "extra_task.control"}


def test_it_is_accepted_when_only_these_rules_are_off(scene: Scene, early: Forgery) -> None:
    with rule_off("extra_task.hits"):
        assert scene.verify(early, checks=checks(scene)).verdict == "rejected"
        with rule_off("extra_task.control"):
            report = scene.verify(early, checks=checks(scene))
    assert report.verdict == "accepted", report.sentence
