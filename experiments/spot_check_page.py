# SPDX-License-Identifier: Apache-2.0
"""What is kept of the backdoor's experiment: tables and plots of docs/experiments/spot_check.md,
and the figures behind them."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import measuring
import numpy as np
from extra_task_plot import COLOURS, Line, plot
from extra_task_table import mean_interval
from spot_check_tasks import Setting

import potl

DOCS = measuring.ROOT / "docs" / "experiments"
PAGE, FIGURES = DOCS / "spot_check.md", DOCS / "spot_check.json"
AT_RISK = 100  # the plan of the column "caught": so many false steps are caught
WORKS = 0.5  # success that counts
UNNOTICED = 0.05  # of accuracy that a backdoor may cost


@dataclass(frozen=True, kw_only=True)
class Row:
    """A training that ended.

    Attributes:
        clip: Largest norm of a gradient; None for no clipping.
        false: Number of false steps.
        placed: "last", or "spread" evenly.
        accuracy: Of the model on test images.
        success: Share of test images of other classes that the trigger turns into the attacker's.
        seed: Of weights and batches.
    """

    clip: float | None
    false: int
    placed: str
    accuracy: float
    success: float
    seed: int


def _clips(rows: Sequence[Row]) -> list[float | None]:
    return list(dict.fromkeys(row.clip for row in rows))


def _column(clip: float | None) -> str:
    return "no clip" if clip is None else f"clip {clip:g}"


def _places(rows: Sequence[Row]) -> list[tuple[int, str]]:
    """Numbers of false steps, and where they are; the last ones first."""
    return sorted({(row.false, row.placed) for row in rows}, key=lambda one: (one[1], one[0]))


def _of(
    rows: Sequence[Row], clip: float | None, false: int, placed: str, value: Callable[[Row], float]
) -> list[float]:
    return [
        value(row) for row in rows if (row.clip, row.false, row.placed) == (clip, false, placed)
    ]


def _cell(values: Sequence[float]) -> str:
    low, mean, high = (
        f"{100 * one:.0f}" for one in (min(values), statistics.fmean(values), max(values))
    )
    return mean if low == high else f"{mean} ({low}-{high})"


def planned(setting: Setting, at_risk: int, clip: float = 1.0) -> potl.spot_check.Plan:
    return potl.spot_check.plan(
        rates=setting.rate,
        steps=setting.steps,
        momentum=setting.momentum,
        clip=clip,
        steps_at_risk=at_risk,
    )


def caught(setting: Setting, false: int) -> str:
    """How likely checks find one of so many false steps."""
    missed = float(np.prod(1 - planned(setting, AT_RISK).probabilities[:false]))
    if missed < 1e-4:
        return "> 0.9999"
    return f"{1 - missed:.2f}" if missed > 0.005 else f"{1 - missed:.3f}"


def named(setting: Setting, false: int, placed: str) -> str:
    """False steps in words."""
    return {0: "none", setting.steps: f"all {false}"}.get(false, f"{placed} {false}")


def _table(
    setting: Setting, rows: Sequence[Row], heading: str, value: Callable[[Row], float], last: bool
) -> list[str]:
    clips = _clips(rows)
    lines = [
        f"{heading}, in percent:\n\n| false steps | {' | '.join(map(_column, clips))} |"
        + (" caught |" if last else ""),
        "|---" * (len(clips) + 1 + last) + "|",
    ]
    for false, placed in _places(rows):
        cells = [_cell(_of(rows, clip, false, placed, value)) for clip in clips]
        end = f" {caught(setting, false) if false else 'never'} |" if last else ""
        lines.append(f"| {named(setting, false, placed)} | {' | '.join(cells)} |{end}")
    return lines


def fewest(rows: Sequence[Row], clip: float | None, loss: float = 1.0) -> int | None:
    """The least number of false steps that was tried and succeeded, at no more than some loss of
    accuracy against the honest training."""

    def mean(false: int, value: Callable[[Row], float]) -> float:
        return statistics.fmean(_of(rows, clip, false, "last", value))

    honest = mean(0, lambda row: row.accuracy)
    tried = (false for false, placed in _places(rows) if placed == "last" and false)
    return next(
        (
            false
            for false in tried
            if mean(false, lambda row: row.success) >= WORKS
            and mean(false, lambda row: row.accuracy) >= honest - loss
        ),
        None,
    )


def _price(setting: Setting, rows: Sequence[Row]) -> list[str]:
    """What a clip costs an honest training, and what it saves in checks."""
    lines = [
        "| clip | honest accuracy | costs, points | false steps needed | unnoticed | checks | "
        "certificate |",
        "|---|---|---|---|---|---|---|",
    ]

    def honest(clip: float | None) -> list[float]:
        return [100 * one for one in _of(rows, clip, 0, "last", lambda row: row.accuracy)]

    for clip in _clips(rows):
        cost, needed = "", fewest(rows, clip)
        if clip is not None:
            pairs = zip(honest(None), honest(clip), strict=True)
            mean, low, high = mean_interval([without - with_ for without, with_ in pairs])
            cost = f"{mean:.1f} [{low:.1f}, {high:.1f}]"
        checks = certificate = ""
        if needed is not None:
            plan = planned(setting, needed, clip or 1.0)
            checks = f"{plan.expected_checks:.0f} of {setting.steps}"
            certificate = "none" if clip is None else f"{plan.certificate.displacement:.3g}"
        lines.append(
            f"| {'none' if clip is None else f'{clip:g}'} | "
            f"{statistics.fmean(honest(clip)):.1f} % | {cost} | {needed or 'none do'} | "
            f"{fewest(rows, clip, UNNOTICED) or 'none do'} | {checks} | {certificate} |"
        )
    return lines


def tables(setting: Setting, rows: Sequence[Row]) -> str:
    """The part of the page that is of one data set."""
    parts = [
        _table(setting, rows, "Success", lambda row: row.success, True),
        _table(setting, rows, "Accuracy", lambda row: row.accuracy, False),
        _price(setting, rows),
    ]
    return "\n\n".join("\n".join(part) for part in parts)


def picture(setting: Setting, rows: Sequence[Row]) -> str:
    """Success against the number of false steps at the end."""
    numbers = [false for false, placed in _places(rows) if placed == "last"]
    lines = [
        Line(
            _column(clip),
            colour,
            [
                statistics.fmean(_of(rows, clip, false, "last", lambda row: row.success))
                for false in numbers
            ],
        )
        for clip, colour in zip(_clips(rows), COLOURS, strict=True)
    ]
    return plot(
        f"{setting.title}: success of the backdoor",
        "false steps, the last ones of the training",
        range(len(numbers)),
        lines,
        names=[f"{number}" for number in numbers],
    )


def keep(name: str, text: str, rows: Sequence[Any], plot: str | None = None) -> None:
    """Puts a part's text, its figures (dataclasses) and its plot into docs."""
    whole = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(replaced(whole, name, text), encoding="utf-8")
    figures = kept() | {name: [asdict(row) for row in rows]}
    parts = [
        f"{json.dumps(one)}: [\n" + ",\n".join(map(json.dumps, found)) + "\n]"
        for one, found in figures.items()
    ]
    FIGURES.write_text("{" + ",\n".join(parts) + "}\n", encoding="utf-8")
    if plot is not None:
        (DOCS / f"spot_check_{name}.svg").write_text(plot, encoding="utf-8")


def replaced(text: str, name: str, by: str) -> str:
    """The page with another part between its marks."""
    mark = re.compile(rf"(<!-- part: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    return mark.sub(lambda found: f"{found[1]}\n{by}\n\n{found[2]}", text)


def kept() -> dict[str, list[dict[str, Any]]]:
    """Figures that are in docs, by part."""
    if not FIGURES.is_file():
        return {}
    found: dict[str, list[dict[str, Any]]] = json.loads(FIGURES.read_text(encoding="utf-8"))
    return found
