# SPDX-License-Identifier: Apache-2.0
"""Every forgery of the catalogue is rejected for its reason, and by that reason alone."""

from __future__ import annotations

import pytest

from potl import NotReplayable
from potl._attacks import Attack, catalogue

from .conftest import SceneOf, rule_off

CATALOGUE = catalogue()
# The ids that the demo and this test owe (docs/reference/attacks.md).
OWED = {
    f"A{n}"
    for n in (*range(1, 6), *range(7, 19), 20, 25, 26, 28, 29, 30, *range(32, 36), 38, 39, 40)
}


def name(item: Attack) -> str:
    return f"{item.id}-{item.name.replace(' ', '-')}"


def test_the_catalogue_has_every_attack_that_is_owed() -> None:
    assert {item.id for item in CATALOGUE} >= OWED


@pytest.fixture(autouse=True)
def with_its_arithmetic(request: pytest.FixtureRequest) -> None:
    """A20 is about an arithmetic that not every build has."""
    item = request.node.callspec.params.get("item") if hasattr(request.node, "callspec") else None
    if item is not None and item.id == "A20":
        pytest.importorskip("potl._torch", reason="potl was built without torch")


@pytest.mark.parametrize("item", CATALOGUE, ids=name)
def test_a_forgery_is_rejected_for_its_reason(item: Attack, scene_of: SceneOf) -> None:
    scene = scene_of(item.task)
    if item.rule == "agreed.replayable":
        with pytest.raises(NotReplayable):
            item.make(scene)
        return
    report = scene.verify(item.make(scene))
    result = {"rejected": "reject", "inconclusive": "inconclusive"}[item.verdict]
    # Telemetry never decides (soundness.md rule 11).
    stopping = [f for f in report.findings if f.result == result and f.check != "telemetry"]
    assert report.verdict == item.verdict, report.sentence
    assert stopping, "a verdict without a finding that leads to it"
    assert {f.rule for f in stopping} <= set(item.found_by), [f.reason for f in stopping]


@pytest.mark.parametrize("item", CATALOGUE, ids=name)
def test_a_forgery_is_rejected_in_exact_arithmetic(item: Attack, scene_of: SceneOf) -> None:
    """What stock arithmetic can only call inconclusive is rejected too."""
    pytest.importorskip("potl._torch", reason="potl was built without torch")
    scene = scene_of(item.task, "auto")
    if item.rule == "agreed.replayable":
        with pytest.raises(NotReplayable):
            item.make(scene)
        return
    report = scene.verify(item.make(scene))
    # That evidence was swapped is no question of arithmetic: decision 22.
    wanted = item.verdict if item.rule == "transcript.one_reading" else "rejected"
    assert report.verdict == wanted, report.sentence


@pytest.mark.parametrize("item", CATALOGUE, ids=name)
def test_a_forgery_is_accepted_when_only_its_rule_is_off(item: Attack, scene_of: SceneOf) -> None:
    scene = scene_of(item.task)
    with rule_off(item.rule):
        report = scene.verify(item.make(scene))
    stopping = [
        (f.rule, f.result, f.reason)
        for f in report.findings
        if f.result in ("reject", "inconclusive")
    ]
    assert report.verdict == "accepted", stopping


@pytest.mark.parametrize("task", sorted({item.task for item in CATALOGUE}))
def test_the_honest_run_beside_the_forgeries_is_accepted(task: str, scene_of: SceneOf) -> None:
    scene = scene_of(task)
    report = scene.verify(scene.honest)
    assert report.verdict == "accepted", report.sentence
