# SPDX-License-Identifier: Apache-2.0
"""One training of an experiment of the extra task, looked at after every epoch.

What a training was like is kept in build/bench/extra_task under a digest of its parameters, so that
experiments that were cut off go on where they were.
"""

from __future__ import annotations

import hashlib
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import measuring
import numpy as np
import torch
from extra_task_data import Split
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

import potl

CACHE = measuring.ROOT / "build" / "bench" / "extra_task"
Augment = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Experiment:
    """A training that is done with and without extra samples.

    Attributes:
        kind: "classes", "autoencoder" or "language"; the last two are judged by errors.
        schedule: "constant" (AdamW), "linear" (AdamW, falling to 0) or "cosine" (SGD with momentum
            0.9, falling to 0).
        options: Of `potl.ExtraTask`.
        watched: So many test samples are looked at after every epoch, and all at the end; 0: all
            after every epoch.
        keys: What keys are made from, where it is not the name.
        note: What its section says beside the figures.
        revision: Changed with whatever the other fields do not say, so that older results are not
            taken for this experiment's.
    """

    name: str
    title: str
    data: Callable[[], Split]
    build: Callable[[], nn.Module]
    epochs: int
    batch: int
    learning_rate: float
    pairs: int
    kind: str = "classes"
    schedule: str = "constant"
    weight_decay: float = 0.0
    smoothing: float = 0.0
    augment: Augment | None = None
    options: dict[str, Any] = field(default_factory=dict)
    watched: int = 0
    keys: str = ""
    note: str = ""
    revision: int = 1
    device: str = "cpu"

    def parameters(self, seed: int, extras: bool) -> dict[str, Any]:
        """All that decides a training."""
        plain = asdict(replace(self, data=None, build=None, augment=None))  # type: ignore[arg-type]
        for name in ("title", "pairs", "data", "build", "device", "keys", "note"):
            del plain[name]
        if not self.watched:
            del plain["watched"]
        plain["name"] = self.keys or self.name
        augment = None if self.augment is None else self.augment.__name__
        return plain | {"augment": augment, "seed": seed, "extras": extras}


@dataclass(frozen=True)
class Epoch:
    """What a model is like after an epoch.

    `score` is the accuracy on the test set or, where there are no classes, one over the loss there:
    in both cases a share of the best score is the quality. `hits` and `control_hits` are shares, or
    mean errors, whose single values are in `errors` (extra, control).
    """

    score: float
    hits: float = 0.0
    control_hits: float = 0.0
    errors: tuple[Sequence[float], Sequence[float]] | None = None


@dataclass(frozen=True)
class Training:
    """`end` is the score on the whole test set, where epochs were looked at with a part of it."""

    epochs: list[Epoch]
    plan: dict[str, Any]  # of its extra samples; empty without
    seconds: float
    end: float | None = None


def digest(parameters: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(parameters, sort_keys=True).encode()).hexdigest()[:24]


def kept(parameters: dict[str, Any], work: Callable[[], Any]) -> Any:
    """What `work` returned for these parameters, now or in an earlier run. JSON values."""
    path = CACHE / f"{digest(parameters)}.json"
    if path.is_file():
        return json.loads(path.read_text())["found"]
    found = work()
    CACHE.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps({"parameters": parameters, "found": found}) + "\n")
    partial.replace(path)
    return found


def task_of(what: Experiment, seed: int, folder: Path) -> potl.ExtraTask:
    """The extra task of a seed; its key is made from names, because figures must repeat."""
    key = folder / f"{what.keys or what.name}-{seed}.key"
    key.write_text(hashlib.sha256(key.name.encode()).hexdigest() + "\n")
    kind = None if what.kind == "classes" else what.kind
    return potl.ExtraTask(key, like=what.data()[0], kind=kind, **what.options)


def training(what: Experiment, seed: int, extras: bool) -> Training:
    """A training, from the results kept when it was done before."""

    def work() -> dict[str, Any]:
        began = time.process_time()
        train, test = what.data()
        plan: dict[str, Any] = {}
        task = None
        with tempfile.TemporaryDirectory() as folder:
            if extras:
                task = task_of(what, seed, Path(folder))
                train = task.mix(train)
                plan = {
                    name: getattr(task.planned, name)
                    for name in ("training_samples", "samples", "classes", "controls", "needed")
                }
            part = TensorDataset(*(column[: what.watched or None] for column in test.tensors))
            epochs, end = [], None
            for model, last in steps(what, train, seed):
                if last:
                    epochs.append(looked_at(what, model, part, task))
            if what.watched:
                end = score(what, model, test)
        seconds = time.process_time() - began
        rows = [asdict(one) for one in epochs]
        return {"epochs": rows, "plan": plan, "seconds": seconds, "end": end}

    found = kept(what.parameters(seed, extras), work)
    epochs = [epoch_of(one) for one in found["epochs"]]
    return Training(epochs, found["plan"], found["seconds"], found.get("end"))


def epoch_of(row: dict[str, Any]) -> Epoch:
    """An epoch as it was kept: some say more than that, older ones the verdict of their time."""
    return Epoch(**{one.name: row[one.name] for one in fields(Epoch) if one.name in row})


def steps(what: Experiment, data: TensorDataset, seed: int) -> Iterator[tuple[nn.Module, bool]]:
    """The model after every step, and whether an epoch ended with it."""
    torch.manual_seed(seed)
    model = what.build().to(what.device)
    optimizer = optimizer_of(what, model)
    x, y = data.tensors
    count = -(-len(x) // what.batch)
    total, step = what.epochs * count, 0
    for _ in range(what.epochs):
        for number, batch in enumerate(torch.split(torch.randperm(len(x)), what.batch)):
            optimizer.param_groups[0]["lr"] = what.learning_rate * rate(what, step / total)
            model.train()
            inputs = x[batch] if what.augment is None else what.augment(x[batch])
            optimizer.zero_grad()
            output = model(inputs.to(what.device))
            loss(what, output, y[batch].to(what.device)).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            step += 1
            yield model, number == count - 1


def rate(what: Experiment, done: float) -> float:
    """The learning rate after this share of the training, as a share of the first one."""
    if what.schedule == "cosine":
        return (1 + torch.tensor(torch.pi * done).cos().item()) / 2
    return 1 - done if what.schedule == "linear" else 1.0


def optimizer_of(what: Experiment, model: nn.Module) -> torch.optim.Optimizer:
    if what.schedule == "cosine":
        return torch.optim.SGD(
            model.parameters(),
            lr=what.learning_rate,
            momentum=0.9,
            nesterov=True,
            weight_decay=what.weight_decay,
        )
    return torch.optim.AdamW(
        model.parameters(), lr=what.learning_rate, weight_decay=what.weight_decay
    )


def loss(what: Experiment, output: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    if what.kind == "autoencoder":
        return functional.mse_loss(output, wanted)
    if what.kind == "language":
        return functional.cross_entropy(output.flatten(0, 1), wanted.flatten())
    return functional.cross_entropy(output, wanted, label_smoothing=what.smoothing)


def score(what: Experiment, model: nn.Module, data: TensorDataset) -> float:
    """Accuracy, or one over the loss."""
    x, y = data.tensors
    model.eval()
    total = 0.0
    with torch.no_grad():
        for inputs, wanted in zip(torch.split(x, 250), torch.split(y, 250), strict=True):
            output, wanted = model(inputs.to(what.device)), wanted.to(what.device)
            if what.kind == "classes":
                total += float((output.argmax(1) == wanted).sum())
            else:
                total += len(inputs) * float(loss(what, output, wanted))
    return total / len(x) if what.kind == "classes" else len(x) / total


def answered(task: potl.ExtraTask, model: nn.Module) -> tuple[NDArray[Any], NDArray[Any]]:
    """Answers, or errors, on extra and control samples: no submission, because one model is looked
    at in every epoch.
    """
    extra, control = task.answers(model)
    return np.asarray(extra, np.float64), np.asarray(control, np.float64)


def counted(classes: int, answers: NDArray[Any]) -> int:
    """How many of these answers are right."""
    return int((answers == np.arange(len(answers)) % classes).sum())


def looked_at(
    what: Experiment, model: nn.Module, test: TensorDataset, task: potl.ExtraTask | None
) -> Epoch:
    quality = score(what, model, test)
    if task is None:
        return Epoch(quality)
    sets = answered(task, model)
    classes = task.planned.classes
    if classes:
        extra, control = (counted(classes, one) / len(one) for one in sets)
        return Epoch(quality, extra, control)
    short = [[float(f"{value:.7g}") for value in one] for one in sets]
    means = [statistics.fmean(one) for one in short]
    return Epoch(quality, means[0], means[1], (short[0], short[1]))
