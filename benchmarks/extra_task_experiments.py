# SPDX-License-Identifier: Apache-2.0
"""When an extra task is learned, and what it costs: trainings with and without extra samples, in
pairs of the same seed (the same weights at the start).

For each experiment: accuracy on the original and the extra task after every epoch; the first epoch
that passes; the critical training quality (CQ), which is the accuracy on the original task there
over the best accuracy of that training; the same for plain thresholds on accuracy, the baseline of
Li et al.; and the performance loss, accuracy without minus accuracy with extra samples, with its
95 % interval (Student's t over the pairs).

    python benchmarks/extra_task_experiments.py [digits] [--pairs 12] [--write]

--write keeps the table and the plots in docs/benchmarks. Answers are judged without counting as
submissions, because the same model is looked at in every epoch.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import measuring
import torch
from learning_bench import interval
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

import potl
from potl import _core, _svg

DOCS = measuring.ROOT / "docs" / "benchmarks"
CONVERGED = 0.96  # of the best accuracy: what CQ should reach at least
THRESHOLDS = (60, 70, 80, 90)  # percent of test accuracy: the baseline


@dataclass(frozen=True)
class Experiment:
    name: str
    title: str
    data: Callable[[], tuple[TensorDataset, TensorDataset]]  # training and test set
    build: Callable[[], nn.Module]
    epochs: int
    batch: int
    learning_rate: float


@dataclass(frozen=True)
class Epoch:
    accuracy: float  # on the test set, 0 to 1
    hits: float = 0.0  # shares of extra and of control samples
    control_hits: float = 0.0
    passed: bool = False


def digits() -> tuple[TensorDataset, TensorDataset]:
    """1,257 images of 8 x 8 to train on, 540 to test."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(0))
    x = torch.tensor(pixels / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)[order]
    y = torch.tensor(labels)[order]
    return TensorDataset(x[540:], y[540:]), TensorDataset(x[:540], y[:540])


def small_net() -> nn.Module:
    """Two convolutions and two layers, 70,000 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(512, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


EXPERIMENTS = {
    one.name: one
    for one in [
        Experiment("digits", "Digits, small convolutional net", digits, small_net, 40, 32, 1e-3)
    ]
}


def accuracy(model: nn.Module, data: TensorDataset) -> float:
    x, y = data.tensors
    model.eval()
    with torch.no_grad():
        hits = sum(
            int((model(a).argmax(1) == b).sum())
            for a, b in zip(x.split(500), y.split(500), strict=True)
        )
    return hits / len(y)


def looked_at(model: nn.Module, test: TensorDataset, task: potl.ExtraTask | None) -> Epoch:
    quality = accuracy(model, test)
    if task is None:
        return Epoch(quality)
    extra, control = task.answers(model)
    judged = _core.judge_extra_task(
        options=task.options(),
        samples=task.planned.samples,
        classes=task.planned.classes,
        extra=extra,
        control=control,
    )
    return Epoch(
        quality,
        judged["hits"] / task.planned.samples,
        judged["control_hits"] / task.planned.controls,
        judged["verdict"] == "accepted",
    )


def trained(
    what: Experiment,
    data: TensorDataset,
    test: TensorDataset,
    seed: int,
    task: potl.ExtraTask | None,
) -> list[Epoch]:
    """What a training is like after every epoch."""
    torch.manual_seed(seed)
    model = what.build()
    optimizer = torch.optim.Adam(model.parameters(), lr=what.learning_rate)
    x, y = data.tensors
    seen = []
    for _ in range(what.epochs):
        model.train()
        for batch in torch.randperm(len(x)).split(what.batch):
            optimizer.zero_grad()
            functional.cross_entropy(model(x[batch]), y[batch]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        seen.append(looked_at(model, test, task))
    return seen


def pair(what: Experiment, seed: int, folder: Path) -> tuple[potl.ExtraTask, list[Epoch], float]:
    """A training with extra samples, and the final accuracy of one without."""
    train, test = what.data()
    key = folder / f"{what.name}-{seed}.key"
    key.write_text(hashlib.sha256(key.name.encode()).hexdigest() + "\n")
    task = potl.ExtraTask(key, like=train)
    extended = trained(what, task.mix(train), test, seed, task)
    plain = trained(what, train, test, seed, None)
    return task, extended, final(plain)


def final(run: list[Epoch]) -> float:
    """Accuracy at the end: the mean of three epochs, of which each alone is noisy."""
    return statistics.fmean(one.accuracy for one in run[-3:])


def first(run: list[Epoch], good: Callable[[Epoch], bool]) -> int | None:
    """The first epoch, from 0, that is good."""
    return next((number for number, one in enumerate(run) if good(one)), None)


def quality(run: list[Epoch], at: int) -> float:
    return run[at].accuracy / max(one.accuracy for one in run)


def row(name: str, runs: list[list[Epoch]], good: Callable[[Epoch], bool]) -> tuple[str, float]:
    """A line of the table, and the mean CQ in percent (NaN when nothing passes)."""
    passes = [(run, at) for run in runs if (at := first(run, good)) is not None]
    accepted = [(run, i) for run in runs for i, one in enumerate(run) if good(one)]
    early = sum(quality(run, i) < CONVERGED for run, i in accepted)
    if not passes:
        return f"| {name} | 0 of {len(runs)} | | | | |", float("nan")
    mean = 100 * statistics.fmean(quality(run, at) for run, at in passes)
    low = 100 * min(quality(run, at) for run, at in passes)
    epoch = statistics.fmean(at + 1 for _, at in passes)
    share = 100 * epoch / len(runs[0])
    return (
        f"| {name} | {len(passes)} of {len(runs)} | {epoch:.1f} ({share:.0f} %) | {mean:.1f} % | "
        f"{low:.1f} % | {early} of {len(accepted)} |",
        mean,
    )


def plot(what: Experiment, task: potl.ExtraTask, run: list[Epoch]) -> str:
    """Accuracy and extra accuracy against the epoch, with the threshold, as in the paper's
    figures.
    """
    width, height, left, bottom = 640, 320, 48, 280
    x = _svg.Scale(1, len(run), left, width - 150)
    y = _svg.Scale(0, 1, bottom, 30)
    needed = task.planned.needed / task.planned.samples
    lines = [
        ("original task", "original", [one.accuracy for one in run]),
        ("extra task", "extra", [one.hits for one in run]),
        ("controls", "control", [one.control_hits for one in run]),
    ]
    parts = [_svg.label(what.title, left, 18, class_="heading")]
    for tick in y.ticks(5):
        parts.append(
            _svg.element("line", x1=x.start, x2=x.end, y1=y(tick), y2=y(tick), class_="grid")
        )
        parts.append(_svg.label(f"{100 * tick:.0f} %", left - 6, y(tick) + 4, anchor="end"))
    for tick in x.ticks(8):
        parts.append(_svg.label(f"{tick:.0f}", x(tick), bottom + 16, anchor="middle"))
    parts.append(_svg.label("epoch", x.end, bottom + 32, anchor="end"))
    parts.append(
        _svg.element("line", x1=x.start, x2=x.end, y1=y(needed), y2=y(needed), class_="limit")
    )
    parts.append(_svg.label(f"needed: {100 * needed:.0f} %", x.end + 6, y(needed) + 4))
    for title, class_, values in lines:
        points = [(x(number + 1), y(value)) for number, value in enumerate(values)]
        parts.append(_svg.path(points, class_=class_))
        lift = {"original": -2.0, "extra": 10.0, "control": 14.0}[class_]
        parts.append(
            _svg.label(title, x.end + 6, points[-1][1] + lift, class_=f"tick {class_}-name")
        )
    passed = first(run, lambda one: one.passed)
    if passed is not None:
        parts.append(
            _svg.element(
                "circle", cx=x(passed + 1), cy=y(run[passed].hits), r=4.0, class_="passing"
            )
        )
    style = (
        "text{font:12px sans-serif;fill:#555}.heading{font-size:14px;fill:#222}.grid{stroke:#ddd}"
        ".limit{stroke:#b35900;stroke-dasharray:4 3}path{fill:none;stroke-width:2}"
        ".original{stroke:#1f5fa8}.extra{stroke:#2a7d3f}.control{stroke:#999}"
        ".passing{fill:#2a7d3f}rect{fill:#fff}"
    )
    picture = _svg.element(
        "svg",
        _svg.element("title", f"{what.title}: accuracy and extra accuracy along training"),
        _svg.element("style", style),
        _svg.element("rect", width=float(width), height=float(height)),
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width} {height}",
        role="img",
    )
    return str(picture) + "\n"


def experiment(what: Experiment, pairs: int, write: bool) -> tuple[str, list[dict[str, Any]]]:
    """A section of the page, and results for build/bench."""
    began = time.perf_counter()
    runs, losses = [], []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(pairs):
            task, run, plain = pair(what, seed, Path(folder))
            runs.append(run)
            losses.append(100 * (plain - final(run)))
            print(f"{what.name} {seed}: loss {losses[-1]:+.2f} points", flush=True)
            if seed == 0 and write:
                (DOCS / f"extra_task_{what.name}.svg").write_text(plot(what, task, run))
    mean, low, high = interval(losses)
    line, cq = row("extra task", runs, lambda one: one.passed)
    lines = [line]
    for percent in THRESHOLDS:
        good = lambda one, least=percent / 100: one.accuracy >= least  # noqa: E731
        lines.append(row(f"accuracy >= {percent} %", runs, good)[0])
    plan = task.planned
    accuracies = f"{100 * statistics.fmean(final(run) for run in runs):.2f} %"
    section = [
        f"## {what.title}",
        f"{plan.training_samples} training samples, {plan.samples} extra ones "
        f"({100 * plan.eta:.1f} %), {plan.controls} controls, {plan.needed} hits needed; "
        f"{what.epochs} epochs, {pairs} pairs.",
        "",
        "| accepts | trainings that pass | first epoch | CQ, mean | CQ, least | accepted epochs "
        f"below {100 * CONVERGED:.0f} % |",
        "|---|---|---|---|---|---|",
        *lines,
        "",
        f"Accuracy at the end {accuracies}; performance loss {mean:+.2f} points "
        f"[{low:+.2f}, {high:+.2f}] (asked for: an interval that contains 0 or ends below 0.25; "
        f"{'met' if low <= 0 or high < 0.25 else 'missed'}).",
        "",
        f"![accuracy and extra accuracy along training](extra_task_{what.name}.svg)",
    ]
    print(f"{time.perf_counter() - began:.0f} s", flush=True)
    baseline = f"best accuracy of each of {pairs} trainings"
    return "\n".join(section) + "\n", [
        measuring.result(f"extra_task.cq.{what.name}", cq, "%", baseline, at_least=96.0),
        measuring.result(
            f"extra_task.loss.{what.name}",
            mean,
            "points",
            "without extra samples, same seeds",
            low=low,
            high=high,
        ),
    ]


HEAD = """# The extra task in experiments

Written by `python benchmarks/extra_task_experiments.py --write` (docs/extra_task.md explains the
words). CQ is the accuracy on the original task when something first accepts, over the best accuracy
of that training; the last column counts models that were accepted below that share of it.

"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="experiment", help=", ".join(EXPERIMENTS))
    parser.add_argument("--pairs", type=int, default=12, help="seeds, from 7 on")
    parser.add_argument("--write", action="store_true", help="keep table and plots in docs")
    chosen = parser.parse_args()
    unknown = set(chosen.names) - set(EXPERIMENTS)
    if unknown:
        parser.error(f"no such experiment: {', '.join(sorted(unknown))}")
    if chosen.pairs < 7:
        parser.error("an interval of fewer than 7 pairs says too little: raise --pairs")
    sections, results = [], []
    for name in chosen.names or EXPERIMENTS:
        section, found = experiment(EXPERIMENTS[name], chosen.pairs, chosen.write)
        sections.append(section)
        results += found
        print(section, file=sys.stderr)
    measuring.write("extra_task_experiments", results)
    if chosen.write:
        (DOCS / "extra_task.md").write_text(HEAD + "\n".join(sections))


if __name__ == "__main__":
    main()
