# SPDX-License-Identifier: Apache-2.0
"""What is kept of the extra task's experiments: docs/benchmarks/extra_task.md in sections, the
figures behind it in extra_task.json, and plots.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

import measuring

DOCS = measuring.ROOT / "docs" / "benchmarks"
PAGE, FIGURES = DOCS / "extra_task.md", DOCS / "extra_task.json"
MARK = re.compile(r"^<!-- section: (\w+) -->$", re.MULTILINE)

HEAD = """# The extra task in experiments

Each section is written by `python benchmarks/extra_task_experiments.py NAME --write`
(docs/extra_task.md explains the words). CQ is the accuracy on the original task when a rule first
lets a model pass, over the best accuracy of that training; the last column counts models that
passed below 96 % of it. A model is looked at after every epoch, which counts as no submission. Not
rejected are accepted and inconclusive models. The published rule asks for enough hits alone. Where
there are no classes, quality is the best loss on the test set over the loss. Performance loss is
accuracy without minus accuracy with extra samples, means of the last three epochs or the whole test
set at the end, in pairs of one seed, with its 95 % interval (Student's t). Asked for are a CQ of
96 % at least, and an interval that contains 0 or ends below 0.25. Plots are of the first training.
"""


@dataclass(frozen=True)
class Section:
    """A part of the page, its figures for build/bench, and its plots by file name."""

    name: str
    text: str
    results: list[dict[str, Any]] = field(default_factory=list)
    plots: dict[str, str] = field(default_factory=dict)


def keep(section: Section, order: list[str]) -> None:
    """Puts a section in its place on the page; others that there are stay as they are."""
    texts = {name: text for name, text in sections().items() if name in order}
    texts[section.name] = section.text
    places = {name: place for place, name in enumerate(order)}
    parts = [HEAD]
    for name in sorted(texts, key=places.__getitem__):
        parts.append(f"<!-- section: {name} -->\n{texts[name].strip()}\n")
    PAGE.write_text("\n".join(parts))
    figures = {name: rows for name, rows in kept().items() if name in order}
    figures[section.name] = section.results
    rows = sorted(figures.items(), key=lambda one: places[one[0]])
    FIGURES.write_text(json.dumps(dict(rows), indent=1) + "\n")
    for name, picture in section.plots.items():
        (DOCS / name).write_text(picture)


def sections() -> dict[str, str]:
    """The page's sections by name."""
    if not PAGE.is_file():
        return {}
    parts = MARK.split(PAGE.read_text())
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def kept() -> dict[str, list[dict[str, Any]]]:
    """Figures of all sections."""
    return json.loads(FIGURES.read_text()) if FIGURES.is_file() else {}
