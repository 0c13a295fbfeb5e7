# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/experiments/reach.md, what `reach` lets pass: how far true segments of
trainings lie from what is usual in them, and how many false transitions each forgery of the
catalogue has within and beyond some values of it.

scripts/experiment reach_attacks
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import lr_scheduler

import potl
from potl import _core
from potl._attacks import Scene, _tasks, catalogue

LIMITS = (5, 10, 20, 50, 100)
EPOCHS, BATCH = 20, 32


def _net(kind: str) -> nn.Module:
    if kind == "conv":
        return _tasks.convolutional()
    if kind == "deep":
        layers: list[nn.Module] = [nn.Linear(64, 48)]
        for _ in range(4):
            layers += [nn.ReLU(), nn.LayerNorm(48), nn.Dropout(0.1), nn.Linear(48, 48)]
        return nn.Sequential(*layers, nn.ReLU(), nn.Linear(48, 10))
    if kind == "embedded":
        return _Embedded()
    return _tasks.perceptron(norm=kind == "norm")


class _Embedded(nn.Module):
    """Pixels as words of a vocabulary, attention over them."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(400, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.out = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = torch.arange(64) // 3 * 17
        out: torch.Tensor = self.out(self.layer(self.words((x * 16).long() + places)).mean(1))
        return out


_OPTIMIZERS: dict[str, Callable[[nn.Module], torch.optim.Optimizer]] = {
    "SGD": lambda m: torch.optim.SGD(m.parameters(), lr=0.1),
    "momentum": lambda m: torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4),
    "Adam": lambda m: torch.optim.Adam(m.parameters(), lr=3e-3),
    "AdamW": lambda m: torch.optim.AdamW(m.parameters(), lr=3e-3, betas=(0.9, 0.95)),
    "RMSprop": lambda m: torch.optim.RMSprop(m.parameters(), lr=1e-3, momentum=0.9),
    "Adagrad": lambda m: torch.optim.Adagrad(m.parameters(), lr=1e-2),
}


def _schedule(kind: str, optimizer: torch.optim.Optimizer, steps: int) -> object:
    rate = optimizer.param_groups[0]["lr"]
    if kind == "one cycle":
        cycles = bool(optimizer.defaults.get("momentum") or optimizer.defaults.get("betas"))
        return lr_scheduler.OneCycleLR(
            optimizer, rate * 2, total_steps=steps, cycle_momentum=cycles
        )
    if kind == "step decay":
        return lr_scheduler.MultiStepLR(optimizer, [steps // 2, 3 * steps // 4], 0.1)
    if kind == "warm-up, cosine":
        warm = steps // 20
        return lr_scheduler.SequentialLR(
            optimizer,
            [
                lr_scheduler.LinearLR(optimizer, 0.01, total_iters=warm),
                lr_scheduler.CosineAnnealingLR(optimizer, steps - warm),
            ],
            [warm],
        )
    return None


def honest_task(net: str, optimizer: str, schedule: str) -> Callable[[], potl.Task]:
    def build() -> potl.Task:
        model = _net(net)
        made = _OPTIMIZERS[optimizer](model)
        samples = _tasks.SMALL * 2
        scheduler = _schedule(schedule, made, EPOCHS * samples // BATCH)
        return potl.Task(
            model=model,
            optimizer=made,
            dataset=_tasks.digits(samples, image=net == "conv"),
            loss=F.cross_entropy,
            batch_size=BATCH,
            epochs=EPOCHS,
            **({} if scheduler is None else {"scheduler": scheduler}),
        )

    return build


def ratios(
    directory: Path, build: Callable[[], potl.Task], seed: int, every: int, *, first_alone: bool
) -> list[_core.ScreenedSegment]:
    shutil.rmtree(directory, ignore_errors=True)
    job = potl.Job.create(build, seed=seed, checkpoint_every=every, arithmetic="stock", check=False)
    run = potl.record(build, directory, job=job, key=directory.parent / "trainer.pem")
    evidence = _core.Evidence.open(str(directory), job=job.core, commitment=str(run.commit()))
    return _core.screen_reach(evidence, first_alone=first_alone)


def row(name: str, values: list[float]) -> str:
    counts = " | ".join(f"{sum(not v <= k for v in values)}" for k in LIMITS)
    unknown = any(map(math.isnan, values))
    largest = "no number" if unknown else f"{max(values):.3g}"
    return f"| {name} | {len(values)} | {largest} | {counts} |"


def head(first: str, second: str) -> None:
    print(f"\n| {first} | {second} | largest | " + " | ".join(f"> {k}" for k in LIMITS) + " |")
    print("|---|---|---|" + "---|" * len(LIMITS))


def honest(folder: Path, every: int, *, first_alone: bool) -> None:
    head("honest training", "stretches")
    for net in ("plain", "norm", "conv", "deep", "embedded"):
        for optimizer in _OPTIMIZERS:
            for schedule in ("constant", "one cycle", "step decay", "warm-up, cosine"):
                if net in ("plain", "conv") and schedule != "constant":
                    continue
                found = ratios(
                    folder / "run",
                    honest_task(net, optimizer, schedule),
                    7,
                    every,
                    first_alone=first_alone,
                )
                values = [one["ratio"] for one in found]
                worst = max(found, key=lambda one: one["ratio"])
                print(
                    row(f"{net}, {optimizer}, {schedule}", values),
                    f"<!-- {worst['tensor']} at {worst['end']} -->",
                    flush=True,
                )


def forged(folder: Path) -> None:
    head("forgery", "stretches")
    scenes: dict[str, Scene] = {}
    for attack in catalogue():
        if attack.rule == "agreed.replayable":
            continue
        if attack.task not in scenes:
            build = getattr(_tasks, attack.task)
            scenes[attack.task] = Scene(folder / attack.task, build, checkpoint_every=2, samples=24)
        scene = scenes[attack.task]
        try:
            forgery = attack.make(scene)
            evidence = _core.Evidence.open(
                str(forgery.run),
                job=(forgery.job or scene.job).core,
                commitment=forgery.commitment,
            )
            values = [one["ratio"] for one in _core.screen_reach(evidence)]
        except potl.PotlError as error:
            print(f"<!-- {attack.id} {attack.name}: {error} -->")
            continue
        if values:
            print(row(f"{attack.id} {attack.name}", values), flush=True)


def main() -> None:
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(prefix="potl-reach-"))
    try:
        honest(folder, 4, first_alone=False)
        # Few stored states, of which the first stretch alone is the measure.
        honest(folder, 32, first_alone=True)
        forged(folder)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
