# SPDX-License-Identifier: Apache-2.0
"""Of which tasks no step divides by what the state keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from lawful import Steps, net, sgd, task
from torch import nn
from torch.optim import lr_scheduler as schedules, swa_utils

import potl
from potl import Task
from potl._job._session import Session
from potl._verify._schema import Schema
from potl._verify._workload import Workload


def with_model(change: Callable[[nn.Module], Any]) -> Callable[[], Task]:
    def build() -> Task:
        model = net()
        change(model)
        return task(model)

    return build


def with_optimizer(make: Callable[[Any], Any]) -> Callable[[], Task]:
    def build() -> Task:
        model = net()
        return task(model, make(model.parameters()))

    return build


def with_options(**options: Any) -> Callable[[], Task]:
    return lambda: task(net(), **options)


def with_scheduler(make: Callable[[Any], Any]) -> Callable[[], Task]:
    def build() -> Task:
        model = net()
        optimizer = sgd(model)
        return task(model, optimizer, scheduler=make(optimizer))

    return build


def averaged(make: Callable[[nn.Module], Any]) -> Callable[[], Task]:
    def build() -> Task:
        model = net()
        return task(model, ema=make(model))

    return build


class Own(torch.optim.SGD):
    """Might do anything."""


class OwnAverage(swa_utils.AveragedModel):
    """Might do anything, too."""


class OwnStep(Task):
    def update(self, loss: torch.Tensor) -> None:
        super().update(loss)


class Extra(nn.Linear):
    def get_extra_state(self) -> Any:
        return {}

    def set_extra_state(self, state: Any) -> None:
        pass


class Kept:
    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


def own_step() -> Task:
    model = net()
    made = task(model)
    return OwnStep(
        model=model,
        optimizer=made.optimizers,
        dataset=made.dataset,
        loss=made.loss,
        batch_size=8,
        epochs=3,
    )


def hooked(parameters: Any) -> torch.optim.Optimizer:
    made = torch.optim.SGD(parameters, lr=0.1)
    made.register_step_post_hook(lambda *given: None)
    return made


def keeping(parameters: Any) -> torch.optim.Optimizer:
    """Divides by means of squares, before torch's SGD does its step."""
    made = torch.optim.SGD(parameters, lr=0.1)

    def scale(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        for one in optimizer.param_groups[0]["params"]:
            mean = optimizer.state[one].setdefault("squares", torch.zeros_like(one))
            one.grad.div_(mean.mul_(0.9).addcmul_(one.grad, one.grad, value=0.1).sqrt() + 1e-8)

    made.register_step_pre_hook(scale)
    return made


def frozen(model: nn.Module) -> None:
    """As a model's own code may move it."""
    model.sums = nn.Parameter(torch.zeros(2), requires_grad=False)


LINEAR = {
    "momentum": with_model(lambda model: None),
    "plain": with_optimizer(lambda p: torch.optim.SGD(p, lr=0.1)),
    "nesterov": with_optimizer(
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1)
    ),
    "clipped": with_options(grad_clip=1.0),
    "integers": with_model(lambda model: model.register_buffer("calls", torch.zeros(2).int())),
    "a rate that falls": with_scheduler(lambda one: schedules.ExponentialLR(one, 0.9)),
    "an average": averaged(swa_utils.AveragedModel),
}
OTHERS = {
    "Adam": with_optimizer(torch.optim.Adam),
    "an own optimizer": with_optimizer(lambda p: Own(p, lr=0.1)),
    "a hook": with_optimizer(hooked),
    "a hook that keeps something": with_optimizer(keeping),
    "a frozen parameter": with_model(frozen),
    "a parameter of no optimizer": with_optimizer(lambda p: torch.optim.SGD([*p][1:], lr=0.1)),
    "a buffer": with_model(lambda model: model.register_buffer("sums", torch.zeros(2))),
    "a complex buffer": with_model(
        lambda model: model.register_buffer("sums", torch.zeros(2, dtype=torch.cfloat))
    ),
    "extra state": with_model(lambda model: model.append(Extra(2, 2))),
    "an own average": averaged(OwnAverage),
    "own state": with_options(state={"kept": Kept()}),
    "an own step": own_step,
    "a scaler": with_options(scaler=torch.amp.GradScaler("cpu")),
    "momentum in a cycle": with_scheduler(
        lambda one: schedules.OneCycleLR(one, 0.1, total_steps=9)
    ),
}


@pytest.mark.parametrize(
    ("build", "linear"),
    [*((one, True) for one in LINEAR.values()), *((one, False) for one in OTHERS.values())],
    ids=[*LINEAR, *OTHERS],
)
def test_what_divides_is_known_by_the_build(build: Callable[[], Task], linear: bool) -> None:
    job = potl.Job.create(build, seed=7, checkpoint_every=3, arithmetic="stock", check=False)
    with Session.open(build, seed=7, job=job) as session:
        workload = Workload(session, Schema(session, Steps()), follows=False)
        session.run_step(1, session.sample_ids(1))
        assert workload.is_linear() is linear
