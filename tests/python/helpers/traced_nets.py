# SPDX-License-Identifier: Apache-2.0
"""Trainings whose steps are traced, as functions and as a program: prints the root of a step's
operator trace.

    python traced_nets.py NAME [--step 2] [--arithmetic ord32] [--threads 1]
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
import zoo
from torch import nn
from torch.utils.data import TensorDataset

import potl
from potl._arithmetic import _rounded_steps
from potl._dispute._operators import ValueTrace
from potl._dispute._outline import StateOutline
from potl._dispute._values import trace_values

SEED = 7


@functools.cache
def small_images() -> TensorDataset:
    """Digits of 8 x 8 with three channels."""
    x, y = zoo.digits().tensors
    return TensorDataset(x.expand(-1, 3, -1, -1).contiguous(), y)


def task(net: nn.Module, data: TensorDataset, batch: int, optimizer: Any, **more: Any) -> potl.Task:
    loss = more.pop("loss", F.cross_entropy)
    return potl.Task(
        model=net, optimizer=optimizer, dataset=data, loss=loss, batch_size=batch, epochs=1, **more
    )


def sgd(net: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)


def adamw(net: nn.Module) -> torch.optim.AdamW:
    return torch.optim.AdamW(net.parameters(), lr=1e-3)


def mlp() -> potl.Task:
    net = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 48), nn.ReLU(), nn.Dropout(0.2), nn.Linear(48, 10)
    )
    return task(net, zoo.digits(), 32, sgd(net))


def mlp_adamw() -> potl.Task:
    """Also with micro-batches, clipping and a schedule."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 48), nn.ReLU(inplace=True), nn.Linear(48, 10))
    optimizer = adamw(net)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 50)
    more = {"accumulate": 2, "grad_clip": 1.0, "scheduler": schedule}
    return task(net, zoo.digits(), 32, optimizer, **more)


def resnet20() -> potl.Task:
    net = zoo.Images([(3, 16), (3, 32), (3, 64)], 16, False)
    return task(net, small_images(), 8, sgd(net))


def gpt() -> potl.Task:
    net = zoo.GPT()
    return task(net, zoo.next_data(32), 4, adamw(net), grad_clip=1.0, loss=zoo.next_character)


NETS: dict[str, Callable[[], potl.Task]] = {
    "mlp": mlp,
    "mlp_adamw": mlp_adamw,
    "resnet20": resnet20,
    "gpt": gpt,
}


@contextmanager
def before_step(
    build: Callable[[], potl.Task], step: int, arithmetic: str = "ord32"
) -> Iterator[tuple[potl.Session, Any]]:
    """A session in the state before a step, and the step's batch."""
    with potl.Session.open(build, seed=SEED, arithmetic=arithmetic) as session, session.active():
        for at, _, batch in session.batches(1, step):
            if at == step:
                yield session, batch
            else:
                session.run_step(at, batch)


def traced(build: Callable[[], potl.Task], step: int = 2, arithmetic: str = "ord32") -> ValueTrace:
    """The operators of a step and what they returned."""
    with before_step(build, step, arithmetic) as (session, batch):
        rounding = _rounded_steps.Trainer() if arithmetic == _rounded_steps.LOG64 else None
        return trace_values(session, step, batch, rounding=rounding)


def outline(build: Callable[[], potl.Task], step: int) -> StateOutline:
    """The state before a step."""
    with before_step(build, step) as (session, _):
        return StateOutline.of(session.capture())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--step", type=int, default=2)
    parser.add_argument("--arithmetic", default="ord32")
    parser.add_argument("--threads", type=int, default=1)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    print(traced(NETS[chosen.name], chosen.step, chosen.arithmetic).root.hex())


if __name__ == "__main__":
    main()
