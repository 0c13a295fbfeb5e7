# SPDX-License-Identifier: Apache-2.0
"""Why extra samples are made as they are: the naive extra task, which is real samples with wrong
labels, and the gradients of clean and extra samples along training (Theorem 1 of Li et al.: clean
samples pull a model in one direction, extra ones in many, so that the real task is learned first).
"""

from __future__ import annotations

import statistics
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import extra_task_verdict as verdict
import torch
from extra_task_list import EXPERIMENTS
from extra_task_pages import Section
from extra_task_plot import Line, plot
from extra_task_sweeps import COLUMNS, TASKS, USUAL, plain_of, row
from extra_task_training import (
    Epoch,
    Experiment,
    Training,
    epoch_of,
    kept,
    loss,
    score,
    steps,
    task_of,
    training,
)
from torch import nn
from torch.utils.data import TensorDataset

import potl

SEEDS = {"digits_unmoved": 6, "agnews_long": 2}
KINDS = ("clean", "extra", "clean together", "extra together")
WATCHED = 100  # samples of each kind whose gradients are looked at


def naive(what: Experiment, seed: int) -> Training:
    """A training in which as many real samples as there would be extra ones have wrong labels."""

    def work() -> dict[str, Any]:
        train, test = what.data()
        x, y = train.tensors
        classes = int(y.max()) + 1
        count = potl.ExtraTask.plan(len(x), classes=classes).samples
        generator = torch.Generator().manual_seed(seed)
        chosen = torch.randperm(len(x), generator=generator)[:count]
        wrong = y.clone()
        shift = torch.randint(1, classes, (count,), generator=generator)
        wrong[chosen] = (y[chosen] + shift) % classes

        def look(model: nn.Module) -> Epoch:
            quality = score(what, model, test)
            with torch.no_grad():
                hits = int((model(x[chosen]).argmax(1) == wrong[chosen]).sum())
            return Epoch(quality, hits / count)

        models = steps(what, TensorDataset(x, wrong), seed)
        return {"epochs": [asdict(look(model)) for model, last in models if last]}

    found = kept(what.parameters(seed, True) | {"naive": 1}, work)
    plan = training(what, seed, True).plan  # as many samples, of as many classes
    return Training([epoch_of(one) for one in found["epochs"]], plan, 0.0)


def without_controls(plan: dict[str, Any], epoch: Epoch) -> bool:
    """Accepted where there are no controls, which so are taken to be hit by chance."""
    return verdict.hits_of(plan, epoch) >= verdict.least_accepted(plan)


def comparison() -> Section:
    """The naive extra task beside potl's."""
    lines = []
    for name, seeds in SEEDS.items():
        what = EXPERIMENTS[name]
        plain = plain_of(what, seeds)
        extras = [training(what, seed, True) for seed in range(seeds)]
        mislabelled = [naive(what, seed) for seed in range(seeds)]
        rules = (without_controls, verdict.published)
        for title, runs, by in (
            ("extra samples", extras, USUAL),
            ("real samples, wrong labels", mislabelled, rules),
        ):
            lines.append(row(f"{TASKS[name]} | {title}", runs, plain, by)[0])
            print(lines[-1], flush=True)
    text = [
        "## The naive extra task",
        "Real training samples with wrong labels instead, as many. There is no family to draw "
        "controls from: as many hits are needed as where controls are hit by chance. Digits "
        "without augmentation; AG News with a constant learning rate.",
        "",
        f"| data | secret {COLUMNS}",
        "|---|---|---|---|---|---|---|---|---|",
        *lines,
    ]
    return Section("naive", "\n".join(text))


def norms(what: Experiment, seed: int) -> dict[str, list[float]]:
    """After every epoch the mean norm of single samples' gradients, and that of their mean."""

    def work() -> dict[str, list[float]]:
        train, _ = what.data()
        with tempfile.TemporaryDirectory() as folder:
            task = task_of(what, seed, Path(folder))
            mixed = task.mix(train)
            labels = task.planned.classes
            places = [("extra", index) for index in range(WATCHED)]
            extra = torch.stack([torch.as_tensor(one) for one in task.inputs(places)])
        sets = {
            "clean": tuple(column[:WATCHED] for column in train.tensors),
            "extra": (extra, torch.arange(WATCHED) % labels),
        }
        found: dict[str, list[float]] = {}
        for model, last in steps(what, mixed, seed):
            if last:
                for name, (x, y) in sets.items():
                    single, together = norms_of(what, model, x, y)
                    found.setdefault(name, []).append(single)
                    found.setdefault(f"{name} together", []).append(together)
        return found

    out: dict[str, list[float]] = kept(what.parameters(seed, True) | {"norms": 2}, work)
    return out


def norms_of(
    what: Experiment, model: nn.Module, x: torch.Tensor, y: torch.Tensor
) -> tuple[float, float]:
    """The mean of the norms of each sample's gradient, and the norm of their mean."""
    model.eval()

    def norm(chosen: slice) -> float:
        model.zero_grad()
        loss(what, model(x[chosen]), y[chosen]).backward()  # type: ignore[no-untyped-call]
        squares = [float(p.grad.square().sum()) for p in model.parameters() if p.grad is not None]
        return float(sum(squares) ** 0.5)

    singles = [norm(slice(index, index + 1)) for index in range(len(x))]
    return statistics.fmean(singles), norm(slice(None))


def gradients() -> Section:
    """Plots of gradient norms, and where those of extra samples become the larger ones."""
    lines, plots = [], {}
    for name in SEEDS:
        what = EXPERIMENTS[name]
        found = norms(what, 0)
        count = len(found["clean"])
        for at in sorted({0, count // 8, count // 4, count // 2, count - 1}):
            shown = " | ".join(f"{found[kind][at]:.3f}" for kind in KINDS)
            lines.append(f"| {TASKS[name]} | {at + 1} | {shown} |")
        plots[f"extra_task_gradients_{name.partition('_')[0]}.svg"] = plot(
            f"{TASKS[name]}: norms of gradients",
            "epoch",
            range(1, count + 1),
            [
                Line("clean, one", "original", found["clean"]),
                Line("extra, one", "extra", found["extra"]),
                Line("clean, mean of 100", "other", found["clean together"]),
                Line("extra, mean of 100", "control", found["extra together"]),
            ],
            percent=False,
            logarithmic=True,
        )
    text = [
        "## Gradients of clean and extra samples",
        f"Of the loss of {WATCHED} training samples and {WATCHED} extra samples, in evaluation "
        "mode, in one training: the mean norm of single samples' gradients, and the norm of their "
        "mean, in which those of extra samples cancel each other at first.",
        "",
        "| data | epoch | clean, one | extra, one | clean, mean of all | extra, mean of all |",
        "|---|---|---|---|---|---|",
        *lines,
        "",
        *(f"![gradient norms]({picture})" for picture in plots),
    ]
    return Section("gradients", "\n".join(text), plots=plots)
