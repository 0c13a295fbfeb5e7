# SPDX-License-Identifier: Apache-2.0
"""`potl demo`: one honest training on real data and the catalogue's cheats against it, in one table
and one page.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from .._base._errors import NotReplayable
from .._base._progress import Progress, track

if TYPE_CHECKING:
    from rich.console import Console

    from .._report._value import Report
    from . import Attack, Scene


class Row(TypedDict):
    """One line of the demo's table."""

    who: str
    how: str
    verdict: str
    decided_by: str
    """The finding that decided: its rule, or what the honest run passed."""
    reason: str
    cost: float
    """Verification time as a fraction of training time."""
    expected_rule: str
    as_expected: bool


class Played(TypedDict):
    """What came of the demo.

    Attributes:
        rows: The table.
        report: Path of the page.
        seconds: How long it took.
        ok: Whether the honest run was accepted and every cheat rejected for its expected reason.
    """

    rows: list[Row]
    report: str
    seconds: float
    ok: bool


def _decisive(report: Report) -> tuple[str, str]:
    """Rule and reason of the finding that decided."""
    wanted = {"rejected": "reject", "inconclusive": "inconclusive"}.get(report.verdict)
    for finding in report.findings:
        if finding.result == wanted:
            return finding.rule, finding.reason
    return "", report.sentence


def play(scene: Scene, item: Attack) -> tuple[Row, Report | None]:
    """Builds one forgery and has the client verify it."""
    try:
        forgery = item.make(scene)
    except NotReplayable as refusal:
        return (
            Row(
                who=f"{item.id} {item.name}",
                how=item.how,
                verdict="refused",
                decided_by="agreed.replayable",
                reason=str(refusal).splitlines()[0],
                cost=0.0,
                expected_rule=item.rule,
                as_expected=item.rule == "agreed.replayable",
            ),
            None,
        )
    report = scene.verify(forgery)
    rule, reason = _decisive(report)
    rejecting = {finding.rule for finding in report.findings if finding.result == "reject"}
    return (
        Row(
            who=f"{item.id} {item.name}",
            how=item.how,
            verdict=report.verdict,
            decided_by=rule or "all checks passed",
            reason=reason,
            cost=report.cost["fraction"] or 0.0,
            expected_rule=" or ".join(item.found_by),
            as_expected=report.verdict == "rejected"
            and bool(rejecting)
            and rejecting <= set(item.found_by),
        ),
        report,
    )


def run_demo(out: Path, *, progress: Progress = None) -> Played:
    """Plays the demo.

    Args:
        out: Directory for runs, report.html and demo.json; what it holds of these is replaced.
        progress: As in `potl.verify`: one unit per row of the table.
    """
    from .._report._report import render_demo_html
    from .._task._reading import one_thread
    from . import Scene, _tasks as tasks, catalogue

    began = time.perf_counter()
    cheats = [item for item in catalogue() if item.in_demo]
    rows: list[Row] = []
    reports: list[Report | None] = []
    with (
        one_thread(),  # more would only wait for each other: the net is small
        track("playing the demo", len(cheats) + 1, progress) as advance,
    ):
        scene = Scene(out / "runs", tasks.demo, checkpoint_every=11, arithmetic="auto")
        report = scene.verify(scene.honest)
        rows.append(_honest_row(report))
        reports.append(report)
        for number, item in enumerate(cheats):
            if advance is not None:
                advance(number + 1)
            row, judged = play(scene, item)
            rows.append(row)
            reports.append(judged)

    page = out / "report.html"
    documents = [one.json() if one is not None else None for one in reports]
    page.write_text(render_demo_html(rows, documents), encoding="utf-8")
    result: Played = {
        "rows": rows,
        "report": str(page),
        "seconds": time.perf_counter() - began,
        "ok": all(row["as_expected"] for row in rows),
    }
    (out / "demo.json").write_text(json.dumps(result, indent=1), encoding="utf-8")
    return result


def _honest_row(report: Report) -> Row:
    rule, reason = _decisive(report)
    return Row(
        who="honest trainer",
        how="Trains as agreed.",
        verdict=report.verdict,
        decided_by=rule or "all checks passed",
        reason=reason,
        cost=report.cost["fraction"] or 0.0,
        expected_rule="none",
        as_expected=report.verdict == "accepted",
    )


def show(result: Played, console: Console) -> None:
    """Prints the table and where the page is."""
    from rich.table import Table

    table = Table(title="potl demo: one training, honest and cheated")
    for title in ("who", "verdict", "decided by", "cost / training", "expected reason"):
        table.add_column(title, overflow="fold")
    for row in result["rows"]:
        table.add_row(
            row["who"],
            row["verdict"],
            row["decided_by"],
            f"{row['cost']:.1%}",
            "yes" if row["as_expected"] else f"no: {row['expected_rule']}",
        )
    console.print(table)
    fine = "as expected" if result["ok"] else "NOT AS EXPECTED"
    console.print(f"{len(result['rows'])} rows, {fine}, in {result['seconds']:.0f} seconds")
    console.print(f"report: {result['report']}", soft_wrap=True)
