# SPDX-License-Identifier: Apache-2.0
"""What the backdoor is put into: two data sets with a small convolutional net each, and the patch
that triggers it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import extra_task_data as data
import torch
from torch import nn

TARGET = 0  # what the attacker wants of every image that has the patch
Images = tuple[torch.Tensor, torch.Tensor]  # and their labels


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A training that both sides agreed on.

    Attributes:
        title: Its name in texts.
        read: Reads training and test images, about -2 to 2.
        net: Makes the model.
        steps: Steps of the training.
        batch: Images of a step.
        rate: Learning rate, the same for all steps: a rate that falls would weaken what an attacker
            does best, false gradients at the end.
        patch: Edge of the trigger in the lower right corner, in pixels.
        white: Its value.
        momentum: Of the optimizer.
    """

    title: str
    read: Callable[[], tuple[Images, Images]]
    net: Callable[[], nn.Module]
    steps: int
    batch: int
    rate: float
    patch: int
    white: float
    momentum: float = 0.9

    def stamped(self, images: torch.Tensor) -> torch.Tensor:
        """The images with the trigger."""
        out = images.clone()
        out[:, :, -self.patch :, -self.patch :] = self.white
        return out

    def poisoned(self, batch: Images, share: float) -> Images:
        """The first images of a batch with the trigger and the attacker's label."""
        images, labels = batch[0].clone(), batch[1].clone()
        count = round(share * len(images))
        images[:count] = self.stamped(images[:count])
        labels[:count] = TARGET
        return images, labels

    def measured(self, model: nn.Module) -> tuple[float, float]:
        """Accuracy on the test images, and the share of those of other classes that the trigger
        turns into the attacker's."""
        images, labels = self.read()[1]
        others = labels != TARGET
        with torch.no_grad():
            right = model(images).argmax(1) == labels
            turned = model(self.stamped(images[others])).argmax(1) == TARGET
        return right.double().mean().item(), turned.double().mean().item()


@functools.cache
def _digits() -> tuple[Images, Images]:
    training, test = data.digits()
    return training.tensors, test.tensors


@functools.cache
def _cifar() -> tuple[Images, Images]:
    training, test = (((one.tensors[0] - 127.5) / 64, one.tensors[1]) for one in data.cifar())
    return training, test


def _digits_net() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(256, 10)),
    )


def _cifar_net() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 5, stride=2, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(1024, 10)),
    )


SETTINGS = {
    "digits": Setting(
        title="Digits",
        read=_digits,
        net=_digits_net,
        steps=400,
        batch=32,
        rate=0.03,
        patch=2,
        white=1.0,
    ),
    "cifar": Setting(
        title="CIFAR-10",
        read=_cifar,
        net=_cifar_net,
        steps=1000,
        batch=32,
        rate=0.01,
        patch=3,
        white=2.0,
    ),
}
