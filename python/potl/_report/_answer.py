# SPDX-License-Identifier: Apache-2.0
"""What a report says first: may I pay, what was looked at, and what would make it stronger."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from .._base._printable import as_float, duration, number, percent, printable
from ._model import VERDICT_MEANINGS, StrengthRow, rows_of, section_of, strength_of

# The shares of false transitions that the first page speaks about.
_SHOWN = (0.01, 0.05, 0.2)


@dataclass(frozen=True)
class StrongerRow:
    """A larger draw: what it takes, and what it sees."""

    samples: int
    more_seconds: float
    seen: tuple[tuple[float, float], ...]

    @property
    def sentence(self) -> str:
        """The row in words."""
        seen = ", ".join(f"{percent(p)} for {percent(fraction)}" for fraction, p in self.seen)
        return (
            f"{number(self.samples)} random segments, another {duration(self.more_seconds)}: {seen}"
        )


def answer_of(document: Mapping[str, object]) -> str:
    """May the trainer be paid? Older reports say only what their verdict means."""
    answer = document.get("answer")
    if isinstance(answer, str) and answer:
        return printable(answer)
    return VERDICT_MEANINGS.get(str(document.get("verdict")), VERDICT_MEANINGS["inconclusive"])


def looked_at_of(document: Mapping[str, object]) -> list[str]:
    """What the verdict rests on."""
    return texts_of(document.get("looked_at"))


def next_steps_of(document: Mapping[str, object]) -> list[str]:
    """What the reader can do now."""
    return texts_of(section_of(document, "next").get("steps"))


def stronger_of(document: Mapping[str, object]) -> list[StrongerRow]:
    """Larger draws, the smallest first."""
    out = []
    for entry in rows_of(section_of(document, "next"), "stronger"):
        samples, more = as_float(entry.get("samples")), as_float(entry.get("more_seconds"))
        if samples is None or more is None or not math.isfinite(samples):
            continue
        seen = []
        for one in rows_of(entry, "table"):
            fraction, probability = (
                as_float(one.get("cheat_fraction")),
                as_float(one.get("probability")),
            )
            if fraction is not None and probability is not None:
                seen.append((fraction, probability))
        out.append(StrongerRow(int(samples), more, tuple(seen)))
    return out


def shown_strength(document: Mapping[str, object]) -> list[StrengthRow]:
    """The rows for the first page; none where nothing was judged at random."""
    if not as_float(section_of(document, "strength").get("sampled")):
        return []
    return [
        row
        for row in strength_of(document)
        if any(math.isclose(row.fraction, one) for one in _SHOWN)
    ]


def is_guarded(document: Mapping[str, object]) -> bool:
    """Whether it is of a spot-check, where the reader's own side made every update."""
    return any(one.get("check") == "spot_check" for one in rows_of(document, "findings"))


def why_no_strength(document: Mapping[str, object]) -> str:
    """What to say where there are no such rows."""
    if is_guarded(document):
        return _certificate(document)
    strength = section_of(document, "strength")
    if as_float(strength.get("segments")) and as_float(strength.get("drawn_from")) == 0:
        return "The run is so short that every segment is trained again: none is left to draw."
    return "No segment that was drawn at random was judged, so there is no probability."


def _certificate(document: Mapping[str, object]) -> str:
    for one in rows_of(document, "findings"):
        details = section_of(one, "details")
        sure, far = (as_float(details.get(name)) for name in ("probability", "displacement"))
        if one.get("result") == "pass" and sure is not None and far is not None:
            return (
                f"With probability {percent(sure)}, false gradients were caught, or they have "
                f"moved the weights by at most {number(far, digits=6)} (Euclidean distance)."
            )
    return "The training did not reach its end, so nothing is certified."


def texts_of(value: object) -> list[str]:
    """The sentences of a list field."""
    return (
        [printable(one) for one in value if isinstance(one, str)] if isinstance(value, list) else []
    )
