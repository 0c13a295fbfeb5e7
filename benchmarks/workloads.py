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


class Inverted(nn.Module):
    """The block of MobileNetV2: wider, a depthwise layer, and narrow again."""

    def __init__(self, inputs: int, outputs: int, size: int, stride: int) -> None:
        super().__init__()
        wide = 6 * inputs
        self.body = nn.Sequential(
            nn.Conv2d(inputs, wide, 1, bias=False),
            nn.BatchNorm2d(wide),
            nn.ReLU6(),
            nn.Conv2d(wide, wide, size, stride, size // 2, groups=wide, bias=False),
            nn.BatchNorm2d(wide),
            nn.ReLU6(),
            nn.Conv2d(wide, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.body(x)
        return x + y if self.adds else y


def mobilenet() -> nn.Module:
    """A small net of depthwise layers, of 3x3 and 5x5, for images of about 96x96."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 16, 3, 2, 1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU6(),
    ]
    width = 16
    for outputs, size in ((24, 3), (40, 5), (80, 5)):
        layers += [Inverted(width, outputs, size, 2), Inverted(outputs, outputs, size, 1)]
        width = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))


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


def resnet20_guarded() -> potl.Task:
    """ResNet-20 as a worker trains it: clipped, for 160 steps."""
    task = resnet20_task(epochs=8)
    task.grad_clip = 1.0
    return task


@functools.cache
def texts(length: int = 64, count: int = 512) -> TensorDataset:
    """Random characters, and those that follow each of them."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(96, (count, length + 1), generator=generator)
    return TensorDataset(x[:, :-1].contiguous(), x[:, 1:].contiguous())


def next_character(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Mean loss over all characters."""
    return functional.cross_entropy(logits.flatten(0, 1), target.flatten())


def gpt_guarded() -> potl.Task:
    """A GPT of 4 layers of width 256, batches of 8 x 64 characters, clipped, for 160 steps."""
    import sys
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "python" / "helpers"))
    import zoo

    model = zoo.GPT(layers=4, width=256, length=64)
    return potl.Task(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        dataset=texts(),
        loss=next_character,
        batch_size=8,
        epochs=3,
        max_steps=160,
        grad_clip=1.0,
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


class Residual(nn.Module):
    """The basic block of the ImageNet ResNets."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.body(x) + self.shortcut(x))


def resnet18(classes: int = 1000) -> nn.Module:
    """ResNet-18 for images of 224x224: 11.7 million parameters."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]
    width = 64
    for outputs in (64, 128, 256, 512):
        layers += [
            Residual(width, outputs, 1 if outputs == width else 2),
            Residual(outputs, outputs, 1),
        ]
        width = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))


@functools.cache
def large_images(count: int = 128) -> TensorDataset:
    """Random images of 224x224."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(count, 3, 224, 224, generator=generator)
    return TensorDataset(x, torch.randint(1000, (count,), generator=generator))


def resnet18_task(epochs: int = 1) -> potl.Task:
    """ResNet-18, batch 16, SGD with momentum."""
    model = resnet18()
    return potl.Task(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4),
        dataset=large_images(),
        loss=functional.cross_entropy,
        batch_size=16,
        epochs=epochs,
    )


class Adapted(nn.Module):
    """A linear layer that is not trained, and beside it two narrow ones that are."""

    def __init__(self, inputs: int, outputs: int, rank: int = 8) -> None:
        super().__init__()
        self.whole = nn.Linear(inputs, outputs).requires_grad_(False)
        self.down = nn.Linear(inputs, rank, bias=False)
        self.up = nn.Linear(rank, outputs, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.whole(x) + self.up(self.down(x))


class AdaptedLayer(nn.Module):
    """A layer of GPT-2 with a low-rank adapter at its attention, as PEFT places it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Adapted(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        for frozen in (self.norm1, self.norm2, self.out, self.widen, self.narrow):
            frozen.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.attention(self.norm1(x)).view(batch, length, 3, self.heads, -1).unbind(2)
        mixed = functional.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True
        )
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(functional.gelu(self.widen(self.norm2(x)), approximate="tanh"))


class AdaptedGPT2(nn.Module):
    """A net of GPT-2's sizes, 124 million parameters, of which only 0.3 million are trained."""

    def __init__(self, vocabulary: int = 50257, width: int = 768, layers: int = 12) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width).requires_grad_(False)
        self.places = nn.Embedding(1024, width).requires_grad_(False)
        self.layers = nn.Sequential(*(AdaptedLayer(width, 12) for _ in range(layers)))
        self.norm = nn.LayerNorm(width).requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.tokens(x) + self.places.weight[: x.shape[1]]
        logits = self.norm(self.layers(y)) @ self.tokens.weight.t()
        return logits.transpose(1, 2)


@functools.cache
def tokens(count: int = 512, length: int = 64) -> TensorDataset:
    """Random tokens and those that follow."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(50257, (count, length + 1), generator=generator)
    return TensorDataset(x[:, :-1].contiguous(), x[:, 1:].contiguous())


def lora_task(epochs: int = 1) -> potl.Task:
    """Low-rank adapters of a GPT-2, two sequences of 64 tokens a step, AdamW."""
    model = AdaptedGPT2()
    return potl.Task(
        model=model,
        optimizer=torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3),
        dataset=tokens(),
        loss=functional.cross_entropy,
        batch_size=2,
        epochs=epochs,
    )
