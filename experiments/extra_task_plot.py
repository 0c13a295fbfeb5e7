# SPDX-License-Identifier: Apache-2.0
"""Plots of the extra task's experiments: lines over epochs or options, with a threshold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from potl._report import _svg

COLOURS = {
    "original": "#1f5fa8",
    "extra": "#2a7d3f",
    "control": "#999",
    "other": "#8a3ffc",
    "fifth": "#c2185b",
    "sixth": "#b8860b",
}
STYLE = (
    "text{font:12px sans-serif;fill:#555}.heading{font-size:14px;fill:#222}.grid{stroke:#ddd}"
    ".limit{stroke:#b35900;stroke-dasharray:4 3}path{fill:none;stroke-width:2}"
    + "".join(f"path.{one}{{stroke:{at}}}text.{one}{{fill:{at}}}" for one, at in COLOURS.items())
    + ".passing{fill:#2a7d3f}rect{fill:#fff}"
)
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 640, 320, 48, 30, 280


@dataclass(frozen=True)
class Line:
    """Values over the points of the horizontal axis; `class_` is one of COLOURS."""

    title: str
    class_: str
    values: Sequence[float]


def plot(
    heading: str,
    axis: str,
    at: Sequence[float],
    lines: Sequence[Line],
    *,
    limits: Sequence[tuple[str, float]] = (),
    mark: tuple[float, float] | None = None,
    percent: bool = True,
    logarithmic: bool = False,
    names: Sequence[str] = (),
) -> str:
    """An SVG picture.

    Args:
        heading: Above it.
        axis: What the horizontal axis is.
        at: The points there, rising.
        lines: One value per point each.
        limits: Dashed lines, with their labels.
        mark: A point to be marked.
        percent: Values are shares, from 0 to 1.
        logarithmic: The vertical axis is.
        names: What is written below the points, where they are not numbers on a line.
    """
    values = [value for line in lines for value in line.values]
    low, high = (0.0, 1.0) if percent else (min(values) if logarithmic else 0.0, max(values))
    x = _svg.Scale(at[0], at[-1], LEFT, WIDTH - 150)
    y = _svg.Scale(low, high, BOTTOM, TOP, logarithmic)
    parts = [_svg.label(heading, LEFT, 18, class_="heading"), *_grid(x, y, percent)]
    ticks = zip(at, names, strict=True) if names else ((one, f"{one:g}") for one in x.ticks(8))
    for place, name in ticks:
        parts.append(_svg.label(name, x(place), BOTTOM + 16, anchor="middle"))
    parts.append(_svg.label(axis, x.end, BOTTOM + 32, anchor="end"))
    for name, value in limits:
        parts.append(_across(x, y(value), "limit"))
        parts.append(_svg.label(name, x.end + 6, y(value) + 4))
    taken = [y(value) for _, value in limits]
    places = _spread([y(line.values[-1]) for line in lines], taken)
    for line, place in zip(lines, places, strict=True):
        points = [(x(one), y(value)) for one, value in zip(at, line.values, strict=True)]
        parts.append(_svg.path(points, class_=line.class_))
        parts.append(_svg.label(line.title, x.end + 6, place + 4, class_=line.class_))
    if mark is not None:
        dot = _svg.element("circle", cx=x(mark[0]), cy=y(mark[1]), r=4.0, class_="passing")
        parts.append(dot)
    picture = _svg.element(
        "svg",
        _svg.element("title", heading),
        _svg.element("style", STYLE),
        _svg.element("rect", width=float(WIDTH), height=float(HEIGHT)),
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
    )
    return str(picture) + "\n"


def _grid(x: _svg.Scale, y: _svg.Scale, percent: bool) -> list[Markup]:
    parts = []
    for tick in y.ticks(5):
        parts.append(_across(x, y(tick), "grid"))
        shown = f"{100 * tick:.0f} %" if percent else f"{tick:g}"
        parts.append(_svg.label(shown, LEFT - 6, y(tick) + 4, anchor="end"))
    return parts


def _across(x: _svg.Scale, at: float, class_: str) -> Markup:
    return _svg.element("line", x1=x.start, x2=x.end, y1=at, y2=at, class_=class_)


def _spread(places: list[float], taken: list[float]) -> list[float]:
    """Places of labels, moved down until none covers another."""
    out: list[float] = []
    for place in places:
        while any(abs(place - other) < 13 for other in [*out, *taken]):
            place += 1
        out.append(place)
    return out
