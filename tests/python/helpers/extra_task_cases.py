# SPDX-License-Identifier: Apache-2.0
"""What the tests of the extra task share: real images, a small net, keys that never change."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from sklearn import datasets
from torch import nn
from torch.utils.data import TensorDataset

import potl
from potl import ExtraTask

EPOCHS = 25


# Read once: each reading takes as long as a plan.
_read = functools.cache(datasets.load_digits)


def digits() -> TensorDataset:
    """1,797 real images, 8 x 8, scaled to 0..1."""
    pixels, labels = _read(return_X_y=True)
    images = torch.tensor(pixels / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)
    return TensorDataset(images, torch.tensor(labels))


def net() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(),
        nn.Linear(256, 10),
    )  # fmt: skip


def train(model: nn.Module, data: TensorDataset, epochs: int, seed: int) -> nn.Module:
    x, y = data.tensors
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, fused=True)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for batch in torch.randperm(len(x), generator=generator).split(64):
            optimizer.zero_grad()
            F.cross_entropy(model(x[batch]), y[batch]).backward()
            optimizer.step()
    return model


def trained(data: TensorDataset, epochs: int, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return train(net(), data, epochs, seed)


def recorded(folder: Path, data: Any, epochs: int = 1) -> dict[str, Any]:
    """A run on this data, as arguments of `potl.verify`."""

    def build() -> potl.Task:
        model = net()
        return potl.Task(
            model=model,
            optimizer=torch.optim.Adam(model.parameters(), lr=2e-3, fused=True),
            dataset=data,
            loss=F.cross_entropy,
            batch_size=64,
            epochs=epochs,
        )

    job = potl.Job.create(build, seed=3, checkpoint_every=16)
    run = potl.record(build, folder, job=job, progress=False)
    return {
        "run": folder, "job": job, "commitment": run.commit(), "task": build, "progress": False,
        "ledger": None,
    }  # fmt: skip


def key_of(path: Path) -> Path:
    """A key that is the same in every run, so that nothing here is left to chance."""
    path.write_text(hashlib.sha256(path.name.encode()).hexdigest() + "\n")
    return path


def task_of(folder: Path, name: str = "extra.key", **options: Any) -> ExtraTask:
    return ExtraTask(key_of(folder / name), like=digits(), **options)


def describe(item: Any) -> str:
    """Types, dtypes and shapes of an item."""
    if isinstance(item, dict):
        return str({key: describe(one) for key, one in item.items()})
    if isinstance(item, (list, tuple)):
        return f"{type(item).__name__}{[describe(one) for one in item]}"
    form = getattr(item, "dtype", ""), getattr(item, "shape", getattr(item, "size", ""))
    return f"{type(item).__name__} {form}"
