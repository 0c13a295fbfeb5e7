# SPDX-License-Identifier: Apache-2.0
"""Training steps whose products are checked, as a program: writes the witness of a step.

python product_steps.py NAME SEED THREADS PATH
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import zoo
from torch import nn

from potl._spot_check._products import record_products


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(512, 256), nn.ReLU(inplace=True), nn.Linear(256, 10)
    )


def cnn() -> nn.Module:
    """Over images and over channels, with a bias, a stride and groups."""
    return nn.Sequential(
        nn.Conv2d(8, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(inplace=True),
        nn.Conv2d(32, 64, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.Conv2d(64, 80, 3, padding=1, groups=2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(80, 10),
    )


NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (mlp, (128, 8, 8, 8)),
    "cnn": (cnn, (48, 8, 8, 8)),
    "gpt": (lambda: zoo.GPT(layers=2, width=128, length=64), (4, 64)),
}


class Step:
    """A net with its weights and batch, both drawn from the seed."""

    def __init__(self, name: str, seed: int = 0) -> None:
        build, shape = NETS[name]
        torch.manual_seed(seed)
        self.model = build()
        random = torch.Generator().manual_seed(seed + 1000)
        if name == "gpt":
            self.x = torch.randint(96, shape, generator=random)
            self.y = torch.randint(96, shape, generator=random)
        else:
            self.x = torch.randn(shape, generator=random)
            self.y = torch.randint(10, shape[:1], generator=random)

    def gradients(self) -> list[torch.Tensor]:
        torch.manual_seed(7)  # dropout
        self.model.zero_grad(set_to_none=True)
        out = self.model(self.x)
        nn.functional.cross_entropy(out.flatten(0, -2), self.y.flatten()).backward()
        return [one.grad for one in self.model.parameters() if one.grad is not None]

    def witness(self) -> list[torch.Tensor]:
        with record_products() as witness:
            self.gradients()
        return witness.tensors


if __name__ == "__main__":
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for name in NETS:
            witness = [one.numpy() for one in Step(name, int(sys.argv[1])).witness()]
            np.savez(Path(sys.argv[2]) / f"{name}-{threads}.npz", *witness)
