# SPDX-License-Identifier: Apache-2.0
"""Gradient scalers of a step of the user's own."""

import pytest
import tasks
import torch

from potl import Task
from potl._dispute._check import check


def new():
    return torch.amp.GradScaler("cpu", init_scale=8.0)


OUTSIDE = new()


class Scaling(Task):
    """The loop of torch's documentation."""

    def scale(self):
        return self.scaler

    def step(self, batch):
        (optimizer,) = self.optimizers
        optimizer.zero_grad()
        loss = self.compute_loss(batch)
        self.scale().scale(loss).backward()
        self.scale().step(optimizer)
        self.scale().update()
        return loss.detach()


class OfModule(Scaling):
    def scale(self):
        return OUTSIDE


class OfTask(Scaling):
    def scale(self):
        self.kept = getattr(self, "kept", None) or new()
        return self.kept


class Halving(torch.amp.GradScaler):
    """Updates in a way of its own, every tenth step."""

    steps = 0

    def update(self, new_scale=None):
        self.steps += 1
        if self.steps % 10 == 0:
            self._scale.mul_(0.5)
        for kept in self._per_optimizer_states.values():
            kept["stage"] = torch.amp.grad_scaler.OptState.READY

    def state_dict(self):
        return {**super().state_dict(), "steps": self.steps}


HALVING = Halving("cpu", init_scale=8.0)


class OfSubclass(Scaling):
    def scale(self):
        return HALVING


class Holder:
    def __init__(self):
        self.scaler = new()
        self.state_dict, self.load_state_dict = self.scaler.state_dict, self.scaler.load_state_dict


class OfState(Scaling):
    def scale(self):
        return self.state["amp"].scaler


def build(kind, **options):
    built = tasks.plain()
    return kind(
        model=built.model, optimizer=built.optimizers[0], dataset=built.dataset, loss=built.loss,
        batch_size=12, epochs=3, **options,
    )  # fmt: skip


@pytest.mark.parametrize("kind", [OfModule, OfTask, OfSubclass])
def test_one_that_no_checkpoint_holds_is_refused_with_where_to_pass_it(kind):
    (problem,) = check(lambda: build(kind))
    assert "a gradient scaler" in problem.what
    assert "scaler=" in problem.remedy


class Clipping(Scaling):
    def step(self, batch):
        (optimizer,) = self.optimizers
        optimizer.zero_grad()
        loss = self.compute_loss(batch)
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)
        self.scaler.step(optimizer)
        self.scaler.update()
        return loss.detach()


def clipping():
    """Its first scales are too large, and clipping makes NaNs of gradients that overflowed."""
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40)
    return build(Clipping, autocast=torch.float16, scaler=scaler)


@pytest.mark.parametrize("make", [
    clipping,
    lambda: build(Scaling, scaler=new()),
    lambda: build(OfState, state={"amp": Holder()}),
])  # fmt: skip
def test_one_that_a_checkpoint_holds_is_not(make):
    methods = dict(vars(torch.amp.GradScaler))
    assert check(make) == []
    assert vars(torch.amp.GradScaler) == methods
