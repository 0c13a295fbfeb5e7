# SPDX-License-Identifier: Apache-2.0
"""The report on a terminal."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .._base._printable import counted, duration, number, percent, printable
from ._answer import (
    answer_of,
    looked_at_of,
    next_steps_of,
    shown_strength,
    stronger_of,
    why_no_strength,
)
from ._model import (
    VERDICT_SIGNS,
    VERDICT_WORDS,
    FindingRow,
    costs_of,
    findings_of,
    grouped,
    outcome_of,
    reach_of,
    replays_of,
    rows_of,
    section_of,
)

_STYLES = {"accepted": "bold green", "rejected": "bold red", "inconclusive": "bold yellow"}
_RESULT_STYLES = {"reject": "red", "inconclusive": "yellow", "pass": "green", "note": "dim"}


def render(document: Mapping[str, object], console: Console) -> None:
    """Prints the verdict, the findings, what was looked at, strength, cost, limits and what to do
    next; the verdict once more at the end, as the start may have left the screen."""
    verdict = str(document["verdict"])
    headline = Text(
        f"{VERDICT_SIGNS.get(verdict, '?')} {VERDICT_WORDS.get(verdict, 'Inconclusive')}",
        style=_STYLES.get(verdict, "bold yellow"),
    )
    console.print(Text.assemble(headline, "  " + answer_of(document)))
    console.print(Text(printable(document.get("sentence") or "")))
    console.print()
    console.print(_findings(findings_of(document)))
    console.print()
    _summary(document, console)
    console.print(Text.assemble((f"{'verdict':<10}", "dim"), headline))


def _findings(rows: list[FindingRow]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("", no_wrap=True)
    table.add_column("check", no_wrap=True)
    table.add_column("finding and rule", overflow="fold")
    for group in grouped(rows):
        row, more = group[0], len(group) - 1
        told = row.result == "pass" or more or row.where in row.reason
        reason = Text(row.reason if told else f"{row.where}: {row.reason}")
        if more:
            reason.append(f" (and {number(more)} more)", style="dim")
        if row.rule:
            reason.append(f"  {row.rule}", style="dim")
        sign = Text(f"{row.sign} {row.word}", style=_RESULT_STYLES[row.result])
        table.add_row(sign, Text(row.check), reason)
    return table


def _summary(document: Mapping[str, object], console: Console) -> None:
    def line(name: str, text: str) -> None:
        console.print(Text.assemble((f"{name:<10}", "dim"), text))

    def copied(name: str, text: str) -> None:
        """Without line ends of its own, which a shell would take for those of commands."""
        console.print(Text.assemble((f"{name:<10}", "dim"), text), soft_wrap=True)

    for what in looked_at_of(document):
        line("looked at", what)
    replays = replays_of(document)
    if replays:
        # None in exact arithmetic, and 0 where another thing than a distance does not fit.
        ratio = max((row.ratio or 0.0 for row in replays), default=0.0)
        worst = f"; the farthest is at {percent(ratio)} of its tolerance" if ratio else ""
        if all(row.equal for row in replays):
            worst = ", each bit for bit equal"
        line("replays", f"{counted(len(replays), 'segment')}, {outcome_of(replays)}{worst}")
    quoted = shown_strength(document)
    for row in quoted:
        line("strength", row.sentence)
    line(*(("reach", reach_of(document)) if quoted else ("strength", why_no_strength(document))))
    cost = section_of(document, "cost")
    share = cost.get("fraction")
    parts = ", ".join(f"{row.name} {row.seconds_text}" for row in costs_of(document))
    total = duration(cost.get("seconds")) + (
        "" if share is None else f", {percent(share)} of training"
    )
    line("cost", (f"{total} ({parts})" if parts else total) + "; loading the task not counted")
    for entry in rows_of(document, "limits"):
        line("unseen", f"{printable(entry.get('check', ''))}: {printable(entry.get('text', ''))}")
    nonce, command = document.get("nonce"), printable(document.get("reproduce") or "")
    if nonce:
        copied("nonce", printable(nonce))
    if command:  # that of an interim look, whose draw is not told, is another one
        copied("again" if nonce else "verify", command)
    for stronger in stronger_of(document):
        line("stronger", stronger.sentence)
    for step in next_steps_of(document):
        line("next", step)
