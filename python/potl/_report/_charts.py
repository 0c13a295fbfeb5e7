# SPDX-License-Identifier: Apache-2.0
"""The pictures of a report. Each is drawn once per width, so that its text stays readable on a
phone; whatever a picture shows is also in a table or a sentence beside it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from .._base._printable import as_float, counted, number, percent
from . import _svg
from ._model import ReplayRow, StrengthRow, outcome_of, replays_of, section_of
from ._svg import Scale, element, label

# Class in the style sheet -> width: the page shows the one that fits.
WIDTHS = {"wide": 920, "medium": 560, "narrow": 320}
_WIDE = WIDTHS["wide"]
_SMALL = 340

_LEFT, _RIGHT = 52.0, 14.0
_LOSS_HEIGHT, _LANE_HEIGHT, _DISTANCE_HEIGHT = 150.0, 40.0, 120.0
_LEAST_RATIO = 1e-6

# Lane -> the reasons that belong to it. What fits nowhere goes to the last lane.
_LANES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Drawn at random", ("random",)),
    ("Unusual states and records", ("top-q", "reach", "log")),
    ("First and last", ("first", "final")),
    ("Earlier challenges and resumes", ("earlier challenge", "superseded")),
)


def timeline(document: Mapping[str, object], *, width: int, name: str) -> Markup:
    """Loss over the run, which segments were replayed and why, and how far each was from its
    tolerance."""
    points = _losses(document)
    replays = replays_of(document)
    last = _last_step(document, points, replays)
    if last <= 0:
        return Markup("")
    x = Scale(0, last, _LEFT, width - _RIGHT)
    parts: list[Markup] = []
    top = 20.0
    bands_from = top
    if points:
        parts += _loss_panel(points, x, top, width)
        top += _LOSS_HEIGHT + 34
    lanes = _lanes(replays)
    for title, rows in lanes:
        parts += _lane(title, rows, x, top)
        top += _LANE_HEIGHT
    if any(row.ratio for row in replays):  # in exact arithmetic there is no tolerance to draw
        top += 14
        parts += _distance_panel(replays, x, top + 12, width)
        top += _DISTANCE_HEIGHT + 24
    bands = [
        element(
            "rect",
            x=x(r.start),
            y=bands_from,
            width=_span(x, r),
            height=top - bands_from,
            class_="band",
        )
        for r in replays
    ]
    parts += _step_axis(x, top, width)
    return _picture(
        name,
        "Timeline of the run",
        _timeline_text(points, replays, last),
        width,
        top + 38,
        [*bands, *parts],
    )


def strength(rows: Sequence[StrengthRow], *, width: int, name: str) -> Markup:
    """Bars: the probability of having seen a cheat, by the share of segments that are false."""
    if not rows:
        return Markup("")
    x = Scale(0, 1, 96.0, width - 74.0)
    parts: list[Markup] = []
    top = 8.0
    for row in rows:
        bar = max(x(row.probability) - x(0), 1.0)
        parts += [
            label(percent(row.fraction), 88, top + 15, anchor="end", class_="name"),
            element("rect", x=x(0), y=top, width=x(1) - x(0), height=20.0, class_="trough"),
            element("rect", x=x(0), y=top, width=bar, height=20.0, class_="bar"),
            label(percent(row.probability), x(1) + 8, top + 15, class_="value"),
        ]
        top += 30
    text = " ".join(row.sentence for row in rows)
    return _picture(name, "Probability of seeing a false transition", text, width, top, parts)


def answer(rows: Sequence[StrengthRow], *, segments: object, name: str) -> Markup:
    """The same for the first page: few rows, small enough for a phone."""
    if not rows:
        return Markup("")
    x = Scale(0, 1, 128.0, 266.0)
    parts: list[Markup] = []
    top = 2.0
    for row in rows:
        share = percent(row.fraction)
        if row.bad is not None:
            share += f" ({number(row.bad)} of {number(segments)})"
        parts += [
            label(share, 0, top + 15, class_="name"),
            element("rect", x=x(0), y=top, width=x(1) - x(0), height=20.0, class_="trough"),
            element(
                "rect",
                x=x(0),
                y=top,
                width=max(x(row.probability) - x(0), 1.0),
                height=20.0,
                class_="bar",
            ),
            label(percent(row.probability), x(1) + 8, top + 15, class_="value"),
        ]
        top += 28
    text = " ".join(row.sentence for row in rows)
    title = "Probability of seeing false transitions"
    return _picture(name, title, text, _SMALL, top, parts, class_="small")


def _losses(document: Mapping[str, object]) -> list[tuple[float, float | None]]:
    series = section_of(document, "timeline")
    numbers, losses = series.get("step"), series.get("loss")
    if not isinstance(numbers, list) or not isinstance(losses, list):
        return []
    out: list[tuple[float, float | None]] = []
    for step, loss in zip(numbers, losses, strict=False):
        at, value = as_float(step), as_float(loss)
        if at is not None and 0 <= at < 2**53:
            out.append((at, value if value is not None and math.isfinite(value) else None))
    return out


def _last_step(
    document: Mapping[str, object],
    points: Sequence[tuple[float, float | None]],
    replays: Sequence[ReplayRow],
) -> float:
    agreed = as_float(section_of(document, "job").get("steps")) or 0.0
    recorded = max([step for step, _ in points] + [float(row.end) for row in replays], default=0.0)
    # A job may promise 10^12 steps of which nothing was recorded.
    return agreed if recorded == 0 or agreed <= 20 * recorded else recorded


def _loss_panel(
    points: Sequence[tuple[float, float | None]], x: Scale, top: float, width: int
) -> list[Markup]:
    finite = [(step, loss) for step, loss in points if loss is not None]
    parts = [label("Loss", _LEFT, top - 6, class_="heading")]
    if finite:
        low, high = min(loss for _, loss in finite), max(loss for _, loss in finite)
        logarithmic = low > 0 and high / low > 100
        if not logarithmic and low > 0 and low < high / 2:
            low = 0.0
        y = Scale(low, high, top + _LOSS_HEIGHT, top + 4, logarithmic)
        for tick in y.ticks(4):
            parts += [
                element("line", x1=_LEFT, x2=width - _RIGHT, y1=y(tick), y2=y(tick), class_="grid"),
                label(number(tick), _LEFT - 6, y(tick) + 4, anchor="end"),
            ]
        thinned = _svg.thin([loss for _, loss in finite], max(60, int(width / 3)))
        line = [(x(finite[index][0]), y(value)) for index, value in thinned]
        parts.append(_svg.path(line, class_="loss"))
    broken = [step for step, loss in points if loss is None]
    for step in broken[:50]:
        parts.append(label("\u2717", x(step), top + 12, anchor="middle", class_="bad-sign"))
    return parts


def _lanes(replays: Sequence[ReplayRow]) -> list[tuple[str, list[ReplayRow]]]:
    found: list[tuple[str, list[ReplayRow]]] = [(title, []) for title, _ in _LANES]
    for row in replays:
        lane = next(
            (i for i, (_, reasons) in enumerate(_LANES) if row.why.startswith(reasons)),
            len(_LANES) - 1,
        )
        found[lane][1].append(row)
    return [(title, rows) for title, rows in found if rows]


def _span(x: Scale, row: ReplayRow) -> float:
    return max(x(row.end) - x(row.start), 3.0)


def _tooltip(row: ReplayRow) -> Markup:
    return element("title", f"{row.where}: {row.why_text}; {row.result_text}")


def _lane(title: str, rows: Sequence[ReplayRow], x: Scale, top: float) -> list[Markup]:
    count = f"{len(rows)} segment{'s' if len(rows) != 1 else ''}"
    parts = [
        label(f"{title}: {count}", _LEFT, top - 2, class_="lane-name"),
        element("rect", x=x.start, y=top + 5, width=x.end - x.start, height=12.0, class_="trough"),
    ]
    for row in rows:
        # What does not fit is taller, so that colour is not needed to see it.
        parts.append(
            element(
                "rect",
                _tooltip(row),
                x=x(row.start),
                y=top + 5,
                width=_span(x, row),
                height=12.0 if row.good else 18.0,
                class_="good" if row.good else "bad",
            )
        )
    return parts


def _distance_panel(replays: Sequence[ReplayRow], x: Scale, top: float, width: int) -> list[Markup]:
    measured = [
        r.ratio for r in replays if r.ratio is not None and math.isfinite(r.ratio) and r.ratio > 0
    ]
    # Below what counts as equal there is nothing to tell apart; a forgery may be 1e30 tolerances
    # away.
    low = max(min([*measured, 1e-2]), _LEAST_RATIO)
    high = min(max([*measured, 10.0]), 1e6)
    y = Scale(
        10 ** math.floor(math.log10(low)),
        10 ** math.ceil(math.log10(high)),
        top + 84,
        top + 14,
        True,
    )
    equal_y, lost_y = top + 104.0, top + 4.0
    parts = [label("Distance, in % of the tolerance", _LEFT, top - 8, class_="heading")]
    for tick in y.ticks(4):
        parts += [
            element("line", x1=_LEFT, x2=width - _RIGHT, y1=y(tick), y2=y(tick), class_="grid"),
            label(_share(tick), _LEFT - 6, y(tick) + 4, anchor="end"),
        ]
    parts += [
        element("line", x1=_LEFT, x2=width - _RIGHT, y1=y(1), y2=y(1), class_="limit"),
        element("line", x1=_LEFT, x2=width - _RIGHT, y1=equal_y, y2=equal_y, class_="grid"),
        label("equal", _LEFT - 6, equal_y + 4, anchor="end"),
    ]
    for row in replays:
        middle = x(row.start) + _span(x, row) / 2
        if row.equal and row.good:
            at = equal_y
        elif row.ratio is None and row.status == "ok":
            continue
        elif row.ratio is None or not math.isfinite(row.ratio):
            at = lost_y
        else:
            at = y(row.ratio)
        if row.good:
            mark = element("circle", _tooltip(row), cx=middle, cy=at, r=4.0, class_="good")
        else:
            cross = f"M{middle - 5:.1f} {at - 5:.1f}l10 10m0 -10l-10 10"
            mark = element("path", _tooltip(row), d=cross, class_="cross")
        parts.append(mark)
    return parts


def _share(ratio: float) -> str:
    share = 100 * ratio
    # Left of the axis there is room for eight characters.
    return f"{share:g} %" if share < 1e5 else f"1e{round(math.log10(share))} %"


def _step_axis(x: Scale, top: float, width: int) -> list[Markup]:
    parts = [element("line", x1=x.start, x2=x.end, y1=top, y2=top, class_="axis")]
    for tick in x.ticks(8 if width >= _WIDE else 4):
        parts += [
            element("line", x1=x(tick), x2=x(tick), y1=top, y2=top + 4, class_="axis"),
            label(number(tick), x(tick), top + 17, anchor="middle"),
        ]
    parts.append(label("step", x.end, top + 33, anchor="end"))
    return parts


def _timeline_text(
    points: Sequence[tuple[float, float | None]], replays: Sequence[ReplayRow], last: float
) -> str:
    text = f"{counted(int(last), 'step')}."
    finite = [loss for _, loss in points if loss is not None]
    if finite:
        lost = points[-1][1] is None
        end = "is not finite in the end" if lost else f"ends at {number(finite[-1])}"
        text += f" The loss starts at {number(finite[0])} and {end}."
    return f"{text} {counted(len(replays), 'replay')}: {outcome_of(replays)}."


def _picture(
    name: str,
    title: str,
    text: str,
    width: int,
    height: float,
    parts: Sequence[Markup],
    *,
    class_: str | None = None,
) -> Markup:
    return element(
        "svg",
        element("title", title, id=f"{name}-title"),
        element("desc", text, id=f"{name}-text"),
        *parts,
        viewBox=f"0 0 {width} {height:.0f}",
        role="img",
        aria_labelledby=f"{name}-title {name}-text",
        class_=class_ or next(name for name, size in WIDTHS.items() if width >= size),
    )
