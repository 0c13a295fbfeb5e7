# SPDX-License-Identifier: Apache-2.0
"""False acceptance and false rejection of the extra task.

Cheap models are those whose accuracy is below 96 % of that of a reference, trained without extra
samples: stopped early, trained on a tenth of what was uploaded, on random labels, not at all, or
answers of one class. Honest ones were trained to the end, with usual augmentation. Each model is of
a training, a key and a mix of its own.
"""

from __future__ import annotations

import dataclasses
import itertools
import statistics
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import extra_task_data as data
import extra_task_verdict as verdict
import torch
from extra_task_list import EXPERIMENTS, flips_and_crops, wider_resnet, words_dropped
from extra_task_pages import Section
from extra_task_sweeps import TASKS, plain_of
from extra_task_table import CONVERGED, final, share_interval
from extra_task_training import (
    Experiment,
    answered,
    counted,
    kept,
    score,
    steps,
    task_of,
    training,
)
from torch import nn
from torch.utils.data import TensorDataset

import potl

CHEATS = ("stopped early", "a tenth of the data", "random labels", "untrained")
FIRST = 1000  # seeds of this page begin here
# Models of each cheat, share of an honest training's steps within which "early" is drawn.
COUNTS = {"digits_unmoved": ((140, 200, 20, 30), 0.25), "agnews_long": ((50, 30, 5, 10), 0.25)}
VERDICTS = ("accepted", "inconclusive", "rejected")


def cheat(what: Experiment, how: str, seed: int, within: float) -> dict[str, Any]:
    """Accuracy and verdict of one cheap model."""

    def work() -> dict[str, Any]:
        train, test = what.data()
        with tempfile.TemporaryDirectory() as folder:
            task = task_of(what, seed, Path(folder))
            model = cheap(what, how, task.mix(train), seed, within)
            hits, control_hits = hits_of(task, model)
            counts = {"hits": hits, "control_hits": control_hits}
            return {"score": score(what, model, test)} | counts

    found: dict[str, Any] = kept(
        what.parameters(seed, True) | {"cheat": how, "within": within}, work
    )
    return found


def hits_of(task: potl.ExtraTask, model: nn.Module) -> tuple[int, int]:
    """Hits among extra and control samples."""
    extra, control = answered(task, model)
    return counted(task.planned.classes, extra), counted(task.planned.classes, control)


def cheap(what: Experiment, how: str, mixed: TensorDataset, seed: int, within: float) -> nn.Module:
    """A model that cost less than it should."""
    x, y = mixed.tensors
    generator = torch.Generator().manual_seed(seed)
    short = what
    last = what.epochs * -(-len(x) // what.batch)
    if how == "untrained":
        torch.manual_seed(seed)
        return what.build()
    if how == "stopped early":
        last = 1 + int(torch.randint(int(within * last), (1,), generator=generator))
    elif how == "a tenth of the data":
        chosen = torch.randperm(len(x), generator=generator)[: len(x) // 10]
        x, y = x[chosen], y[chosen]
    else:
        y = y[torch.randperm(len(y), generator=generator)]
        short = dataclasses.replace(what, epochs=max(1, what.epochs // 4))
    models = (model for model, _ in steps(short, TensorDataset(x, y), seed))
    for model in itertools.islice(models, last):  # noqa: B007
        pass
    return model


def one_class(what: Experiment) -> list[dict[str, Any]]:
    """Models that say one class of everything, for each class."""
    with tempfile.TemporaryDirectory() as folder:
        task = task_of(what, FIRST, Path(folder))
        models = [Constant(one, task.planned.classes) for one in range(task.planned.classes)]
        counts = [hits_of(task, model) for model in models]
    return [{"hits": hits, "control_hits": control} for hits, control in counts]


class Constant(nn.Module):
    """Says one class of everything."""

    def __init__(self, answer: int, classes: int) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.eye(classes)[answer])

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.scores.expand(len(inputs), -1)


def false_acceptance() -> Section:
    """The table of cheap models."""
    lines: list[str] = []
    seen = 0
    total: Counter[str] = Counter()
    for name, (counts, within) in COUNTS.items():
        what = EXPERIMENTS[name]
        plan = training(what, 0, True).plan
        least = CONVERGED * plain_of(what, what.pairs)
        found = {
            how: [cheat(what, how, FIRST + seed, within) for seed in range(count)]
            for how, count in zip(CHEATS, counts, strict=True)
        }
        for how, models in (found | {"one class for everything": one_class(what)}).items():
            bad = [one for one in models if one.get("score", 0) < least]
            verdicts = Counter(verdict_of(plan, one) for one in bad)
            cells = [len(bad), spread(bad), len(models) - len(bad)]
            cells += [verdicts[one] for one in VERDICTS]
            lines.append(f"| {TASKS[name]} | {how} | {' | '.join(map(str, cells))} |")
            print(lines[-1], flush=True)
            seen, total = seen + len(bad), total + verdicts
    met = "met" if total["accepted"] == 0 and seen >= 300 else "missed"
    text = [
        "## False acceptance",
        "Models whose accuracy is below 96 % of a reference's, which is the mean of trainings "
        "without extra samples. Those that reached 96 % are not counted. Digits without "
        "augmentation, where samples are known soonest; AG News with a constant learning rate.",
        "",
        "| data | cheat | models | accuracy | reached 96 % | accepted | inconclusive | rejected |",
        "|---|---|---|---|---|---|---|---|",
        *lines,
        "",
        f"Accepted: {of_all(total['accepted'], seen)} (asked for: none of at least 300; {met}). "
        f"Not rejected: {of_all(seen - total['rejected'], seen)}: a model that was "
        "trained on a random tenth of the data knows a tenth of the extra samples, which is more "
        "than the usual `epsilon` of 0.03, and the published rule asks for no more.",
    ]
    return Section("false_acceptance", "\n".join(text))


def verdict_of(plan: dict[str, Any], one: dict[str, Any]) -> str:
    """What the library says of a model; a rejection that was kept without its counts stands."""
    if one.get("verdict") == "rejected":
        return "rejected"
    sizes = plan["samples"], plan["classes"]
    return verdict.of_counts(*sizes, one["hits"], plan["controls"], one["control_hits"])


def spread(models: list[dict[str, Any]]) -> str:
    """Least and greatest accuracy."""
    scores = sorted(100 * one["score"] for one in models if "score" in one)
    return f"{scores[0]:.1f} to {scores[-1]:.1f} %" if scores else ""


def of_all(some: int, trials: int) -> str:
    """A count, its share in percent, and that share's interval."""
    low, high = share_interval(some, trials)
    return f"{some} of {trials}, {100 * some / trials:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"


CROPPED = {
    "data": data.cifar, "build": wider_resnet, "augment": flips_and_crops, "epochs": 30,
    "watched": 0, "revision": 1,
}  # fmt: skip
HONEST: dict[str, tuple[str, dict[str, Any], int, int]] = {  # experiment, changes, models, seed
    "digits, moved by a pixel": ("digits", {}, 12, 0),
    "digits": ("digits_unmoved", {}, 12, 0),
    "digits, label smoothing 0.1": ("digits_unmoved", {"smoothing": 0.1}, 6, FIRST),
    "AG News, text CNN, falling learning rate": ("agnews", {}, 8, 0),
    "AG News, text CNN, constant learning rate": ("agnews_long", {}, 6, 0),
    "the same, words dropped": ("agnews_long", {"augment": words_dropped}, 2, FIRST),
    "the same, label smoothing 0.1": ("agnews_long", {"smoothing": 0.1}, 2, FIRST),
    "AG News, BiLSTM": ("agnews_lstm", {}, 6, 0),
    "IMDB, text CNN": ("imdb", {}, 6, 0),
    "IMDB, BiLSTM without dropout, 12 epochs": ("imdb_lstm", {}, 6, 0),
    "IMDB, BiLSTM with dropout, 4 epochs": ("imdb_lstm_dropout", {}, 3, 0),
    "IMDB, BiLSTM with dropout, 10 epochs": ("imdb_lstm_dropout", {"epochs": 10}, 1, 2),
    "CIFAR-10, ResNet, 25,000 images, 20 epochs, flips": ("cifar", {}, 4, 0),
    "CIFAR-10, narrower ResNet, 20,000 images, 14 epochs, flips": ("cifar_narrow", {}, 3, 0),
    "CIFAR-10, VGG, 20 epochs, flips": ("cifar_vgg", {}, 3, 0),
    "CIFAR-10, VGG, 12 epochs, flips": ("cifar_vgg_short", {}, 3, 0),
    "CIFAR-10, ResNet, 10,000 images, 30 epochs, crops, too": ("cifar", CROPPED, 1, 100),
}


def false_rejection() -> Section:
    """The table of honest models."""
    lines, seen = [], 0
    total: Counter[str] = Counter()
    for title, (name, changes, count, begin) in HONEST.items():
        what = dataclasses.replace(EXPERIMENTS[name], **changes)
        runs = [training(what, begin + seed, True) for seed in range(count)]
        verdicts = Counter(verdict.of_epoch(run.plan, run.epochs[-1]) for run in runs)
        accuracy = 100 * statistics.fmean(final(run) for run in runs)
        hits = 100 * statistics.fmean(run.epochs[-1].hits for run in runs)
        shown = " | ".join(str(verdicts[one]) for one in VERDICTS)
        lines.append(f"| {title} | {count} | {accuracy:.1f} % | {hits:.0f} % | {shown} |")
        seen, total = seen + count, total + verdicts
        print(lines[-1], flush=True)
    text = [
        "## False rejection",
        "Honest models at the end of their training; nets of CIFAR-10 normalise their inputs. "
        "Mixup and CutMix are not supported: they "
        "change which labels the extra samples have.",
        "",
        "| training | models | accuracy | extra samples hit | accepted | inconclusive | rejected |",
        "|---|---|---|---|---|---|---|",
        *lines,
        "",
        f"Rejected: {of_all(total['rejected'], seen)}; inconclusive: "
        f"{of_all(total['inconclusive'], seen)}. Extra samples are learned when a model begins to "
        "fit its training set. Crops (by up to 4 pixels, 30 epochs) put that off for longer than "
        "the accuracy needs: that net is rejected, although its training was honest.",
    ]
    return Section("false_rejection", "\n".join(text))
