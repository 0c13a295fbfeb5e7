# SPDX-License-Identifier: Apache-2.0
"""The trainings that the Python benchmarks measure."""

from __future__ import annotations

import functools

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

import potl


class Block(nn.Module):
    """Two 3x3 convolutions with batch norm and the parameter-free shortcut of the CIFAR ResNets."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.stride, self.widening = stride, outputs - inputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        if self.stride != 1 or self.widening:
            x = functional.pad(
                x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.widening)
            )
        return functional.relu(x + y)


def resnet20() -> nn.Module:
    """ResNet-20 for 32x32x3 images: 0.27 million parameters."""
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    width = 16
    for stage, outputs in enumerate((16, 32, 64)):
        for index in range(3):
            layers.append(Block(width, outputs, 2 if stage and not index else 1))
            width = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


@functools.cache
def images(count: int = 2560) -> TensorDataset:
    """Random images: time does not depend on what they show."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(count, 3, 32, 32, generator=generator)
    return TensorDataset(x, torch.randint(10, (count,), generator=generator))


@functools.cache
def digits() -> TensorDataset:
    """scikit-learn's 1,797 digits."""
    from sklearn.datasets import load_digits

    raw = load_digits()
    x = torch.tensor(raw.images, dtype=torch.float32) / 16
    return TensorDataset(x[:, None], torch.tensor(raw.target))


def resnet20_task(epochs: int = 1) -> potl.Task:
    """ResNet-20, batch 128, SGD with momentum."""
    model = resnet20()
    return potl.Task(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4),
        dataset=images(),
        loss=functional.cross_entropy,
        batch_size=128,
        epochs=epochs,
    )


def mlp(width: int = 64) -> nn.Module:
    """Digits to ten classes through two hidden layers."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, 10),
    )


def mlp_task(epochs: int = 1, batch_size: int = 128, width: int = 128) -> potl.Task:
    """A small step with Adam."""
    model = mlp(width)
    return potl.Task(
        model=model,
        optimizer=torch.optim.Adam(model.parameters(), lr=1e-3),
        dataset=digits(),
        loss=functional.cross_entropy,
        batch_size=batch_size,
        epochs=epochs,
    )


def digits_task(epochs: int) -> potl.Task:
    """The small convolutional net on digits that the demo trains; 57 steps an epoch."""
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 10),
    )
    return potl.Task(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
        dataset=digits(),
        loss=functional.cross_entropy,
        batch_size=32,
        epochs=epochs,
    )
