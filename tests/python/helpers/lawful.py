# SPDX-License-Identifier: Apache-2.0
"""A small recipe with whatever torch offers, for states that are lawful or not."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import lr_scheduler as schedules, swa_utils

from potl import Task

STEPS_PER_EPOCH, EPOCHS = 3, 3
STEPS = STEPS_PER_EPOCH * EPOCHS


@functools.cache
def data() -> torch.utils.data.TensorDataset:
    x = torch.randn(24, 6, generator=torch.Generator().manual_seed(1))
    return torch.utils.data.TensorDataset(x, (x.sum(1) > 0).long())


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 2))


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def task(model: nn.Module, optimizer: Any = None, kind: type[Task] = Task, **options: Any) -> Task:
    optimizer = sgd(model) if optimizer is None else optimizer
    options = {"loss": F.cross_entropy, "batch_size": 8, "epochs": EPOCHS, **options}
    return kind(model=model, optimizer=optimizer, dataset=data(), **options)


class Steps:
    """What `Evidence.steps` says of a training."""

    def __init__(self) -> None:
        self.columns: dict[str, list[Any]] = {"loss": [], "flags": []}

    def steps(self) -> dict[str, list[Any]]:
        return self.columns


SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "LambdaLR": lambda o: schedules.LambdaLR(o, lambda step: 0.9**step),
    "MultiplicativeLR": lambda o: schedules.MultiplicativeLR(o, lambda step: 0.9),
    "StepLR": lambda o: schedules.StepLR(o, 2),
    "MultiStepLR": lambda o: schedules.MultiStepLR(o, [2, 4]),
    "ConstantLR": lambda o: schedules.ConstantLR(o),
    "LinearLR": lambda o: schedules.LinearLR(o),
    "ExponentialLR": lambda o: schedules.ExponentialLR(o, 0.9),
    "PolynomialLR": lambda o: schedules.PolynomialLR(o, total_iters=STEPS),
    "CosineAnnealingLR": lambda o: schedules.CosineAnnealingLR(o, STEPS),
    "CosineAnnealingWarmRestarts": lambda o: schedules.CosineAnnealingWarmRestarts(o, 2),
    "CyclicLR": lambda o: schedules.CyclicLR(o, 1e-3, 0.1, step_size_up=2),
    "OneCycleLR": lambda o: schedules.OneCycleLR(o, 0.1, total_steps=STEPS),
    "SequentialLR": lambda o: schedules.SequentialLR(
        o, [schedules.LinearLR(o), schedules.CosineAnnealingLR(o, STEPS)], [2]
    ),
    "ChainedScheduler": lambda o: schedules.ChainedScheduler(
        [schedules.LinearLR(o), schedules.ExponentialLR(o, 0.9)]
    ),
    "SWALR": lambda o: swa_utils.SWALR(o, swa_lr=0.01, anneal_epochs=3),
    "ReduceLROnPlateau": lambda o: schedules.ReduceLROnPlateau(o, patience=0, threshold=0.5),
    "two, one by metric": lambda o: [
        schedules.ExponentialLR(o, 0.9),
        schedules.ReduceLROnPlateau(o, patience=0, threshold=0.5, cooldown=1),
    ],
}
