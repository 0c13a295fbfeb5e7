# SPDX-License-Identifier: Apache-2.0
"""What is kept of the extra task's experiments: docs/experiments/extra_task.md, which leads
to pages for each kind of data, the figures behind them in extra_task.json, and plots.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import measuring

DOCS = measuring.ROOT / "docs" / "experiments"
INDEX, FIGURES = DOCS / "extra_task.md", DOCS / "extra_task.json"
MARK = re.compile(r"^<!-- section: (\w+) -->$", re.MULTILINE)
TITLE = re.compile(r"^## (.+)$", re.MULTILINE)

# Pages, and their sections in order. A recipe that misses a goal follows the one that meets it.
PAGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "images": (
        "Images",
        (
            "digits", "digits_unmoved", "cifar", "cifar_narrow", "cifar_vgg", "cifar_vgg_short",
            "cifar_resnet34", "cifar_vgg11",
        ),
    ),
    "texts": (
        "Texts",
        ("agnews", "agnews_long", "agnews_lstm", "imdb", "imdb_lstm", "imdb_lstm_dropout"),
    ),
    "errors": (
        "Without labels, judged by errors",
        ("autoencoder", "autoencoder_constant", "language", "recipes"),
    ),
    "verdicts": ("False verdicts", ("false_acceptance", "false_rejection", "lag")),
    "sweeps": ("Sweeps, the naive task, gradients", ("s", "eta", "naive", "gradients")),
}  # fmt: skip
PLACES = {name: place for place, name in enumerate(
    name for _, names in PAGES.values() for name in names)}  # fmt: skip

HEAD = """# The extra task in experiments

After these pages you know when extra samples are learned on real tasks, and what they cost. The
[summary](README.md#the-extra-task) has the figures of all experiments, the page on the
[extra task](../reference/extra_task.md) explains the words. Each section is written by
`scripts/experiment extra_task_experiments NAME --write`.

- **CQ** is the accuracy on the original task when a rule first lets a model pass, over the best
  accuracy of that training. The last column of each table counts models that passed below 96 %.
- A model is judged after every epoch; these looks do not count as submissions. **Not rejected** are
  accepted and inconclusive models. The **published rule** asks for enough hits alone.
- Without classes, **quality** is the best loss on the test set over the loss.
- **Performance loss** is accuracy without minus accuracy with extra samples, over means of the last
  three epochs or the whole test set at the end, in pairs of one seed, with its 95 % interval
  (Student's t).
- **Asked for** are a CQ of at least 96 %, and an interval that contains 0 or ends below 0.25. If a
  recipe missed that, another one was looked for: the one that meets it has the plain name, and the
  one that missed it stands beside it.
- Plots are of the first training.
"""


@dataclass(frozen=True)
class Section:
    """A part of a page, its figures for build/bench, and its plots by file name."""

    name: str
    text: str
    results: list[dict[str, Any]] = field(default_factory=list)
    plots: dict[str, str] = field(default_factory=dict)


def keep(section: Section) -> None:
    """Puts a section in its place on its page; others that there are stay as they are."""
    page = next(page for page, (_, names) in PAGES.items() if section.name in names)
    title, names = PAGES[page]
    texts = {name: text for name, text in sections(path_of(page)).items() if name in names}
    texts[section.name] = section.text
    parts = [f"# The extra task in experiments: {title}\n\n[What the words say]({INDEX.name}).\n"]
    for name in sorted(texts, key=names.index):
        parts.append(f"<!-- section: {name} -->\n{texts[name].strip()}\n")
    path_of(page).write_text("\n".join(parts))
    INDEX.write_text(index())
    figures = {name: rows for name, rows in kept().items() if rows and name in PLACES}
    if section.results:
        figures[section.name] = section.results
    rows = sorted(figures.items(), key=lambda one: PLACES[one[0]])
    FIGURES.write_text(json.dumps(dict(rows), indent=1) + "\n")
    for name, picture in section.plots.items():
        (DOCS / name).write_text(picture)


def path_of(page: str) -> Path:
    return DOCS / f"extra_task_{page}.md"


def sections(path: Path) -> dict[str, str]:
    """A page's sections by name."""
    if not path.is_file():
        return {}
    parts = MARK.split(path.read_text())
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def index() -> str:
    """The page that leads to the others."""
    lines = [HEAD]
    for page, (title, _) in PAGES.items():
        path = path_of(page)
        if found := sections(path):
            lines.append(f"## [{title}]({path.name})")
            titles = (TITLE.findall(text)[0] for text in found.values())
            lines += [f"- `{name}`: {title}" for name, title in zip(found, titles, strict=True)]
            lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def kept() -> dict[str, list[dict[str, Any]]]:
    """Figures of all sections."""
    return json.loads(FIGURES.read_text()) if FIGURES.is_file() else {}
