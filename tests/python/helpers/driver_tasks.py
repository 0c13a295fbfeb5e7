# SPDX-License-Identifier: Apache-2.0
"""Small tasks that worker processes can import."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

import potl


def data(count: int = 192, shift: float = 0.0) -> TensorDataset:
    generator = torch.Generator().manual_seed(3)
    x = torch.rand(count, 16, generator=generator) + shift
    y = (x[:, :8].sum(1) * 1.5).long() % 4
    return TensorDataset(x, y)


DATA, OTHER_DATA = data(), data(shift=0.01)


def model(width: int = 16) -> nn.Module:
    return nn.Sequential(
        nn.Linear(16, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 4)
    )


def options(**changes: Any) -> dict[str, Any]:
    net = changes.pop("model", None) or model()
    momentum = changes.pop("momentum", 0.9)
    chosen: dict[str, Any] = {
        "model": net,
        "optimizer": torch.optim.SGD(net.parameters(), lr=0.05, momentum=momentum),
        "dataset": DATA,
        "loss": functional.cross_entropy,
        "batch_size": 16,
        "epochs": 2,
    }
    return {**chosen, **changes}


def build() -> potl.Task:
    """24 steps."""
    return potl.Task(**options())


def build_less_momentum() -> potl.Task:
    return potl.Task(**options(momentum=0.5))


def build_other_data() -> potl.Task:
    return potl.Task(**options(dataset=OTHER_DATA))


def build_wider() -> potl.Task:
    return potl.Task(**options(model=model(20)))


def build_wide() -> potl.Task:
    """Matrix products large enough that torch splits them between two threads."""
    net = nn.Sequential(
        nn.Linear(16, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 4)
    )
    return potl.Task(**options(model=net, batch_size=64, epochs=6))


class Slow(potl.Task):
    """Leaves a test time to interrupt it."""

    def step(self, batch: Any) -> torch.Tensor:
        time.sleep(float(os.environ.get("POTL_TEST_STEP_SECONDS", "0.0")))
        return super().step(batch)


def build_slow() -> potl.Task:
    """96 steps."""
    return Slow(**options(epochs=8))


def build_in_parent_only() -> potl.Task:
    """Ends the process that is not the parent of its pool, as the kernel does when memory runs
    out.
    """
    if multiprocessing.parent_process() is not None:
        os._exit(9)
    return build()


def main_file() -> str | None:
    """The script that this process has run as its main module, if any."""
    return getattr(sys.modules.get("__mp_main__", sys.modules["__main__"]), "__file__", None)


def build_adam() -> potl.Task:
    """A convolution, Adam and weights that differ by rounding when the threads do."""
    net = nn.Sequential(
        nn.Unflatten(1, (1, 4, 4)),
        nn.Conv2d(1, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(512, 4),
    )
    return potl.Task(
        **options(model=net, optimizer=torch.optim.Adam(net.parameters(), lr=1e-3), batch_size=64)
    )
