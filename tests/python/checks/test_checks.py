# SPDX-License-Identifier: Apache-2.0
"""The checks as Python classes agree with the field tables in C++."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_type_hints

import pytest

import potl
from potl import _core

CLASSES = {
    "telemetry": potl.Telemetry,
    "pev": potl.PEV,
    "replay": potl.Replay,
    "policy": potl.Policy,
}
TYPES = {
    "boolean": "bool",
    "integer": "int",
    "number": "float",
    "optional number": "float | None",
    "string": "str",
    "strings": "Sequence[str]",
}


def annotation(kind: Any) -> str:
    text = str(kind.__name__ if isinstance(kind, type) else kind)
    return text.replace("collections.abc.", "").replace("typing.", "").removesuffix("[str]")


@pytest.mark.parametrize("name", CLASSES)
def test_names_defaults_and_types_are_those_of_the_field_table(name: str) -> None:
    own = {field.name: field for field in fields(CLASSES[name])}
    table: Mapping[str, Any] = {row["name"]: row for row in _core.check_fields(name)}
    assert list(own) == list(table)
    hints = get_type_hints(CLASSES[name])
    for field, row in table.items():
        default = list(own[field].default) if row["type"] == "strings" else own[field].default
        assert default == row["default"], field
        assert annotation(hints[field]) == TYPES[row["type"]].removesuffix("[str]"), field


@pytest.mark.parametrize("name", CLASSES)
def test_every_field_is_documented(name: str) -> None:
    documentation = CLASSES[name].__doc__ or ""
    for row in _core.check_fields(name):
        assert f"{row['name']}: " in documentation


def test_options_are_complete_and_plain() -> None:
    options = potl.Replay(samples=3, repeat=("00" * 32,)).options()
    assert options["samples"] == 3
    assert options["repeat"] == ["00" * 32]
    assert options["safety"] == 8.0
    assert "d_ref" not in options


def test_options_are_keywords_and_cannot_change() -> None:
    with pytest.raises(TypeError):
        potl.Replay(3)  # type: ignore[misc]
    with pytest.raises(AttributeError):
        potl.Replay().samples = 3  # type: ignore[misc]


def test_a_policy_for_detection_draws_enough_segments() -> None:
    policy = potl.Policy.for_detection(probability=0.95, cheat_fraction=0.05)
    text = (
        b'{"accumulate":1,"arithmetic":"stock","batch_size":1,"checkpoint_every":5,'
        b'"data":{"count":5000,"root":"' + b"00" * 32 + b'"},"drop_last":false,"environment":{},'
        b'"epochs":1,"format":"potl-job-v1","initial_state":{"digest":"' + b"00" * 32 + b'",'
        b'"source":"seed"},"learning_rates":null,"limits":{"max_resumes":0,"max_superseded":0},'
        b'"max_segment":5,"seed":1,"steps":5000,"task":{},"tolerance_cap":0.1,"trainer":null}'
    )
    checks = {check.name: check for check in policy._checks(_core.Job.parse(text))}
    replay = checks["replay"]
    assert isinstance(replay, potl.Replay)
    assert _core.strength(1000, replay.samples, 0.05) >= 0.95
    assert _core.strength(1000, replay.samples - 1, 0.05) < 0.95
    assert set(checks) == {"telemetry", "pev", "replay"}


def test_a_tolerance_that_does_not_exist_is_refused_at_once() -> None:
    with pytest.raises(potl.UsageError, match="foo") as raised:
        potl.Replay(tolerance="foo")
    assert "mean_grad_norm" in raised.value.remedy
