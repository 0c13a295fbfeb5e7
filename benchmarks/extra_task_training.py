# SPDX-License-Identifier: Apache-2.0
"""One training of an experiment of the extra task, looked at after every epoch.

What a training was like is kept in build/bench/extra_task under a digest of its parameters, so that
experiments that were cut off go on where they were.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import measuring
import torch
from extra_task_data import Split
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

import potl
from potl import _core

CACHE = measuring.ROOT / "build" / "bench" / "extra_task"
Augment = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Experiment:
    """A training that is done with and without extra samples.

    Attributes:
        kind: "classes", "autoencoder" or "language"; the last two are judged by errors.
        schedule: "constant" (Adam) or "cosine" (SGD with momentum 0.9, falling to 0).
        options: Of `potl.ExtraTask`.
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
    revision: int = 1
    device: str = "cpu"

    def parameters(self, seed: int, extras: bool) -> dict[str, Any]:
        """All that decides a training."""
        plain = asdict(replace(self, data=None, build=None, augment=None))  # type: ignore[arg-type]
        for name in ("title", "pairs", "data", "build", "device"):
            del plain[name]
        augment = None if self.augment is None else self.augment.__name__
        return plain | {"augment": augment, "seed": seed, "extras": extras}


@dataclass(frozen=True)
class Epoch:
    """What a model is like after an epoch.

    `score` is the accuracy on the test set or, where there are no classes, one over the loss there:
    in both cases a share of the best score is the quality. `hits` and `control_hits` are shares, or
    mean errors.
    """

    score: float
    hits: float = 0.0
    control_hits: float = 0.0
    passed: bool = False


@dataclass(frozen=True)
class Training:
    epochs: list[Epoch]
    plan: dict[str, Any]  # of its extra samples; empty without
    seconds: float


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
    key = folder / f"{what.name}-{seed}.key"
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
            epochs = trained(what, train, seed, lambda model: looked_at(what, model, test, task))
        seconds = time.process_time() - began
        return {"epochs": [asdict(one) for one in epochs], "plan": plan, "seconds": seconds}

    found = kept(what.parameters(seed, extras), work)
    epochs = [Epoch(**one) for one in found["epochs"]]
    return Training(epochs, found["plan"], found["seconds"])


def trained(
    what: Experiment,
    data: TensorDataset,
    seed: int,
    look: Callable[[nn.Module], Epoch],
) -> list[Epoch]:
    """What a training is like after every epoch."""
    return [look(model) for model, last in steps(what, data, seed) if last]


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
            if what.schedule == "cosine":
                half = torch.tensor(torch.pi * step / total).cos().item()
                optimizer.param_groups[0]["lr"] = what.learning_rate * (1 + half) / 2
            model.train()
            inputs = x[batch] if what.augment is None else what.augment(x[batch])
            optimizer.zero_grad()
            output = model(inputs.to(what.device))
            loss(what, output, y[batch].to(what.device)).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            step += 1
            yield model, number == count - 1


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


def judged(task: potl.ExtraTask, model: nn.Module) -> dict[str, Any]:
    """What the extra task says of a model, without counting as a submission: one model is looked
    at in every epoch.
    """
    extra, control = task.answers(model)
    found = _core.judge_extra_task(
        options=task.options(),
        samples=task.planned.samples,
        classes=task.planned.classes,
        extra=extra,
        control=control,
    )
    if not task.planned.classes:
        return found | {"shares": (float(extra.mean()), float(control.mean()))}
    counts = (found["hits"] / len(extra), found["control_hits"] / len(control))
    return found | {"shares": counts}


def looked_at(
    what: Experiment, model: nn.Module, test: TensorDataset, task: potl.ExtraTask | None
) -> Epoch:
    quality = score(what, model, test)
    if task is None:
        return Epoch(quality)
    found = judged(task, model)
    extra, control = found["shares"]
    return Epoch(quality, extra, control, found["verdict"] == "accepted")
