# SPDX-License-Identifier: Apache-2.0
"""The table of an experiment of the extra task: when what accepts, and what the samples cost."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

import extra_task_verdict as verdict
import measuring
import scipy.stats  # type: ignore[import-untyped]
from extra_task_pages import Section
from extra_task_plot import Line, plot
from extra_task_training import Epoch, Experiment, Training

CONVERGED = 0.96  # of the best score: what CQ should reach at least
THRESHOLDS = (60, 70, 80, 90)  # percent of test accuracy: the baseline
CAPTION = "accuracy and extra accuracy along training"
Good = Callable[[dict[str, Any], Epoch], bool]  # by the plan of the extra samples
RULES: dict[str, Good] = {
    "extra task: accepted": verdict.accepted,
    "extra task: not rejected": verdict.not_rejected,
}
PUBLISHED = "published rule, `epsilon` 0.03"


def mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean and its 95 % interval, by Student's t."""
    mean = statistics.fmean(values)
    t = float(scipy.stats.t.ppf(0.975, len(values) - 1))
    reach = t * statistics.stdev(values) / len(values) ** 0.5
    return mean, mean - reach, mean + reach


def share_interval(successes: int, trials: int) -> tuple[float, float]:
    """The exact 95 % interval of a proportion (Clopper and Pearson)."""
    beta = scipy.stats.beta
    low = float(beta.ppf(0.025, successes, trials - successes + 1)) if successes else 0.0
    high = float(beta.ppf(0.975, successes + 1, trials - successes)) if successes < trials else 1.0
    return low, high


def final(one: Training) -> float:
    """Score at the end: on the whole test set, or the mean of three epochs, of which each alone is
    noisy.
    """
    if one.end is not None:
        return one.end
    return statistics.fmean(epoch.score for epoch in one.epochs[-3:])


def first(one: Training, good: Good) -> int | None:
    """The first epoch, from 0, that is good."""
    return next((at for at, epoch in enumerate(one.epochs) if good(one.plan, epoch)), None)


def quality(one: Training, at: int) -> float:
    return one.epochs[at].score / max(epoch.score for epoch in one.epochs)


def row(name: str, runs: Sequence[Training], good: Good) -> tuple[str, float]:
    """A line of the table, and the mean CQ in percent (0 when nothing passes)."""
    passes = [(run, at) for run in runs if (at := first(run, good)) is not None]
    if not passes:
        return f"| {name} | 0 of {len(runs)} | | | | |", 0.0
    taken = [
        quality(run, at) for run in runs for at, one in enumerate(run.epochs) if good(run.plan, one)
    ]
    early = sum(one < CONVERGED for one in taken)
    mean = 100 * statistics.fmean(quality(run, at) for run, at in passes)
    low = 100 * min(quality(run, at) for run, at in passes)
    epoch = statistics.fmean(at + 1 for _, at in passes)
    share = 100 * epoch / len(runs[0].epochs)
    return (
        f"| {name} | {len(passes)} of {len(runs)} | {epoch:.1f} ({share:.0f} %) | {mean:.1f} % | "
        f"{low:.1f} % | {early} of {len(taken)} |",
        mean,
    )


def losses(what: Experiment, pairs: Sequence[tuple[Training, Training]]) -> list[float]:
    """Of each pair (with, without): points of accuracy, or percent of the loss without."""
    finals = [(final(extended), final(plain)) for extended, plain in pairs]
    if what.kind == "classes":
        return [100 * (without - with_) for with_, without in finals]
    return [100 * (without / with_ - 1) for with_, without in finals]


def section(what: Experiment, pairs: Sequence[tuple[Training, Training]]) -> Section:
    """What pairs of trainings (with and without extra samples) say."""
    runs = [extended for extended, _ in pairs]
    mean, low, high = mean_interval(losses(what, pairs))
    rules = dict(RULES)
    if what.kind == "classes":
        rules[PUBLISHED] = verdict.published
        for percent in THRESHOLDS:
            rules[f"accuracy >= {percent} %"] = at_least(percent / 100)
    rows = [row(name, runs, good) for name, good in rules.items()]
    cq = rows[0][1]
    accepted = sum(first(run, verdict.accepted) is not None for run in runs)
    some = 0 < accepted < len(runs)  # of the others the mean knows nothing
    of_those = f" by the {accepted} of {len(runs)} that were accepted" if some else ""
    at_end = statistics.fmean(final(run) for run in runs)
    has_classes = what.kind == "classes"
    shown = f"Accuracy at the end {100 * at_end:.2f} %" if has_classes else (
        f"Test loss at the end {1 / at_end:.4f}"
    )  # fmt: skip
    unit = "points" if has_classes else "% of the loss"
    met = "met" if low <= 0 or high < 0.25 else "missed"
    text = [
        f"## {what.title}",
        described(what, pairs),
        "",
        "| rule | trainings that pass | first epoch | CQ, mean | CQ, least | epochs that pass "
        f"below {100 * CONVERGED:.0f} % |",
        "|---|---|---|---|---|---|",
        *(line for line, _ in rows),
        "",
        f"{shown}; performance loss {mean:+.2f} {unit} [{low:+.2f}, {high:+.2f}]: {met}. "
        f"CQ of 96 %: {reached(cq)}{of_those}.",
        *([] if has_classes else ["", effects(runs)]),
        *(["", what.note] if what.note else []),
        "",
        f"![along training](extra_task_{what.name}.svg)",
    ]
    baseline = f"best of each of {len(pairs)} trainings"
    if cq == 0:
        baseline += ", none of which was accepted"
    elif some:
        baseline += f", {accepted} of which were accepted: the others are left out"
    results = [
        measuring.result(f"extra_task.cq.{what.name}", cq, "%", baseline, at_least=96.0),
        measuring.result(
            f"extra_task.loss.{what.name}",
            mean,
            unit,
            f"none, same seeds: 95 % in [{low:+.2f}, {high:+.2f}], {met}",
            low=low,
            high=high,
        ),
    ]
    return Section(what.name, "\n".join(text), results, {f"extra_task_{what.name}.svg": picture(
        what, pairs[0][0])})  # fmt: skip


def effects(runs: Sequence[Training]) -> str:
    """What trainings without classes show at the end, from the least to the greatest."""
    found = [verdict.effect(run.plan, run.epochs[-1]) for run in runs]
    shown = ", ".join(f"{one:.3f}" for one, _ in sorted(found))
    return f"Effects at the end: {shown}, of {found[0][1]:.3f} that acceptance takes."


def at_least(score: float) -> Good:
    """The baseline: a threshold on the accuracy alone."""
    return lambda plan, epoch: epoch.score >= score


def reached(cq: float) -> str:
    """Whether this CQ, in percent, is enough; 0 stands for none."""
    if cq == 0:
        return "missed: no training was accepted within these epochs"
    return "met" if cq >= 100 * CONVERGED else "missed"


def described(what: Experiment, pairs: Sequence[tuple[Training, Training]]) -> str:
    """Sizes and recipe in words."""
    plan = pairs[0][0].plan
    share = 100 * plan["samples"] / plan["training_samples"]
    seconds = statistics.fmean(one.seconds for pair in pairs for one in pair)
    needed = f"{plan['needed']} hits needed" if plan["classes"] else "judged by errors"
    recipe = {
        "cosine": "SGD with momentum, cosine",
        "linear": "AdamW, falling linearly to 0",
        "constant": "AdamW",
    }[what.schedule]
    parts = [f"{recipe}, learning rate {what.learning_rate:g}, batches of {what.batch}"]
    if what.weight_decay:
        parts.append(f"weight decay {what.weight_decay:g}")
    if what.watched:
        parts.append(f"{what.watched} test samples after every epoch and all at the end")
    if what.augment is not None:
        parts.append(what.augment.__name__.replace("_", " "))
    return (
        f"{plan['training_samples']} training samples, {plan['samples']} extra ones "
        f"({share:.1f} %), {plan['controls']} controls, {needed}; {what.epochs} epochs, "
        f"{len(pairs)} pairs; {', '.join(parts)}; {seconds:.0f} s of one core each."
    )


def picture(what: Experiment, one: Training) -> str:
    """Accuracy and extra accuracy against the epoch, with the threshold, as in the paper's
    figures; without classes the quality, and the errors as shares of the largest.
    """
    run, plan = one.epochs, one.plan
    at = first(one, verdict.accepted)
    if what.kind == "classes":
        scale, best = 1.0, 1.0
        names = ("original task", "extra task", "controls")
        shares = {
            "accepted from": verdict.least_accepted(plan) / plan["samples"],
            "rejected below": plan["needed"] / plan["samples"],
        }
        limits = [(f"{name} {100 * share:.0f} %", share) for name, share in shares.items()]
    else:
        scale = max(max(epoch.hits, epoch.control_hits) for epoch in run)
        best = max(epoch.score for epoch in run)
        names = ("quality", "extra errors", "control errors")
        limits = []
    return plot(
        f"{what.title}: {CAPTION}",
        "epoch",
        range(1, len(run) + 1),
        [
            Line(names[0], "original", [epoch.score / best for epoch in run]),
            Line(names[1], "extra", [epoch.hits / scale for epoch in run]),
            Line(names[2], "control", [epoch.control_hits / scale for epoch in run]),
        ],
        limits=limits,
        mark=None if at is None else (at + 1, run[at].hits / scale),
    )
