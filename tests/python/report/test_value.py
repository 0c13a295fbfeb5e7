# SPDX-License-Identifier: Apache-2.0
"""The report as a value."""

import json
import os
from pathlib import Path
from typing import Any, get_args, get_type_hints, is_typeddict

import pytest
from places import ROOT

import potl
from potl._report._document import ReportDocument


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


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"verdict": "paid"}, "it has no verdict"),
        ({"verdict": ["accepted"]}, "it has no verdict"),
        ({"sentence": None}, "it has no sentence"),
        ({"strength": []}, "it has no strength"),
        ({"cost": 1}, "it has no cost"),
        ({"cost": {"seconds": float("nan")}}, "NaN is no number"),
        ({"cost": {"seconds": float("inf")}}, "Infinity is no number"),
        ({"findings": {}}, "it has no findings"),
        ({"findings": [1]}, "finding 0 does not say what was found"),
        ({"findings": [{"check": "pev", "result": "pass"}]}, "finding 0 does not say"),
        (
            {"findings": [{"check": "a", "result": "pass", "reason": "b", "details": [1]}]},
            "finding 0 has details that are not names and values",
        ),
        (
            {"findings": [{"check": "replay", "result": "reject", "reason": "b"}]},
            "its verdict is not that of its findings",
        ),
        ({"verdict": "rejected"}, "its verdict is not that of its findings"),
    ],
)
def test_another_document_is_no_report(
    tmp_path: Path, change: dict[str, object], said: str
) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps({**report("accepted").document, **change}))
    with pytest.raises(potl.MalformedError, match=said):
        potl.Report.read(path)


def test_a_file_that_is_too_long_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.touch()
    os.truncate(path, 1 << 40)
    with pytest.raises(potl.LimitError, match="1099511627776 bytes"):
        potl.Report.read(path)


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, "{}".encode("utf-16")]
)
def test_what_is_no_json_object_is_no_report(text: bytes) -> None:
    with pytest.raises(potl.MalformedError, match="this is not a report") as refused:
        potl.Report(text)
    assert "potl verify --json" in refused.value.remedy


@pytest.mark.parametrize("name", ["report.json", "report.html", "report.xml"])
def test_a_report_is_written_over_nothing_but_an_earlier_one(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    report("accepted").write(path)
    report("rejected").write(path)
    assert "rejected" in path.read_text()
    path.write_text("{}")
    with pytest.raises(potl.UsageError, match="exists and is no report"):
        report("accepted").write(path)
    assert path.read_text() == "{}"
    assert [one.name for one in tmp_path.iterdir()] == [name]
    os.truncate(path, 1 << 40)
    with pytest.raises(potl.UsageError, match="exists and is no report"):
        report("accepted").write(path)


def test_a_report_needs_a_folder(tmp_path: Path) -> None:
    with pytest.raises(potl.UsageError, match="there is no folder"):
        report("accepted").write(tmp_path / "none/report.html")
    (tmp_path / "report.html").mkdir()
    with pytest.raises(potl.UsageError, match="is a folder"):
        report("accepted").write(tmp_path / "report.html")


def test_the_types_say_what_the_schema_says() -> None:
    schema = json.loads((ROOT / "docs/format/report.schema.json").read_text())
    assert compared(ReportDocument, schema, "") >= {"", "findings", "strength/reach", "cost/checks"}


def compared(hint: Any, schema: dict[str, Any], place: str) -> set[str]:
    """The places of objects whose members were compared."""
    kinds = [one for one in flat(hint) if is_typeddict(one)]
    inner = {**schema, **schema.get("items", {})}
    if "properties" not in inner:
        assert kinds == [], place
        return set()
    (kind,) = kinds
    members = get_type_hints(kind)
    assert set(members) == set(inner["properties"]), place
    assert kind.__required_keys__ == set(inner["required"]), place
    return {place}.union(
        *(
            compared(members[name], one, f"{place}/{name}".lstrip("/"))
            for name, one in inner["properties"].items()
        )
    )


def flat(hint: Any) -> list[Any]:
    """A type and those that it is made of."""
    return [hint, *(one for part in get_args(hint) for one in flat(part))]


def test_json_survives_a_file(tmp_path: Path) -> None:
    report("accepted").write(tmp_path / "report.json")
    again = potl.Report.read(tmp_path / "report.json")
    assert again.json() == report("accepted").json()


def test_an_unknown_suffix_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(potl.UsageError, match=r"\.json"):
        report("accepted").write(tmp_path / "report.pdf")
