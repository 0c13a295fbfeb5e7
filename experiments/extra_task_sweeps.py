# SPDX-License-Identifier: Apache-2.0
"""What the fixed share s and the number of extra samples do: sweeps on the smallest image and text
task. The sweep over eta needs more data than these have, because there are at least 200 extra
samples: their training sets are enlarged by moved images, and by texts without some of their words.
"""

from __future__ import annotations

import dataclasses
import functools
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import extra_task_data as data
import extra_task_verdict as verdict
import torch
from extra_task_list import EXPERIMENTS, moved, words_dropped
from extra_task_pages import Section
from extra_task_plot import Line, plot
from extra_task_table import Good, final, first, quality
from extra_task_training import Experiment, Training, training
from torch.utils.data import TensorDataset

SHARES = (0.35, 0.45, 0.55, 0.65, 0.75, 0.85)
ETAS = (0.004, 0.008, 0.016, 0.024, 0.04)
SEEDS = {"digits_unmoved": 2, "agnews_long": 1}
TASKS = {"digits_unmoved": "digits", "agnews_long": "AG News"}
COLUMNS = (
    "| accepted first | CQ | not rejected first | CQ | extra samples hit | accuracy at the end | "
    "loss, points |"
)
USUAL = (verdict.accepted, verdict.not_rejected)


def row(
    name: str, runs: Sequence[Training], plain: float | None, rules: tuple[Good, Good]
) -> tuple[str, float]:
    """A line of the table, and CQ by the first of two rules (0 when it accepts nothing)."""
    accuracy = statistics.fmean(final(one) for one in runs)
    known = statistics.fmean(one.epochs[-1].hits for one in runs)
    loss = "" if plain is None else f"{100 * (plain - accuracy):+.2f}"
    cells, cqs = [], []
    for rule in rules:
        passes = [(one, at) for one in runs if (at := first(one, rule)) is not None]
        cqs.append(statistics.fmean(quality(*one) for one in passes) if passes else 0.0)
        epoch = statistics.fmean(at + 1 for _, at in passes) if passes else 0.0
        shown = f"{epoch:.1f} | {100 * cqs[-1]:.1f} %" if passes else "never | "
        if 0 < len(passes) < len(runs):
            shown += f" ({len(passes)} of {len(runs)})"
        cells.append(shown)
    both = " | ".join(cells)
    return f"| {name} | {both} | {100 * known:.0f} % | {100 * accuracy:.2f} % | {loss} |", cqs[0]


def plain_of(what: Experiment, seeds: int) -> float:
    """Accuracy at the end of trainings without extra samples."""
    return statistics.fmean(final(training(what, seed, False)) for seed in range(seeds))


@dataclass
class Sweep:
    """A table and a plot of CQ against an option, that grow while trainings end."""

    lines: list[str] = field(default_factory=list)
    curves: list[Line] = field(default_factory=list)

    def add(self, name: str, found: Iterable[tuple[str, Sequence[Training], float]]) -> None:
        """A task's trainings for each value of the option, with its line's title and the accuracy
        without extra samples.
        """
        values = []
        for title, runs, plain in found:
            line, cq = row(f"{TASKS[name]} | {title}", runs, plain, USUAL)
            print(line, flush=True)
            self.lines.append(line)
            values.append(cq)
        colour = "extra" if name == "agnews_long" else "original"
        self.curves.append(Line(f"{TASKS[name]}, CQ", colour, values))

    def section(self, name: str, about: Sequence[str], plot_: str, columns: str) -> Section:
        """The page's section."""
        rule = "|---" * (columns.count("|") + COLUMNS.count("|") - 1) + "|"
        text = [*about, "", f"{columns}{COLUMNS}", rule, *self.lines, ""]
        text.append(f"![CQ against {name}](extra_task_{name}.svg)")
        return Section(name, "\n".join(text), plots={f"extra_task_{name}.svg": plot_})

    def plot(self, heading: str, axis: str, at: Sequence[float]) -> str:
        return plot(heading, axis, at, self.curves, limits=[("96 %", 0.96)])


def over_shares() -> Section:
    """The sweep over s, one grade at a time, both layouts' own sizes of the random part."""
    sweep = Sweep()
    for name, seeds in SEEDS.items():
        what = EXPERIMENTS[name]
        plain = plain_of(what, seeds)

        def found(share: float, what: Experiment = what, seeds: int = seeds) -> list[Training]:
            options = {"fixed": share, "grades": [str(share)]}
            changed = dataclasses.replace(what, options=options)
            return [training(changed, seed, True) for seed in range(seeds)]

        sweep.add(name, ((str(share), found(share), plain) for share in SHARES))
    about = [
        "## Sweep over the fixed share s",
        "One grade, so that every sample has this share in common; two seeds on digits without "
        "augmentation, one on AG News with a constant learning rate; the loss is against the same "
        "seeds without extra samples. Of 8 x 8 pixels 0.45 and 0.55 leave the same region, and so "
        "do 0.65 and 0.75.",
    ]
    picture = sweep.plot("CQ against the fixed share s", "s", SHARES)
    return sweep.section("s", about, picture, "| data | s ")


@functools.cache
def many_digits() -> data.Split:
    return enlarged(data.digits(), 40, moved)


@functools.cache
def many_texts() -> data.Split:
    return enlarged(data.agnews(), 8, words_dropped)


def enlarged(
    split: data.Split, times: int, change: Callable[[torch.Tensor], torch.Tensor]
) -> data.Split:
    """The training set several times over, each time changed in another way."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        x, y = split[0].tensors
        many = torch.cat([change(x) for _ in range(times)])
    return TensorDataset(many, y.repeat(times)), split[1]


def over_eta() -> Section:
    """The sweep over eta."""
    sweep = Sweep()
    bigger = {
        "digits_unmoved": ("many_digits", many_digits, 16),
        "agnews_long": ("many_agnews", many_texts, 10),
    }
    for name, (title, data_of, epochs) in bigger.items():
        what = dataclasses.replace(
            EXPERIMENTS[name], name=title, keys=title, data=data_of, epochs=epochs, batch=128
        )
        plain = plain_of(what, 1)

        def found(eta: float, what: Experiment = what) -> tuple[str, list[Training]]:
            one = training(dataclasses.replace(what, options={"eta": eta}), 0, True)
            return f"{100 * eta:.1f} % | {one.plan['samples']}", [one]

        sweep.add(name, ((*found(eta), plain) for eta in ETAS))
    about = [
        "## Sweep over eta",
        "Training sets enlarged to 50,280 images (moved by a pixel) and 52,800 texts (one word in "
        "ten replaced by the unknown one), because smaller sets get 200 extra samples whatever "
        "eta is. One seed each, batches of 128, 16 and 10 epochs. The more extra samples there "
        "are, the smaller is the share of them that is known at the end, and the later these "
        "trainings are accepted.",
    ]
    picture = sweep.plot("CQ against eta", "eta, percent", [100 * eta for eta in ETAS])
    return sweep.section("eta", about, picture, "| data | eta | N ")
