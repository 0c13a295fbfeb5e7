# SPDX-License-Identifier: Apache-2.0
"""The report document: docs/format/report.schema.json as types, and reading one from a file.

The types say what `conclude` writes. A file may hold anything; `parse` looks at the members that
`Report` reads, and the pages look at each value that they show (`_model`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Literal, TypedDict, cast

from .._base._errors import MalformedError

# Longer than any report.
MOST_BYTES = 256 << 20

VERDICTS = ("accepted", "rejected", "inconclusive")
Verdict = Literal["accepted", "rejected", "inconclusive"]


class Seen(TypedDict):
    """How likely false transitions in a share of the segments are seen."""

    cheat_fraction: float
    probability: float


class Stronger(TypedDict):
    """A larger draw: what it takes, and what it sees."""

    samples: int
    more_segments: int
    more_seconds: float
    seconds: float
    table: list[Seen]


class Next(TypedDict):
    """What the reader can do now."""

    steps: list[str]
    seconds_per_segment: float | None
    stronger: list[Stronger]


class AskedEntry(TypedDict):
    """A check with its options, under their own names."""

    check: str
    options: dict[str, object]


class JobEntry(TypedDict):
    """What was agreed."""

    id: str
    own: bool
    trainer: str | None
    arithmetic: str
    steps: int
    epochs: int
    samples: int


class CommitmentEntry(TypedDict):
    """What was signed before the challenge was drawn."""

    root: str | None
    size: int | None


class _ModelAlways(TypedDict):
    digest: str | None
    delivered: bool


class ModelEntry(_ModelAlways, total=False):
    """The only model that the report vouches for. Older ones do not name the file."""

    sha256: str | None


class FindingEntry(TypedDict):
    """One piece of evidence."""

    check: str
    rule: str
    result: Literal["pass", "reject", "inconclusive", "note"]
    reason: str
    first_step: int | None
    last_step: int | None
    statistic: float | None
    threshold: float | None
    error_probability: float | None
    details: dict[str, str]


class StrengthEntry(Seen):
    """The same with the number of segments that the share amounts to."""

    bad_segments: int


class Reach(TypedDict):
    """How far what was not seen can have carried the weights."""

    factor: float
    false_segments: int
    probability: float
    displacement: float | None


class Strength(TypedDict):
    """How likely a cheat was to be seen."""

    segments: int
    drawn_from: int
    sampled: int
    table: list[StrengthEntry]
    reach: Reach | None


class ReplayEntry(TypedDict):
    """One segment that was trained again."""

    start: int
    end: int
    why: str
    status: str
    equal: bool
    fits: bool
    ratio: float | None


class Timeline(TypedDict):
    """Losses of the run, at most a thousand."""

    step: list[int]
    loss: list[float | None]


class CheckCost(TypedDict):
    """Time of one check."""

    check: str
    seconds: float | None
    fraction: float | None


class Cost(TypedDict):
    """What the verification took, and the training."""

    seconds: float | None
    training_seconds: float | None
    fraction: float | None
    checks: list[CheckCost]


class Limit(TypedDict):
    """What a check cannot see."""

    check: str
    text: str


class _Always(TypedDict):
    format: str
    software: str
    verdict: Verdict
    exit_code: int
    sentence: str
    reasons: list[str]
    nonce: str
    reproduce: str
    checks: list[AskedEntry]
    findings: list[FindingEntry]
    strength: Strength
    replays: list[ReplayEntry]
    cost: Cost
    limits: list[Limit]
    model: ModelEntry


class ReportDocument(_Always, total=False):
    """A report. Older ones lack the first three; the others are there where a run could be read."""

    answer: str
    looked_at: list[str]
    next: Next
    job: JobEntry
    commitment: CommitmentEntry
    timeline: Timeline


_REMEDY = "pass what potl verify --json prints, or report.write('report.json')"


def parse(text: str | bytes) -> ReportDocument:
    """Reads a report's JSON.

    Raises:
        MalformedError: It is not a report: a member that every report has is missing or of another
            type.
    """
    try:
        # JSON is UTF-8 and has no NaN, whatever Python reads besides.
        text = text if isinstance(text, str) else text.decode()
        document = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise MalformedError(f"this is not a report: {error}", _REMEDY) from error
    problem = _problem(document)
    if problem:
        raise MalformedError(f"this is not a report: {problem}", _REMEDY)
    return cast(ReportDocument, document)


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is no number of JSON")


def _problem(document: object) -> str:
    if not isinstance(document, Mapping):
        return "it is not a JSON object"
    if document.get("verdict") not in VERDICTS:
        return "it has no verdict"
    if not isinstance(document.get("sentence"), str):
        return "it has no sentence"
    for name in ("strength", "cost"):
        if not isinstance(document.get(name), Mapping):
            return f"it has no {name}"
    findings = document.get("findings")
    if not isinstance(findings, list):
        return "it has no findings"
    for number, one in enumerate(findings):
        if not isinstance(one, Mapping) or not all(
            isinstance(one.get(name), str) for name in ("check", "result", "reason")
        ):
            return f"finding {number} does not say what was found"
        if not isinstance(one.get("details") or {}, Mapping):
            return f"finding {number} has details that are not names and values"
    is_rejected = any(one["result"] == "reject" for one in findings)
    if is_rejected != (document["verdict"] == "rejected"):
        return "its verdict is not that of its findings"
    return ""
