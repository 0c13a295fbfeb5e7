# SPDX-License-Identifier: Apache-2.0
"""A23: vast files in the place of small ones are seen before they are read, and never accepted."""

from __future__ import annotations

import json
import os
import resource
import struct
from pathlib import Path

import pytest
import torch

from potl import LimitError, Report, Task, _core
from potl._attacks import Forgery, Scene, _tasks
from potl._remote._remote import Place
from potl._verify._worker import Setup, fulfil


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return Scene(tmp_path_factory.mktemp("files"), _tasks.plain, checkpoint_every=4)


def vast(path: Path, size: int) -> None:
    """A sparse file: it claims `size` bytes and holds none."""
    with path.open("r+b") as file:
        os.truncate(file.fileno(), size)


def announced(path: Path, size: int) -> None:
    """The same, but its head says so, as that of a checkpoint would."""
    entry = {"dtype": "U8", "shape": [size - 136], "data_offsets": [0, size - 136]}
    header = json.dumps({"potl.state": entry}).encode().ljust(128)
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    vast(path, size)


def verified(scene: Scene, run: Path, **options: object) -> Report:
    forgery = Forgery(run=run, commitment=scene.honest.commitment, options=options)
    return scene.verify(forgery)


def rejecting(report: Report) -> set[str]:
    return {f.rule for f in report.findings if f.result == "reject"}


@pytest.mark.parametrize("size", [1 << 30, 1 << 42])
def test_a_vast_file_in_the_place_of_a_checkpoint_is_rejected_unread(
    scene: Scene, size: int
) -> None:
    run = scene.copy_of(scene.honest.run, f"vast-{size}", uncommitted=False)
    vast(run / "checkpoints" / "step-16.safetensors", size)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    report = verified(scene, run)
    assert rejecting(report) == {"transcript.checkpoint"}, report.sentence
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 256 << 10


@pytest.mark.parametrize("size", [1 << 30, 1 << 42])
def test_a_state_far_beyond_the_own_ones_is_not_read_and_not_accepted(
    scene: Scene, size: int
) -> None:
    run = scene.copy_of(scene.honest.run, f"announced-{size}", uncommitted=False)
    announced(run / "checkpoints" / "step-16.safetensors", size)
    report = verified(scene, run)
    assert report.verdict == "inconclusive", report.sentence
    assert "max_checkpoint_bytes" in report.sentence


def test_whoever_raises_the_limit_sees_that_a_vast_state_is_none(scene: Scene) -> None:
    run = scene.copy_of(scene.honest.run, "raised", uncommitted=False)
    announced(run / "checkpoints" / "step-16.safetensors", 300 << 20)
    report = verified(scene, run, max_checkpoint_bytes=1 << 30)
    assert "transcript.checkpoint" in rejecting(report), report.sentence


def test_a_vast_log_is_refused_by_its_size(scene: Scene) -> None:
    honest = scene.honest
    run = scene.copy_of(honest.run, "vast-log", uncommitted=False)
    vast(run / "transcript.log", 1 << 33)
    with pytest.raises(LimitError):
        scene.verify(Forgery(run=run, commitment=honest.commitment))


# ---------------------------------------------------------------------- where little is known


def unportable() -> Task:
    """Begins with weights that the seed does not determine on every machine."""
    task = _tasks.plain()
    torch.nn.init.orthogonal_(task.model[0].weight)  # type: ignore[index, arg-type]
    return task


@pytest.fixture(scope="module")
def by_file(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    scene = Scene(tmp_path_factory.mktemp("by_file"), unportable, checkpoint_every=4)
    assert scene.job.core.fields()["initial_state"]["source"] == "file"
    return scene


def grown(before: int) -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before


def test_without_a_job_of_ones_own_a_vast_initial_state_is_not_read(by_file: Scene) -> None:
    run = by_file.copy_of(by_file.honest.run, "first", uncommitted=False)
    announced(run / "checkpoints" / "step-0.safetensors", 1 << 30)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(LimitError, match="max_checkpoint_bytes"):
        verified(by_file, run, job=None)
    assert grown(before) < 256 << 10


def test_a_worker_does_not_read_a_vast_initial_state(by_file: Scene) -> None:
    run = by_file.copy_of(by_file.honest.run, "worker", uncommitted=False)
    note = by_file.honest.commitment
    evidence = _core.Evidence.open(str(run), job=by_file.job.core, commitment=note)
    setup = Setup.of(
        Place.of(run),
        evidence,
        note=note,
        task="math:sqrt",
        timeout=None,
        state_bytes=10_000,
        max_checkpoint_bytes=None,
    )
    announced(run / "checkpoints" / "step-0.safetensors", 1 << 30)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(LimitError):
        fulfil(setup, _core.SegmentRequest(start=4, end=8))
    assert grown(before) < 256 << 10


def test_without_a_task_a_vast_last_state_is_not_read(scene: Scene) -> None:
    run = scene.copy_of(scene.honest.run, "last", uncommitted=False)
    announced(run / "checkpoints" / "step-48.safetensors", 5 << 30)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    report = verified(scene, run, task=None)
    assert report.verdict == "inconclusive", report.sentence
    assert "at most 4294967296 are accepted" in report.json()
    assert grown(before) < 256 << 10
