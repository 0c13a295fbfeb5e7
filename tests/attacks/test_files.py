# SPDX-License-Identifier: Apache-2.0
"""A23: vast files in the place of small ones are seen before they are read, and never accepted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from potl import LimitError
from potl._attacks import Forgery, Scene, _tasks


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return Scene(tmp_path_factory.mktemp("files"), _tasks.plain, checkpoint_every=4)


def vast(path: Path, size: int) -> None:
    """A sparse file: it claims `size` bytes and holds none."""
    with path.open("r+b") as file:
        os.truncate(file.fileno(), size)


@pytest.mark.parametrize("size", [1 << 30, 1 << 42])
def test_a_vast_checkpoint_is_not_read_and_not_accepted(scene: Scene, size: int) -> None:
    honest = scene.honest
    run = scene.copy_of(honest.run, f"vast-{size}", uncommitted=False)
    vast(run / "checkpoints" / "step-16.safetensors", size)
    report = scene.verify(Forgery(run=run, commitment=honest.commitment))
    assert report.verdict == "inconclusive", report.sentence
    assert "max_checkpoint_bytes" in report.sentence


def test_whoever_raises_the_limit_sees_that_a_vast_checkpoint_is_none(scene: Scene) -> None:
    honest = scene.honest
    run = scene.copy_of(honest.run, "raised", uncommitted=False)
    vast(run / "checkpoints" / "step-16.safetensors", 300 << 20)
    options = {"max_checkpoint_bytes": 1 << 30}
    report = scene.verify(Forgery(run=run, commitment=honest.commitment, options=options))
    assert report.verdict == "rejected", report.sentence
    assert "transcript.checkpoint" in {f.rule for f in report.findings if f.result == "reject"}


def test_a_vast_log_is_refused_by_its_size(scene: Scene) -> None:
    honest = scene.honest
    run = scene.copy_of(honest.run, "vast-log", uncommitted=False)
    vast(run / "transcript.log", 1 << 33)
    with pytest.raises(LimitError):
        scene.verify(Forgery(run=run, commitment=honest.commitment))
