# SPDX-License-Identifier: Apache-2.0
"""A17: telemetry of another run. It never decides (soundness.md rule 11), but it is told apart."""

from __future__ import annotations

import shutil

import pytest

from potl import Report
from potl._attacks import Forgery, Scene, _tasks
from potl._job._session import Session

from .conftest import rule_off


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return Scene(tmp_path_factory.mktemp("telemetry"), _tasks.plain)


def replayed_telemetry(scene: Scene) -> Forgery:
    """An honest training that binds the telemetry of a shorter one."""

    def shorter() -> _tasks.Task:
        task = _tasks.plain()
        task.epochs = 3
        return task

    other = Scene(scene.directory / "other", shorter).honest.run
    target = scene.directory / "A17-telemetry" / "telemetry.log"

    def place(session: Session) -> None:
        shutil.copyfile(other / "telemetry.log", target)

    return scene.forged("A17-telemetry", start=place)


def suspicions(report: Report) -> list[str]:
    return [f.reason for f in report.findings if f.rule == "telemetry.consistent"]


def test_replayed_telemetry_is_suspicious_and_decides_nothing(scene: Scene) -> None:
    report = scene.verify(replayed_telemetry(scene))
    assert report.verdict == "accepted", report.sentence
    assert any(reason.startswith("suspicious: ") for reason in suspicions(report))
    with rule_off("telemetry.consistent"):
        unsuspecting = scene.verify(replayed_telemetry(scene))
    assert unsuspecting.verdict == "accepted", unsuspecting.sentence
    assert suspicions(unsuspecting) == []


def test_the_telemetry_of_the_honest_run_is_not_suspicious(scene: Scene) -> None:
    found = suspicions(scene.verify(scene.honest))
    assert found and not any("step marks" in r and "suspicious" in r for r in found), found
