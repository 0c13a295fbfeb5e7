# SPDX-License-Identifier: Apache-2.0
"""The report as one self-contained page: no scripts, nothing loaded from elsewhere, everything
escaped."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence

import jinja2
from markupsafe import Markup

from .._base._printable import as_float, duration, number, percent, printable
from . import _answer as first, _charts as charts, _model as model

# More rows than this are folded away; the worst are shown.
_SHOWN_REPLAYS = 24


@functools.cache
def environment() -> jinja2.Environment:
    """Of all pages: everything is escaped, and what is missing is an error."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("potl._report", "_templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters.update(
        number=number,
        percent=lambda share: _unbroken(percent(share)),
        duration=duration,
        printable=printable,
    )
    return environment


def render_report(document: Mapping[str, object]) -> str:
    """The page of one report."""
    page = environment().get_template("report.html.j2")
    return page.render(view=view_of(document, prefix="r"))


def render_demo(
    rows: Sequence[Mapping[str, object]], documents: Sequence[Mapping[str, object] | None]
) -> str:
    """One table over several verifications, and each report below it."""
    entries = []
    for index, (row, document) in enumerate(zip(rows, documents, strict=True)):
        view = None if document is None else view_of(document, prefix=f"r{index}")
        entries.append((f"report-{index}", _demo_row(row), view))
    unexpected = sum(not row["expected"] for _, row, _ in entries)
    page = environment().get_template("demo.html.j2")
    return page.render(entries=entries, unexpected=unexpected)


def view_of(document: Mapping[str, object], *, prefix: str) -> dict[str, object]:
    """What the templates show of one report; element ids start with `prefix`."""
    verdict = str(document["verdict"])
    if verdict not in model.VERDICT_WORDS:
        verdict = "inconclusive"
    findings = model.findings_of(document)
    replays = model.replays_of(document)
    strength = model.strength_of(document) if first.shown_strength(document) else []
    quoted = model.usual_strength(strength)
    reasons = first.texts_of(document.get("reasons"))
    segments, sampled = (
        model.section_of(document, "strength").get(name) for name in ("segments", "sampled")
    )
    shown = sorted(replays, key=_badness)[:_SHOWN_REPLAYS]
    return {
        "prefix": prefix,
        "guarded": first.is_guarded(document),
        "verdict": verdict,
        "word": model.VERDICT_WORDS[verdict],
        "sign": model.VERDICT_SIGNS[verdict],
        "answer": _unbroken(first.answer_of(document)),
        "looked_at": first.looked_at_of(document),
        "steps": [_with_flags(step) for step in first.next_steps_of(document)],
        "stronger": first.stronger_of(document),
        "answer_chart": charts.answer(
            first.shown_strength(document),
            segments=segments,
            name=f"{prefix}-answer",
        ),
        "no_strength": first.why_no_strength(document),
        "sentence": _unbroken(printable(document.get("sentence") or "")),
        "job": _short(model.section_of(document, "job").get("id")),
        "facts": _facts(document),
        "reasons": [one for one in reasons if one not in {row.reason for row in findings}],
        "findings": model.grouped(findings),
        "finding_count": len(findings),
        "timeline": _at_every_width(charts.timeline, document, f"{prefix}-timeline"),
        "replays": sorted(shown, key=lambda row: row.start),
        "replay_count": len(replays),
        "glance": _glance(document, replays),
        "extra": model.extra_of(document),
        "strength": strength,
        "strength_sentence": quoted.sentence if quoted is not None else "",
        "reach_sentence": model.reach_of(document),
        "strength_chart": _at_every_width(charts.strength, strength, f"{prefix}-strength"),
        "segments": segments,
        "sampled": sampled,
        "drawn_from": model.section_of(document, "strength").get("drawn_from"),
        "cost": model.section_of(document, "cost"),
        "costs": model.costs_of(document),
        "limits": _limits(document),
        "committed": model.section_of(document, "commitment").get("root") is not None,
        "nonce": printable(document.get("nonce") or ""),
        "reproduce": printable(document.get("reproduce") or ""),
        "software": printable(document.get("software") or ""),
    }


def _at_every_width(draw: Callable[..., Markup], what: object, name: str) -> Markup:
    drawn = [
        draw(what, width=width, name=f"{name}-{size}") for size, width in charts.WIDTHS.items()
    ]
    return Markup("").join(drawn)


def _badness(row: model.ReplayRow) -> tuple[bool, float]:
    return row.good, -(row.ratio if row.ratio is not None else 0.0)


def _unbroken(text: str) -> str:
    """No line ends between a number and its sign."""
    return text.replace(" %", "\u00a0%")


def _with_flags(text: str) -> Markup:
    """Options of the command line as code, so that no line ends within one."""
    parts = re.split(r"(--[a-z-]+(?: [\w.]+)?)", text)
    return Markup("").join(
        Markup('<code class="flag">{}</code>').format(part) if index % 2 else part
        for index, part in enumerate(parts)
    )


def _short(digest: object) -> str:
    return printable(digest or "", limit=200)[:12]


def _glance(
    document: Mapping[str, object], replays: Sequence[model.ReplayRow]
) -> list[tuple[str, str]]:
    """What came out of the replays, and what all of it cost."""
    out = []
    if replays:
        out.append(("Replays", model.outcome_of(replays)))
    cost = model.section_of(document, "cost")
    share = cost.get("fraction")
    spent = duration(cost.get("seconds"))
    out.append(("Cost", spent if share is None else f"{spent}, {percent(share)} of training"))
    return out


def _limits(document: Mapping[str, object]) -> list[tuple[str, list[str]]]:
    groups: dict[str, list[str]] = {}
    for entry in model.rows_of(document, "limits"):
        groups.setdefault(printable(entry.get("check", "")), []).append(
            printable(entry.get("text", ""))
        )
    return list(groups.items())


def _facts(document: Mapping[str, object]) -> list[tuple[str, str, str]]:
    """(name, value, explanation) of what the verdict speaks about."""
    job = model.section_of(document, "job")
    commitment = model.section_of(document, "commitment")
    delivered = model.section_of(document, "model")
    facts = [
        (
            "Job",
            printable(job.get("id") or "none"),
            "The verifier's own copy of what was agreed."
            if job.get("own")
            else "Taken from the run directory: what was agreed is only the prover's word.",
        ),
        (
            "Trainer",
            printable(job.get("trainer") or "not pinned"),
            "The job pins this public key."
            if job.get("trainer")
            else "The job names no key, so who trained is not proven.",
        ),
        (
            "Commitment",
            printable(commitment.get("root") or "none"),
            f"Root over {printable(commitment.get('size', 'all'))} records, signed before the "
            "challenge was drawn."
            if commitment.get("root")
            else "Nothing was committed, so the record could still be changed.",
        ),
        (
            "Model",
            printable(delivered.get("digest") or "none"),
            "The delivered file was compared with this last committed state."
            if delivered.get("delivered")
            else "No file was given: the report speaks only about the model with this digest.",
        ),
    ]
    if first.is_guarded(document):  # the reader's own side has the weights: nothing is delivered
        del facts[1:]
    size = [
        f"{number(job[name])} {word}"
        for name, word in (("steps", "steps"), ("epochs", "epochs"), ("samples", "samples"))
        if job.get(name) is not None
    ]
    if size:
        facts.insert(1, ("Training", ", ".join(size), "As agreed in the job."))
    return facts


def _demo_row(row: Mapping[str, object]) -> dict[str, object]:
    verdict = str(row.get("verdict", ""))
    return {
        "who": printable(row.get("who", "")),
        "how": printable(row.get("how", "")),
        "verdict": verdict if verdict in (*model.VERDICT_WORDS, "refused") else "inconclusive",
        "word": {**model.VERDICT_WORDS, "refused": "Refused"}.get(verdict, "Inconclusive"),
        "sign": model.VERDICT_SIGNS.get(verdict, "\u2717"),
        "decided_by": printable(row.get("decided_by", "")),
        "reason": printable(row.get("reason", "")),
        "cost": percent(as_float(row.get("cost"))),
        "expected_rule": printable(row.get("expected_rule", "")),
        "expected": bool(row.get("as_expected")),
    }
