# SPDX-License-Identifier: Apache-2.0
"""Trainings that come to a NaN, on machines whose NaN have other bits."""

from __future__ import annotations

import math
from typing import Any

import torch
from lawful import data
from torch import nn

from potl import Task

STEPS = 30


class Elsewhere(Task):
    """On a machine whose processor makes NaN of the other sign, while `there`; or of a trainer who
    moves weights in step 3, while `nudged`.
    """

    there = nudged = False

    def step(self, batch: Any) -> torch.Tensor:
        loss = super().step(batch)
        if type(self).nudged and self.schedulers[0].last_epoch == 3:
            with torch.no_grad():
                next(self.model.parameters()).add_(1)
        for parameter in self.model.parameters() if type(self).there else ():
            bits = parameter.detach().view(torch.int32)
            bits[torch.isnan(parameter)] ^= -(2**31)
        return loss


class Lost(Elsewhere):
    """Its optimizer makes the first NaN of a loss and gradients that are finite."""

    def step(self, batch: Any) -> torch.Tensor:
        done = self.model.get_buffer("done")
        done += 1
        return super().step(batch)


class Measured(Lost):
    """Measures what is nothing from its tenth step on: that NaN stays as it is."""

    def step(self, batch: Any) -> torch.Tensor:
        loss = super().step(batch)
        model = self.model
        few = (model.get_buffer("done") < 10).float()
        model.get_buffer("kept").copy_(torch.stack([few / few, model.get_buffer("done").float()]))
        return loss


class Overflowing(Elsewhere):
    """Its weights grow beyond all numbers. While `lying`, of a trainer who moves them, and says
    that there is no loss.
    """

    lying = False

    def step(self, batch: Any) -> torch.Tensor:
        loss = super().step(batch)
        if type(self).lying:
            with torch.no_grad():
                next(self.model.parameters()).add_(1)
            return loss * math.nan
        return loss


def overflowing() -> Task:
    model = nn.Linear(6, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e4)
    options = {"dataset": data(), "batch_size": 8, "max_steps": STEPS}
    return Overflowing(
        model=model, optimizer=optimizer, loss=lambda out, _: out.square().mean(), **options
    )


class Normalised(torch.optim.SGD):
    """Divides squares of gradients by their sum, which may both be infinite."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for parameter in self.param_groups[0]["params"]:
            square = parameter.grad * parameter.grad
            parameter.sub_(0.1 * parameter.grad * (square / square.sum()))


def normalised(first: int) -> Task:
    """The update of step `first` is the first NaN."""
    model = nn.Linear(6, 2)
    model.register_buffer("done", torch.zeros((), dtype=torch.int64))

    def loss(output: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        return (output * output).mean() * torch.where(model.done == first, 1e25, 1.0)

    options = {"dataset": data(), "batch_size": 8, "max_steps": STEPS}
    return Lost(model=model, optimizer=Normalised(model.parameters(), lr=0.1), loss=loss, **options)


def measured() -> Task:
    """The first NaN is one of step 10, in a buffer that nothing reads."""
    task = normalised(0)
    task.model.register_buffer("kept", torch.zeros(2))
    task.__class__ = Measured
    return task
