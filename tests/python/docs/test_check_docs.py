# SPDX-License-Identifier: Apache-2.0
"""Pages and schema say what the code does."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import programs
import pytest
from places import ROOT

from potl import _core
from potl._attacks import catalogue


def report(findings: list[dict[str, Any]] | None = None, **context: Any) -> dict[str, Any]:
    text = _core.conclude(None, findings or [], policy={}, context=context)
    document: dict[str, Any] = json.loads(text)
    return document


def test_tables_in_the_docs_are_those_of_the_code_and_the_catalogue() -> None:
    script = [programs.python(), str(ROOT / "scripts/docs_tables.py"), "--check"]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_guide_counts_the_cheats_of_the_catalogue() -> None:
    shown = sum(item.in_demo for item in catalogue())
    page = (ROOT / "docs/guide/first_run.md").read_text()
    assert f"`make demo` plays {shown} such cheats, `make test` plays {len(catalogue())}" in page


def test_every_known_attack_is_played_or_named_as_not_played() -> None:
    played = {item.id for item in catalogue()}
    page = (ROOT / "docs/reference/attacks.md").read_text().partition("## Known attacks")[2]
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| A")]
    named = {number.strip() for row in rows for number in row.split(",")}
    assert not named & played
    assert named | played == {f"A{n}" for n in range(1, 43)}


def test_every_option_is_in_a_page() -> None:
    for check in ("replay", "pev", "telemetry", "extra_task"):
        page = (ROOT / "docs/reference" / f"{check}.md").read_text()
        for row in _core.check_fields(check):
            assert f"| `{row['name']}` |" in page


def test_a_report_follows_the_schema() -> None:
    validator = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    schema = json.loads((ROOT / "docs/format/report.schema.json").read_text())
    finding = _core.Finding(
        check="replay",
        rule="replay.parameters",
        result="pass",
        reason="fits",
        first_step=1,
        last_step=10,
        statistic=0.5,
        facts=[("why", "random"), ("status", "ok"), ("equal", False)],
    )
    document = report(
        [finding],
        nonce="ab" * 32,
        seconds=1.5,
        costs={"replay": 1.0},
        checks=[{"check": "replay", "options": {"samples": 3}}],
    )
    validator.validate(document, schema)
    assert document["replays"][0]["ratio"] == 0.5
    broken = document | {"verdict": "perhaps"}
    with pytest.raises(validator.ValidationError):
        validator.validate(broken, schema)


def test_a_misspelt_policy_is_a_usage_error_that_lists_what_there_is() -> None:
    with pytest.raises(_core.UsageError, match="cheat_fraction"):
        _core.conclude(None, [], policy={"cheat": 0.1}, context={})


def test_an_unknown_member_of_the_context_is_refused() -> None:
    with pytest.raises(_core.UsageError, match="context"):
        report(surprise=1)


def test_an_unknown_check_is_refused_by_name() -> None:
    with pytest.raises(_core.UsageError, match="no check"):
        _core.check_fields("no check")
