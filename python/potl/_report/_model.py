# SPDX-License-Identifier: Apache-2.0
"""The report document as what the pages show: rows of text and numbers. Decides nothing; fields
that a report lacks are left out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .._base._printable import as_float, counted, duration, number, percent, printable, steps

VERDICT_WORDS = {"accepted": "Accepted", "rejected": "Rejected", "inconclusive": "Inconclusive"}
VERDICT_MEANINGS = {
    "accepted": "Everything that was looked at is as it should be, and enough was looked at.",
    "rejected": "There is evidence that this run was not trained as agreed.",
    "inconclusive": "The run could not be judged. This is neither an acceptance nor evidence of "
    "a cheat.",
}
VERDICT_SIGNS = {"accepted": "\u2713", "rejected": "\u2717", "inconclusive": "?"}

RESULT_WORDS = {
    "reject": "rejects",
    "inconclusive": "cannot be judged",
    "pass": "passes",
    "note": "note",
}
RESULT_SIGNS = {"reject": "\u2717", "inconclusive": "?", "pass": "\u2713", "note": "i"}
_RESULT_ORDER = ("reject", "inconclusive", "pass", "note")

_WHY = {
    "random": "drawn at random",
    "top-q": "among those furthest from the state before",
    "reach": "further from the state before than is usual",
    "log": "its records steer the steps after it most",
    "final": "the last segment",
    "first": "the first segment",
    "superseded": "replaced by a resume",
    "earlier challenge": "asked for in an earlier verification",
}

_FAILED = {
    "withheld": "withheld: the prover did not open it",
    "tampered": "what is stored does not hash to its committed record",
    "verifier_error": "the verifier could not replay it",
    "unrepeatable": "the verifier's machine does not repeat it",
    "unknown_form": "the recorded state has not the agreed form",
    "unlawful": "the recorded state does not follow from the agreed recipe",
    "prover_error": "the recorded state cannot be run",
}

# The verifier's own trouble says nothing about the run.
_UNJUDGED = ("verifier_error", "unrepeatable", "skipped")


def rows_of(document: Mapping[str, object], name: str) -> list[Mapping[str, object]]:
    """The objects in a list field."""
    value = document.get(name)
    return (
        [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else []
    )


def section_of(document: Mapping[str, object], name: str) -> Mapping[str, object]:
    """An object field; empty when it is not there."""
    value = document.get(name)
    return value if isinstance(value, Mapping) else {}


def rule_meanings() -> dict[str, str]:
    """Rule id -> what it demands."""
    from .. import _core

    return dict(_core.rules())


@dataclass(frozen=True)
class FindingRow:
    """One finding, ready to be shown."""

    check: str
    rule: str
    meaning: str
    result: str
    word: str
    sign: str
    reason: str
    where: str
    statistic: str
    threshold: str
    error_probability: str
    trouble: str
    """The verifier's own, which other findings may share."""
    details: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class ReplayRow:
    """One replayed segment. `ratio` is distance / tolerance, None when not measured."""

    start: int
    end: int
    why: str
    status: str
    ratio: float | None
    equal: bool
    good: bool
    judged: bool
    """Whether it says something about the run."""

    @property
    def where(self) -> str:
        """ "steps 21-40": the steps that were executed again."""
        return steps(self.start + 1, self.end)

    @property
    def why_text(self) -> str:
        """Why this segment."""
        return ", ".join(_WHY.get(part.strip(), printable(part)) for part in self.why.split("+"))

    @property
    def result_text(self) -> str:
        """What came out, in words."""
        if self.status != "ok":
            return _FAILED.get(self.status, printable(self.status))
        if self.equal:
            return "bit for bit equal" + ("" if self.good else ", but see the findings")
        if self.ratio is None:
            return "only the losses were compared" if self.good else "see the findings"
        if not math.isfinite(self.ratio):
            return "not finite"
        if self.ratio > 1:
            return f"{number(self.ratio)} times the tolerance"
        return f"{percent(self.ratio)} of the tolerance"

    @property
    def meter(self) -> int | None:
        """How much of the tolerance was used up, as a whole percentage; None when there is nothing
        to draw."""
        if self.equal or self.status != "ok" or self.ratio is None or not math.isfinite(self.ratio):
            return None
        return round(100 * min(max(self.ratio, 0.0), 1.0))


@dataclass(frozen=True)
class ExtraRow:
    """One test of an extra task; of a note only the text is shown."""

    name: str
    measured: str
    needed: str
    text: str
    result: str
    word: str
    sign: str
    meter: int | None


@dataclass(frozen=True)
class StrengthRow:
    """How likely one of so many false transitions was seen, wherever they are."""

    fraction: float
    bad: int | None
    probability: float

    @property
    def sentence(self) -> str:
        """What the row says."""
        what = f"{percent(self.fraction)} of the segments"
        if self.bad is not None:
            what += f" ({number(self.bad)} of them)"
        seen = percent(self.probability)
        return f"False transitions in {what} would be seen with probability {seen}."


@dataclass(frozen=True)
class CostRow:
    """Time of one check."""

    name: str
    seconds: float
    fraction: float | None

    @property
    def seconds_text(self) -> str:
        return duration(self.seconds)

    @property
    def fraction_text(self) -> str:
        return percent(self.fraction)


def findings_of(document: Mapping[str, object]) -> list[FindingRow]:
    """All findings, those that decided first; the order within a kind is the report's."""
    meanings = rule_meanings()
    found = [_finding(entry, meanings) for entry in rows_of(document, "findings")]
    return sorted(found, key=lambda row: _RESULT_ORDER.index(row.result))


def grouped(rows: Sequence[FindingRow], *, least: int = 4) -> list[list[FindingRow]]:
    """Findings that say the same of several places together, when there are at least `least`:
    what passes one rule of a check, and what one trouble kept from being judged, with the notes
    of what was not replayed. What rejects stays apart."""

    def key_of(row: FindingRow) -> tuple[object, ...]:
        unjudged = dict(row.details).get("status", "ok") != "ok"
        said = {"pass": row.rule, "inconclusive": row.trouble, "note": unjudged}.get(row.result)
        return (row.check, row.rule, row.result, row.trouble) if said else (id(row),)

    groups: dict[tuple[object, ...], list[FindingRow]] = {}
    for row in rows:
        groups.setdefault(key_of(row), []).append(row)
    out = []
    for row in rows:
        alike = groups[key_of(row)]
        if len(alike) < least:
            out.append([row])
        elif alike[0] is row:
            out.append(alike)
    return out


def _finding(entry: Mapping[str, object], meanings: Mapping[str, str]) -> FindingRow:
    result = str(entry.get("result"))
    if result not in RESULT_WORDS:
        result = "inconclusive"
    rule = printable(entry.get("rule") or "", limit=200)
    details = entry.get("details")
    known = dict(details) if isinstance(details, Mapping) else {}
    trouble = known.pop("trouble", "")
    return FindingRow(
        check=printable(entry.get("check") or "", limit=200),
        rule=rule,
        meaning=meanings.get(rule, ""),
        result=result,
        word=RESULT_WORDS[result],
        sign=RESULT_SIGNS[result],
        reason=printable(entry.get("reason") or ""),
        where=steps(entry.get("first_step"), entry.get("last_step")),
        statistic=number(entry.get("statistic")),
        threshold=number(entry.get("threshold")),
        error_probability=number(entry.get("error_probability")),
        trouble=printable(trouble),
        details=tuple((printable(name, limit=200), printable(it)) for name, it in known.items()),
    )


def replays_of(document: Mapping[str, object]) -> list[ReplayRow]:
    """All replayed segments in the order of the run."""
    found = [
        (as_float(entry.get("first_step")), as_float(entry.get("last_step")), entry.get("result"))
        for entry in rows_of(document, "findings")
        if entry.get("check") == "replay"
    ]
    out = []
    for entry in rows_of(document, "replays"):
        start, end = as_float(entry.get("start")), as_float(entry.get("end"))
        if start is None or end is None or not (0 <= start <= end < 2**53):
            continue
        status = str(entry.get("status", "ok"))
        ratio = as_float(entry.get("ratio"))
        fits = bool(entry.get("fits"))
        said = {
            what for first, last, what in found if first and last and start < first <= last <= end
        }
        out.append(
            ReplayRow(
                start=int(start),
                end=int(end),
                why=str(entry.get("why", "")),
                status=status,
                ratio=ratio,
                equal=bool(entry.get("equal")),
                good=fits,
                judged=status not in _UNJUDGED
                and (fits or "reject" in said or "inconclusive" not in said),
            )
        )
    return sorted(out, key=lambda row: (row.start, row.end))


def outcome_of(replays: Sequence[ReplayRow]) -> str:
    """How many of them fit."""
    unjudged = sum(not row.judged for row in replays)
    bad = sum(not row.good for row in replays) - unjudged
    if not bad and not unjudged:
        return "it fits" if len(replays) == 1 else f"all {number(len(replays))} fit"
    if len(replays) == 1:
        return "it does not fit" if bad else "it could not be judged"
    if unjudged == len(replays):
        return "none could be judged"
    parts = [f"{number(len(replays) - bad - unjudged)} of {number(len(replays))} fit"]
    parts += [f"{number(bad)} {'does' if bad == 1 else 'do'} not"] if bad else []
    parts += [f"{number(unjudged)} could not be judged"] if unjudged else []
    return ", ".join(parts)


def extra_of(document: Mapping[str, object]) -> list[ExtraRow]:
    """What the extra task found, in the report's order."""
    return [
        _extra_row(entry)
        for entry in rows_of(document, "findings")
        if entry.get("check") == "extra_task"
    ]


def _extra_row(entry: Mapping[str, object]) -> ExtraRow:
    row = _finding(entry, {})
    details = dict(row.details)
    name, measured, needed, meter = "", "-", "-", None
    if row.rule == "extra_task.hits":
        name, needed = "Extra samples answered right", row.threshold
        measured = f"{row.statistic} of {details.get('samples', '-')}"
        hits, samples = as_float(entry.get("statistic")), as_float(details.get("samples"))
        if hits is not None and samples:
            meter = round(100 * min(max(hits / samples, 0.0), 1.0))
    elif row.rule == "extra_task.control":
        name = "Better than on controls that were never uploaded"
        measured, needed = f"p = {row.statistic}", f"at most {row.threshold}"
    elif row.rule == "extra_task.known":
        name = "Knows more than a few of them"
        measured, needed = f"{row.statistic} of {details.get('samples', '-')}", row.threshold
        if (threshold := as_float(entry.get("threshold"))) is not None and threshold <= 1:
            name, measured = "Errors are clearly smaller", f"in {row.statistic} of pairs"
    return ExtraRow(name, measured, needed, row.reason, row.result, row.word, row.sign, meter)


def strength_of(document: Mapping[str, object]) -> list[StrengthRow]:
    """The strength table, fewest false transitions first."""
    out = []
    for entry in rows_of(section_of(document, "strength"), "table"):
        fraction, probability = (
            as_float(entry.get("cheat_fraction")),
            as_float(entry.get("probability")),
        )
        bad = as_float(entry.get("bad_segments"))
        if fraction is not None and probability is not None:
            spoiled = None if bad is None or not math.isfinite(bad) else int(bad)
            out.append(StrengthRow(fraction, spoiled, probability))
    return sorted(out, key=lambda row: row.fraction)


def usual_strength(rows: Sequence[StrengthRow]) -> StrengthRow | None:
    """The row to quote: the one for about 5 % of the segments."""
    return min(rows, key=lambda row: abs(row.fraction - 0.05), default=None)


def reach_of(document: Mapping[str, object]) -> str:
    """How far what was not seen can have carried the weights; empty without random replays."""
    strength = section_of(document, "strength")
    if not rows_of(strength, "table"):
        return ""
    reach = section_of(strength, "reach")
    false, displacement = as_float(reach.get("false_segments")), as_float(reach.get("displacement"))
    sure = as_float(reach.get("probability"))
    if false is None or not math.isfinite(false) or displacement is None or sure is None:
        return "Nothing bounds how far one false transition carries the weights."
    if false == 0:
        return "Every segment was replayed, so no false transition can have been missed."
    return (
        f"With probability {percent(sure)} at most {counted(int(false), 'transition')} "
        f"{'is false; by itself it moves' if false == 1 else 'are false; by themselves they move'} "
        f"the weights at most {displacement:.3g} times as far as the training did."
    )


def costs_of(document: Mapping[str, object]) -> list[CostRow]:
    """Time per check, the largest first."""
    out = []
    for entry in rows_of(section_of(document, "cost"), "checks"):
        seconds = as_float(entry.get("seconds"))
        if seconds is not None and math.isfinite(seconds):
            out.append(
                CostRow(printable(entry.get("check", "")), seconds, as_float(entry.get("fraction")))
            )
    return sorted(out, key=lambda row: -row.seconds)
