# SPDX-License-Identifier: Apache-2.0
"""Inline SVG: elements whose text is always escaped, scales and ticks. Colours come from the page's
style sheet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

# A tenth of what is smaller is no number of full precision.
_LEAST_SPAN = 1e-305


def element(tag: str, *children: str | Markup, **attributes: str | float | None) -> Markup:
    """`<tag attributes>children</tag>`. Plain strings are escaped, Markup is not; a trailing "_" in
    a name is dropped (`class_`), other "_" become "-"; attributes that are None are left out."""
    parts = [f"<{tag}"]
    for name, value in attributes.items():
        if value is None:
            continue
        shown = _coordinate(value) if isinstance(value, float) else escape(value)
        parts.append(f' {name.rstrip("_").replace("_", "-")}="{shown}"')
    if not children:
        return Markup("".join(parts) + "/>")
    return Markup("".join(parts) + ">" + "".join(escape(child) for child in children) + f"</{tag}>")


def _coordinate(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def label(text: str, x: float, y: float, *, anchor: str = "start", class_: str = "tick") -> Markup:
    """A text at a point."""
    return element("text", text, x=float(x), y=float(y), text_anchor=anchor, class_=class_)


def path(points: Sequence[tuple[float, float]], *, class_: str) -> Markup:
    """A line through points."""
    commands = [
        f"{'M' if index == 0 else 'L'}{_coordinate(x)} {_coordinate(y)}"
        for index, (x, y) in enumerate(points)
    ]
    return element("path", d="".join(commands), class_=class_)


@dataclass(frozen=True)
class Scale:
    """Maps values in [low, high] to pixels in [start, end]; values outside stick to the nearer
    end."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = self.low, self.high, min(max(value, self.low), self.high)
        if self.logarithmic:
            low, high, at = math.log10(low), math.log10(high), math.log10(at)
        # Halved, because the difference of two finite numbers may not be finite.
        span = high / 2 - low / 2
        if not span > 0:  # halves of the smallest numbers are equal too
            return (self.start + self.end) / 2
        share = (at / 2 - low / 2) / span
        return self.start + share * (self.end - self.start)

    def ticks(self, count: int) -> list[float]:
        """About `count` round values within the range."""
        if self.logarithmic:
            first, last = (
                math.ceil(math.log10(self.low) - 1e-9),
                math.floor(math.log10(self.high) + 1e-9),
            )
            every = max(1, math.ceil((last - first + 1) / max(count, 1)))
            return [10.0**power for power in range(first, last + 1, every)]
        span = self.high / 2 - self.low / 2
        if not span > _LEAST_SPAN or not math.isfinite(span):
            return [self.low]
        rough = span / max(count, 1) * 2
        unit = 10.0 ** math.floor(math.log10(rough))
        step = next((unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough), rough)
        first = math.ceil(self.low / step - 1e-9)
        found = [step * (first + index) for index in range(count * 3 + 2)]
        return [value for value in found if value <= self.high + step * 1e-9]


def thin(values: Sequence[float], buckets: int) -> list[tuple[int, float]]:
    """At most 2 * buckets of (index, value): the extremes of each bucket, so that no spike is
    lost."""
    if len(values) <= 2 * buckets:
        return list(enumerate(values))
    out: list[tuple[int, float]] = []
    for bucket in range(buckets):
        first = bucket * len(values) // buckets
        last = (bucket + 1) * len(values) // buckets
        indices = range(first, last)
        low = min(indices, key=values.__getitem__)
        high = max(indices, key=values.__getitem__)
        out += [(index, values[index]) for index in sorted({low, high})]
    return out
