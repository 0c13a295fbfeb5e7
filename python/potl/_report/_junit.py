# SPDX-License-Identifier: Apache-2.0
"""The report as JUnit XML, so that a build server shows a verification beside its tests."""

from __future__ import annotations

from collections.abc import Mapping
from xml.etree import ElementTree

from .._base._printable import as_float, printable
from ._answer import answer_of, looked_at_of, next_steps_of, shown_strength, stronger_of
from ._model import FindingRow, costs_of, findings_of, section_of


def render(document: Mapping[str, object]) -> str:
    """One suite; one case per finding, and one for the verdict, which alone says whether the run
    was accepted."""
    findings = findings_of(document)
    verdict = str(document["verdict"])
    failures = sum(row.result == "reject" for row in findings) + (verdict == "rejected")
    unjudged = sum(row.result == "inconclusive" for row in findings)
    # What an accepted run did without: an error would stop the pipeline.
    unneeded = verdict == "accepted"
    errors = (0 if unneeded else unjudged) + (verdict not in ("accepted", "rejected"))
    seconds = as_float(section_of(document, "cost").get("seconds")) or 0.0
    suite = ElementTree.Element(
        "testsuite",
        name="potl",
        tests=str(len(findings) + 1),
        failures=str(failures),
        errors=str(errors),
        skipped=str(unjudged if unneeded else 0),
        time=f"{seconds:.3f}",
    )
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in (
        ("verdict", verdict),
        ("nonce", document.get("nonce")),
        ("job", section_of(document, "job").get("id")),
        ("commitment", section_of(document, "commitment").get("root")),
        ("reproduce", document.get("reproduce")),
        ("answer", answer_of(document)),
        *(("looked_at", what) for what in looked_at_of(document)),
        *(("strength", row.sentence) for row in shown_strength(document)),
        *(("next", step) for step in next_steps_of(document)),
        *(("stronger", row.sentence) for row in stronger_of(document)),
    ):
        ElementTree.SubElement(properties, "property", name=name, value=printable(value or ""))
    for cost in costs_of(document):
        ElementTree.SubElement(
            properties, "property", name=f"seconds.{cost.name}", value=f"{cost.seconds:.6f}"
        )
    sentence = printable(document.get("sentence") or "")
    case = ElementTree.SubElement(
        suite, "testcase", classname="potl.verdict", name="verdict", time=f"{seconds:.3f}"
    )
    if verdict == "rejected":
        ElementTree.SubElement(case, "failure", type="rejected", message=sentence).text = sentence
    elif verdict != "accepted":
        ElementTree.SubElement(case, "error", type="inconclusive", message=sentence).text = sentence
    else:
        ElementTree.SubElement(case, "system-out").text = sentence
    for number, row in enumerate(findings, start=1):
        _add(suite, number, row, "skipped" if unneeded else "error")
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode", xml_declaration=False)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _add(suite: ElementTree.Element, number: int, row: FindingRow, unjudged: str) -> None:
    # Several findings may share a rule; servers merge cases of one name.
    name = " ".join(part for part in (row.rule or "note", row.where, f"#{number}") if part)
    case = ElementTree.SubElement(
        suite, "testcase", classname=f"potl.{row.check}", name=name, time="0"
    )
    text = "\n".join([row.reason, *(f"{name}: {value}" for name, value in row.details)])
    if row.meaning:
        text += f"\nrule: {row.meaning}"
    if row.result == "reject":
        ElementTree.SubElement(
            case, "failure", type=row.rule or "finding", message=row.reason
        ).text = text
    elif row.result == "inconclusive":
        ElementTree.SubElement(
            case, unjudged, type=row.rule or "finding", message=row.reason
        ).text = text
    else:
        ElementTree.SubElement(case, "system-out").text = text
