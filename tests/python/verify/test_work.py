# SPDX-License-Identifier: Apache-2.0
"""What a verification will cost is said before it begins, by the verifier's own clock."""

from __future__ import annotations

import itertools
import logging
import types
from pathlib import Path

import pytest

import potl
from potl._attacks import Scene, _tasks as tasks
from potl._verify import _schema


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return Scene(tmp_path_factory.mktemp("scene"), tasks.plain, checkpoint_every=2, samples=12)


def test_the_prediction_is_by_the_verifiers_own_steps(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """On a machine whose steps take three seconds each, whatever the trainer's clock said."""
    clock = itertools.count(0, 3)
    slow = types.SimpleNamespace(perf_counter=lambda: float(next(clock)))
    monkeypatch.setattr(_schema, "time", slow)
    with caplog.at_level(logging.INFO, logger="potl"):
        scene.verify(scene.honest)
    [said] = [one.getMessage() for one in caplog.records if "trained again" in one.getMessage()]
    steps = int(said.split()[0])
    assert 0 < steps <= scene.job.steps
    assert f"trained again, about {3 * steps} seconds on this machine" in said


def test_without_a_task_nothing_is_predicted(
    scene: Scene, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    honest = scene.honest
    with caplog.at_level(logging.INFO, logger="potl"):
        report = potl.verify(
            honest.run, job=scene.job, commitment=honest.commitment, ledger=tmp_path / "ledger.json"
        )
    assert report.verdict == "inconclusive"
    assert "about" not in caplog.text
