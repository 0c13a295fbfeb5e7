# SPDX-License-Identifier: Apache-2.0
"""What a run directory holds, for people: the facts of `_core.inspect_run` on a terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ._printable import as_float, number, printable, size, steps

if TYPE_CHECKING:
    from rich.console import Console

_BARS = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
_SPARK_WIDTH = 60
_SHOWN = 12


def sparkline(values: Sequence[object], *, width: int = _SPARK_WIDTH) -> str:
    """Values as a row of bars, each the mean of its share of them; what is not finite shows as
    "x"."""
    reals = [as_float(value) for value in values]
    if not reals:
        return ""
    finite = [value for value in reals if value is not None and math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    out = []
    columns = min(width, len(reals))
    for column in range(columns):
        part = reals[column * len(reals) // columns : (column + 1) * len(reals) // columns]
        good = [value for value in part if value is not None and math.isfinite(value)]
        if len(good) < len(part):
            out.append("x")
            continue
        # Halved, because the sum or difference of two finite numbers may not be finite.
        mean = sum(value / len(good) for value in good)
        share = (mean / 2 - low / 2) / (high / 2 - low / 2) if high > low else 0.0
        out.append(_BARS[min(int(share * len(_BARS)), len(_BARS) - 1)])
    return "".join(out)


def show(facts: Mapping[str, Any], console: Console) -> None:
    """Prints the facts of a run."""
    from rich.text import Text

    def line(name: str, text: str, style: str = "") -> None:
        console.print(Text.assemble((f"{name:<12}", "dim"), (text, style)))

    line("job", printable(facts.get("job", "not readable")))
    line("trainer", printable(facts.get("trainer", "not readable")))
    if facts.get("software"):
        line("software", printable(facts["software"]))
    agreed = facts.get("agreed_steps")
    line(
        "steps", number(facts.get("steps", 0)) + (f" of {number(agreed)} agreed" if agreed else "")
    )
    losses = facts.get("losses") or []
    if losses:
        line("loss", f"{sparkline(losses)}  {number(losses[0])} to {number(losses[-1])}")
    checkpoints = facts.get("checkpoints") or []
    total = sum(int(entry.get("bytes", 0)) for entry in checkpoints)
    line("checkpoints", f"{number(len(checkpoints))}, {size(total)}")
    line("log", f"{size(facts.get('log_bytes'))}, {number(facts.get('records', 0))} records")
    line("ended", "closed" if facts.get("closed") else "no: interrupted, or still being recorded")
    line("committed", "yes" if facts.get("committed") else "no")
    for entry in _first(facts.get("resumes")):
        line("resume", printable(entry) if isinstance(entry, str) else _resume(entry))
    for entry in _first(facts.get("gaps")):
        line("gap", _gap(entry), "yellow")
    for entry in _first(facts.get("damage")):
        line("damage", printable(entry), "red")
    if not facts.get("damage"):
        line("damage", "none seen (potl verify looks closer)")


def _first(entries: object) -> list[Any]:
    listed = list(entries) if isinstance(entries, Sequence) and not isinstance(entries, str) else []
    if len(listed) <= _SHOWN:
        return listed
    return [*listed[:_SHOWN], f"and {number(len(listed) - _SHOWN)} more"]


def _resume(entry: Mapping[str, Any]) -> str:
    replaced = int(entry.get("last_step", 0)) - int(entry.get("from_step", 0))
    return (
        f"went on from step {number(entry.get('from_step'))}, {number(replaced)} steps done again"
    )


def _gap(entry: object) -> str:
    if isinstance(entry, Mapping):
        return steps(entry.get("first_step"), entry.get("last_step")) or printable(dict(entry))
    if isinstance(entry, Sequence) and not isinstance(entry, str) and len(entry) == 2:
        return steps(entry[0], entry[1])
    return printable(entry)
