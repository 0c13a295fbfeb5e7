# SPDX-License-Identifier: Apache-2.0
"""The report as a build server reads it."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from potl._report import _report

Reports = dict[str, dict[str, Any]]


def suite_of(report: dict[str, Any]) -> ElementTree.Element:
    suite = ElementTree.fromstring(_report.render_junit(report)).find("testsuite")
    assert suite is not None
    return suite


@pytest.mark.parametrize("verdict", ["accepted", "rejected", "inconclusive"])
def test_the_counts_are_those_of_the_cases(reports: Reports, verdict: str) -> None:
    suite = suite_of(reports[verdict])
    cases = suite.findall("testcase")
    assert int(suite.attrib["tests"]) == len(cases) == len(reports[verdict]["findings"]) + 1
    assert int(suite.attrib["failures"]) == len(suite.findall("testcase/failure"))
    assert int(suite.attrib["errors"]) == len(suite.findall("testcase/error"))


def test_an_accepted_run_has_neither_failures_nor_errors(reports: Reports) -> None:
    report = reports["accepted"]
    # As telemetry often is, which decides nothing.
    report["findings"][-1]["result"] = "inconclusive"
    suite = suite_of(report)
    assert suite.attrib["failures"] == suite.attrib["errors"] == "0"
    assert suite.attrib["skipped"] == str(len(suite.findall("testcase/skipped"))) == "1"


def test_a_rejecting_finding_is_a_failure_that_names_its_rule(reports: Reports) -> None:
    types = [failure.attrib["type"] for failure in suite_of(reports["rejected"]).iter("failure")]
    assert types == ["rejected", "replay.parameters", "transcript.withheld"]


def test_what_could_not_be_judged_is_an_error(reports: Reports) -> None:
    types = [error.attrib["type"] for error in suite_of(reports["inconclusive"]).iter("error")]
    assert types == ["inconclusive", "replay.random_segments"]


def test_an_inconclusive_verdict_fails_the_suite_even_when_no_finding_does(
    reports: Reports,
) -> None:
    report = reports["accepted"]
    report["verdict"] = "inconclusive"
    assert suite_of(report).attrib["errors"] == "1"


def test_a_note_passes_with_its_text(reports: Reports) -> None:
    notes = [
        c
        for c in suite_of(reports["accepted"]).findall("testcase")
        if c.attrib["name"].startswith("note")
    ]
    assert [note.findtext("system-out") for note in notes] == [
        "no GPU was seen; utilisation is of the processor"
    ]


def test_the_answer_and_what_to_do_next_are_properties(reports: Reports) -> None:
    def values(verdict: str, name: str) -> list[str]:
        properties = suite_of(reports[verdict]).iter("property")
        return [one.attrib["value"] for one in properties if one.attrib["name"] == name]

    assert values("accepted", "answer")[0].startswith("You may pay")
    assert values("accepted", "looked_at") == reports["accepted"]["looked_at"]
    assert values("accepted", "strength")[1].endswith("would be seen with probability 49.5 %.")
    assert values("accepted", "stronger")[1].startswith("36 random segments, another 1 min 30 s")
    assert values("inconclusive", "next") == reports["inconclusive"]["next"]["steps"]


def test_control_characters_do_not_break_the_file(reports: Reports) -> None:
    report = reports["rejected"]
    report["findings"][3]["reason"] = "a\x00b\x1b[31m\ud800<&>]]>"
    assert any(
        "a\\u0000b\\u001b[31m\\ud800<&>]]>" in f.attrib["message"]
        for f in suite_of(report).iter("failure")
    )


def test_case_names_are_unique(reports: Reports) -> None:
    report = reports["rejected"]
    report["findings"] *= 3
    names = [case.attrib["name"] for case in suite_of(report).findall("testcase")]
    assert len(names) == len(set(names))
