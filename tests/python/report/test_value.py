# SPDX-License-Identifier: Apache-2.0
"""The report as a value."""

import json
from pathlib import Path

import pytest

import potl


def report(verdict: str) -> potl.Report:
    finding = {
        "check": "replay",
        "rule": "replay.parameters",
        "result": "reject" if verdict == "rejected" else "pass",
        "reason": "steps 4 to 8 end elsewhere",
        "first_step": 4,
        "last_step": 8,
        "statistic": 0.5,
        "threshold": 0.1,
        "details": {"tensor": "0.weight"},
    }
    document = {
        "verdict": verdict,
        "sentence": "because",
        "findings": [finding],
        "strength": {"segments": 10},
        "cost": {"fraction": 0.1},
    }
    return potl.Report(json.dumps(document).encode())


@pytest.mark.parametrize(
    ("verdict", "code"), [("accepted", 0), ("rejected", 1), ("inconclusive", 3)]
)
def test_each_verdict_has_its_exit_code(verdict: str, code: int) -> None:
    assert report(verdict).exit_code == code


def test_an_accepted_report_raises_nothing() -> None:
    report("accepted").raise_for_verdict()


def test_a_rejected_report_raises_rejected_with_the_sentence() -> None:
    with pytest.raises(potl.Rejected, match="because"):
        report("rejected").raise_for_verdict()


def test_an_inconclusive_report_raises_inconclusive() -> None:
    with pytest.raises(potl.Inconclusive, match="because"):
        report("inconclusive").raise_for_verdict()


def test_findings_are_values() -> None:
    (finding,) = report("rejected").findings
    assert (finding.check, finding.rule, finding.result) == (
        "replay",
        "replay.parameters",
        "reject",
    )
    assert (finding.first_step, finding.last_step) == (4, 8)
    assert (finding.statistic, finding.threshold, finding.error_probability) == (0.5, 0.1, None)
    assert finding.details == {"tensor": "0.weight"}


def test_a_report_cannot_be_changed() -> None:
    value = report("rejected")
    value.document["verdict"] = "accepted"
    assert value.verdict == "rejected"
    with pytest.raises(TypeError):
        value.strength["segments"] = 0  # type: ignore[index]


def test_json_survives_a_file(tmp_path: Path) -> None:
    report("accepted").write(tmp_path / "report.json")
    again = potl.Report.read(tmp_path / "report.json")
    assert again.json() == report("accepted").json()


def test_an_unknown_suffix_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(potl.UsageError, match=r"\.json"):
        report("accepted").write(tmp_path / "report.pdf")
