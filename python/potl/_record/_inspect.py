# SPDX-License-Identifier: Apache-2.0
"""What a run directory holds, for people: the facts of `_core.inspect_run` on a terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from .._base._printable import as_float, counted, duration, number, printable, size, steps

if TYPE_CHECKING:
    from rich.console import Console

    from .. import _core

T = TypeVar("T")

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


def show(facts: _core.RunFacts, console: Console) -> None:
    """Prints the facts of a run."""
    from rich.text import Text

    def line(name: str, text: str, style: str = "") -> None:
        console.print(Text.assemble((f"{name:<12}", "dim"), (text, style)))

    line("job", printable(facts["job"] or "not readable"))
    line("trainer", printable(facts["trainer"] or "not readable"))
    line("software", printable(facts["software"] or "not readable"))
    agreed, again = facts["agreed_steps"], facts["superseded_steps"]
    text = number(facts["steps"]) + (f" of {number(agreed)} agreed" if agreed is not None else "")
    text += f", {number(again)} done again after resumes" if again else ""
    line("steps", f"{text}, trained in {duration(facts['seconds'])}")
    losses = facts["losses"]
    if losses:
        line("loss", f"{sparkline(losses)}  {number(losses[0])} to {number(losses[-1])}")
    line("checkpoints", f"{number(len(facts['checkpoints']))}, {size(facts['checkpoint_bytes'])}")
    if facts["rounding_logs"]:
        logs, total = facts["rounding_logs"], facts["rounding_bytes"]
        line("rounding", f"{counted(logs, 'log')}, {size(total)}, {size(total // logs)} a step")
    line("log", f"{counted(facts['records'], 'record')}, {size(facts['log_bytes'])}")
    if facts["telemetry_bytes"]:
        line("telemetry", size(facts["telemetry_bytes"]))
    line("ended", "closed" if facts["closed"] else "no: interrupted, or still being recorded")
    line("committed", "yes" if facts["committed"] else "no")
    for text in _first(facts["resumes"], _resume):
        line("resume", text)
    for text in _first(facts["gaps"], _gap):
        line("gap", text, "yellow")
    for text in _first(facts["unused"], printable):
        line("unused", text, "yellow")
    for text in _first(facts["damage"], printable):
        line("damage", text, "red")
    if not facts["damage"]:
        line("damage", "none seen (potl verify looks closer)")


def _first(entries: Sequence[T], describe: Callable[[T], str]) -> list[str]:
    listed = [describe(entry) for entry in entries[:_SHOWN]]
    if len(entries) > _SHOWN:
        listed.append(f"and {number(len(entries) - _SHOWN)} more")
    return listed


def _resume(entry: _core.ResumeRange) -> str:
    replaced = entry["last_step"] - entry["from_step"]
    return f"went on from step {number(entry['from_step'])}, {counted(replaced, 'step')} done again"


def _gap(entry: _core.StepGap) -> str:
    where = steps(entry["first_step"], entry["last_step"])
    return f"no checkpoint is stored within {where}"
