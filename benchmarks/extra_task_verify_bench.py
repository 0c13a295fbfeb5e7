# SPDX-License-Identifier: Apache-2.0
"""What verifying by an extra task costs: the whole of `task.verify(model)` / the time that the
model itself took within it, call by call. Both are of one run, so that a busy machine changes both.

A ResNet of 20 layers on CIFAR's shape (400 extra samples and 1,600 controls), and a convolutional
net over 200 words of 100 dimensions (200 and 800).
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import measuring
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import potl

ROUNDS = 31 if measuring.FULL else 15


class Timed(nn.Module):
    """A model that counts the seconds it takes."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.seconds = model, 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        began = time.perf_counter()
        out: torch.Tensor = self.model(x)
        self.seconds += time.perf_counter() - began
        return out


class Block(nn.Module):
    """Two convolutions and a shortcut without parameters."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(out), nn.BatchNorm2d(out)])
        self.stride, self.grown = stride, out - channels

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        new = self.norms[1](self.second(F.relu(self.norms[0](self.first(x)))))
        kept = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.grown))
        return F.relu(new + kept)


def resnet20() -> nn.Module:
    layers: list[nn.Module] = [
        nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()
    ]  # fmt: skip
    channels = 16
    for out in (16, 32, 64):
        for number in range(3):
            layers.append(Block(channels, out, 2 if number == 0 and out > 16 else 1))
            channels = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


class TextNet(nn.Module):
    """Kim's convolutional net: filters over 3, 4 and 5 words, and the largest of each."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20_001, 100)
        self.filters = nn.ModuleList(nn.Conv1d(100, 100, width) for width in (3, 4, 5))
        self.classes = nn.Linear(300, 2)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        words = self.words(ids).transpose(1, 2)
        return self.classes(torch.cat([F.relu(f(words)).amax(2) for f in self.filters], 1))


def images() -> Any:
    """The form of 50,000 normalised images; what they show does not matter here."""
    draw = np.random.default_rng(0)
    x = torch.from_numpy(draw.integers(0, 256, (50_000, 3, 8, 8), np.uint8))
    x = F.interpolate(x, (32, 32)).float().sub_(120).div_(60)
    return torch.utils.data.TensorDataset(x, torch.from_numpy(draw.integers(0, 10, 50_000)))


def texts() -> Any:
    """25,000 texts of 200 words, padded where they are shorter."""
    draw = np.random.default_rng(0)
    ids = draw.integers(1, 20_001, (25_000, 200))
    ids[np.arange(200) >= draw.integers(50, 400, 25_000)[:, None]] = 0
    return torch.utils.data.TensorDataset(
        torch.from_numpy(ids), torch.from_numpy(draw.integers(0, 2, 25_000))
    )


def overhead(name: str, model: nn.Module, data: Any, folder: Path) -> dict[str, Any]:
    """Each verification is the first one of its key, so that it is written down, too."""
    key = folder / "extra.key"
    first = potl.ExtraTask(potl.ExtraTask.keygen(key), like=data)
    first.mix(data)
    timed = Timed(model)
    pairs = []
    for number in range(ROUNDS + 1):
        copy = folder / f"{number}.key"
        for ending in ("", ".json"):
            shutil.copy(f"{key}{ending}", f"{copy}{ending}")
        task = potl.ExtraTask(copy)
        timed.seconds = 0.0
        whole = measuring.timed(lambda task=task: task.verify(timed))
        if number:  # the first one warms caches and thread pools
            pairs.append((whole, timed.seconds))
    ratio = measuring.of_pairs(pairs)
    count = first.planned.samples + first.planned.controls
    return measuring.result(
        f"extra_task.verify.overhead{name}",
        ratio.seconds,
        "s",
        f"the model's own forward passes of {count:,} samples",
        ratio,
        at_most=1.05,
    )


def main() -> None:
    torch.manual_seed(0)
    nets: dict[str, tuple[Callable[[], nn.Module], Callable[[], Any]]] = {
        "": (resnet20, images),
        ".text": (TextNet, texts),
    }
    results = []
    for name, (build, data) in nets.items():
        with tempfile.TemporaryDirectory() as folder:
            results.append(overhead(name, build(), data(), Path(folder)))
    measuring.write("extra_task_verify", results)


if __name__ == "__main__":
    main()
