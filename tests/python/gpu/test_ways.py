# SPDX-License-Identifier: Apache-2.0
"""Ways to train on a GPU: narrow types, a scaler, compiled models, graphs, pinned batches. Honest
runs are accepted there, and rejected nowhere. POTL_GPU_DEVICE=cpu tries the tests themselves.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import default_collate

import potl
from potl import Task
from potl._attacks import Scene, _tasks as tasks

DEVICE = os.environ.get("POTL_GPU_DEVICE", "cuda")
GPU = DEVICE == "cuda"
pytestmark = pytest.mark.skipif(
    GPU and not torch.cuda.is_available(), reason="no CUDA device, or a torch without CUDA"
)
BATCH, FEATURES = 64, 64


def network() -> nn.Module:
    return nn.Sequential(
        nn.Linear(FEATURES, 64), nn.GELU(), nn.Dropout(0.1), nn.LayerNorm(64), nn.Linear(64, 10)
    )


def task_of(model: nn.Module, **options: object) -> Task:
    given: dict[str, object] = {
        "model": model,
        "optimizer": torch.optim.AdamW(model.parameters(), lr=1e-3),
        "dataset": tasks.digits(tasks.SMALL),
        "loss": nn.functional.cross_entropy,
        "batch_size": BATCH,
        "epochs": 4,
        "drop_last": True,
    }
    return Task(**{**given, **options})  # type: ignore[arg-type]


def bfloat16(device: str) -> Task:
    return task_of(network().to(device), autocast=torch.bfloat16)


def float16(device: str) -> Task:
    """Its scaler skips the first steps, whose gradients overflow."""
    scaler = torch.amp.GradScaler(device, init_scale=2.0**40, growth_interval=4)
    return task_of(network().to(device), autocast=torch.float16, scaler=scaler)


def compiled(device: str) -> Task:
    model = network().to(device)
    return task_of(torch.compile(model) if device == DEVICE else model)


def graphed(device: str) -> Task:
    model = network().to(device)
    if device == "cuda":
        sample = torch.zeros(BATCH, FEATURES, device=device)
        model = torch.cuda.make_graphed_callables(model, (sample,))
    return task_of(model)


def fused(device: str) -> Task:
    model = network().to(device)
    adam = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    return task_of(model, optimizer=adam)


def pinned(device: str) -> Task:
    def collate(samples: list[object]) -> object:
        batch = default_collate(samples)
        return [part.pin_memory() for part in batch] if device == "cuda" else batch

    return task_of(network().to(device), collate_fn=collate)


Build = Callable[[str], Task]
BUILDS: list[Build] = [bfloat16, float16, compiled, graphed, fused, pinned]


def try_compiler() -> None:
    """Skips where torch.compile has nothing to compile with."""
    try:
        torch.compile(torch.sin)(torch.ones(8, device=DEVICE))
    except Exception as error:
        pytest.skip(f"torch.compile does not work here: {type(error).__name__}")


@pytest.mark.parametrize("build", BUILDS, ids=lambda build: build.__name__)
def test_an_honest_run_is_accepted_there_and_rejected_nowhere(build: Build, tmp_path: Path) -> None:
    if build is compiled:
        try_compiler()
    scene = Scene(tmp_path, functools.partial(build, DEVICE), checkpoint_every=4)
    report = scene.verify(scene.honest)
    assert report.verdict == "accepted", report.sentence
    elsewhere = scene.verify(scene.honest, task=functools.partial(build, "cpu"))
    assert elsewhere.verdict != "rejected", elsewhere.sentence


@pytest.mark.parametrize("build", BUILDS, ids=lambda build: build.__name__)
def test_a_recording_goes_on_from_what_was_stored(build: Build, tmp_path: Path) -> None:
    """What was restored is what the step computes with, graphs included."""
    if build is compiled:
        try_compiler()
    at = functools.partial(build, DEVICE)
    job = potl.Job.create(at, seed=7, checkpoint_every=4)
    with potl.Prover(at, tmp_path / "run", job=job) as prover:
        for step in prover.steps():
            if step.number == 6:
                break
    run = potl.record(at, tmp_path / "run", job=job)
    report = potl.verify(run, job=job, task=at, commitment=run.commit(), ledger=False)
    assert report.verdict == "accepted", report.sentence


@pytest.mark.skipif(not GPU, reason="graphs are of a CUDA device")
def test_a_graph_is_refused_in_exact_arithmetic(tmp_path: Path) -> None:
    at = functools.partial(graphed, DEVICE)
    with pytest.raises(potl.NotReproducible, match="CUDA graph"):
        job = potl.Job.create(at, seed=7, checkpoint_every=4, arithmetic="ord32")
        potl.record(at, tmp_path / "run", job=job)
