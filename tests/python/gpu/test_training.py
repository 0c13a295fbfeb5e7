# SPDX-License-Identifier: Apache-2.0
"""Training on a GPU is recorded, and verified there and on a CPU: honest runs are never rejected,
and cheats are rejected on both. `make test-gpu` runs this; POTL_GPU_DEVICE=cpu tries the tests
themselves where there is no GPU.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import zoo
from torch import nn

from potl import Task
from potl._attacks import Attack, Forgery, Scene, _tasks as tasks, catalogue

DEVICE = os.environ.get("POTL_GPU_DEVICE", "cuda")
pytestmark = pytest.mark.skipif(
    DEVICE == "cuda" and not torch.cuda.is_available(),
    reason="no CUDA device, or a torch without CUDA",
)
# Of the recipe, of the arithmetic, of the history, of the states and of the delivered file.
CHEATS = ("A1", "A3", "A8", "A10", "A13", "A30")


def on(device: str, build: Callable[[], Task]) -> Task:
    """A task on a device: potl moves the batches."""
    task = build()
    task.model.to(device)
    return task


def convolutional() -> Task:
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Dropout2d(0.1),
        nn.Flatten(),
        nn.Linear(1024, 10),
    )
    return Task(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9),
        dataset=tasks.digits(tasks.SMALL, image=True),
        loss=nn.functional.cross_entropy,
        batch_size=64,
        epochs=4,
    )


def gpt() -> Task:
    model = zoo.GPT(layers=2, width=64, length=32)
    return Task(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3),
        dataset=zoo.next_data(32),
        loss=zoo.next_character,
        batch_size=32,
        epochs=2,
    )


BUILDS = {"convolutional": convolutional, "gpt": gpt}


@pytest.mark.parametrize("name", BUILDS)
def test_an_honest_run_is_accepted_there_and_rejected_nowhere(name: str, tmp_path: Path) -> None:
    scene = Scene(tmp_path, functools.partial(on, DEVICE, BUILDS[name]), checkpoint_every=4)
    honest = scene.honest
    report = scene.verify(honest)
    assert report.verdict == "accepted", report.sentence
    elsewhere = scene.verify(honest, task=functools.partial(on, "cpu", BUILDS[name]))
    assert elsewhere.verdict != "rejected", elsewhere.sentence


@pytest.mark.parametrize("name", BUILDS)
def test_a_run_in_exact_arithmetic_is_accepted_on_a_cpu_too(name: str, tmp_path: Path) -> None:
    build = BUILDS[name]
    scene = Scene(
        tmp_path, functools.partial(on, DEVICE, build), checkpoint_every=4, arithmetic="ord32"
    )
    honest = scene.honest
    for device in (DEVICE, "cpu"):
        report = scene.verify(honest, task=functools.partial(on, device, build))
        assert report.verdict == "accepted", report.sentence


# torch's optimizers for CUDA take no buffers of another type than the parameters.
IMPOSSIBLE = ("moments in bfloat16",) if DEVICE == "cuda" else ()


def cheats() -> list[Attack]:
    return [
        item
        for item in catalogue()
        if item.id in CHEATS and item.rule != "agreed.replayable" and item.name not in IMPOSSIBLE
    ]


@pytest.fixture(scope="session")
def scene_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Scene]:
    @functools.cache
    def scene(task: str) -> Scene:
        build = functools.partial(on, DEVICE, getattr(tasks, task))
        folder = tmp_path_factory.mktemp(task)
        return Scene(folder, build, checkpoint_every=2, samples=24)

    return scene


@pytest.mark.parametrize("item", cheats(), ids=lambda item: f"{item.id}-{item.name}")
def test_a_cheat_is_rejected_there_and_accepted_nowhere(
    item: Attack, scene_of: Callable[[str], Scene]
) -> None:
    scene = scene_of(item.task)
    forgery: Forgery = item.make(scene)
    report = scene.verify(forgery)
    rejecting = {f.rule for f in report.findings if f.result == "reject"}
    assert report.verdict == item.verdict, report.sentence
    assert rejecting <= set(item.found_by), report.sentence
    task = functools.partial(on, "cpu", getattr(tasks, item.task))
    assert scene.verify(forgery, task=task).verdict != "accepted"
