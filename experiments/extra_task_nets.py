# SPDX-License-Identifier: Apache-2.0
"""Nets of the extra task's experiments: small enough for one core, and the published sizes.

Images come in as bytes and are normalised inside, texts as padded token ids, so that a model is
asked about the extra samples without a transform.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

PADDING = 0
CHARACTERS = 96  # of the language model's alphabet at most


def small_net(width: int = 16, dropout: float = 0.0) -> nn.Module:
    """Digits: two convolutions and two layers, 70,000 parameters with `width` 16."""
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(32 * width, 8 * width),
        nn.ReLU(),
        nn.Linear(8 * width, 10),
    )


class Bytes(nn.Module):
    """Bytes to numbers of mean 0 and deviation 1, roughly, in the layout convolutions like."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        values = images.float().sub(120.0).div(64.0)
        return values.contiguous(memory_format=torch.channels_last)


def channels_last(net: nn.Module) -> nn.Module:
    """The net with its weights in the layout of `Bytes`."""
    return net.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


class Residual(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, out, 3, stride, 1, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(),
            nn.Conv2d(out, out, 3, 1, 1, bias=False),
            nn.BatchNorm2d(out),
        )
        self.around: nn.Module = nn.Identity()
        if stride != 1 or channels != out:
            self.around = nn.Sequential(
                nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out)
            )

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.body(values) + self.around(values))


def resnet(blocks: tuple[int, ...], widths: tuple[int, ...], stem_stride: int) -> nn.Module:
    """CIFAR's residual nets; (3, 4, 6, 3) blocks of 64 to 512 channels are ResNet-34."""
    layers: list[nn.Module] = [
        Bytes(),
        nn.Conv2d(3, widths[0], 3, stem_stride, 1, bias=False),
        nn.BatchNorm2d(widths[0]),
        nn.ReLU(),
    ]
    channels = widths[0]
    for stage, (count, width) in enumerate(zip(blocks, widths, strict=True)):
        for block in range(count):
            layers.append(Residual(channels, width, 2 if stage and not block else 1))
            channels = width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10)]
    return channels_last(nn.Sequential(*layers))


def vgg(plan: tuple[int, ...], hidden: int) -> nn.Module:
    """Convolutions with pooling where the plan has 0; five poolings and VGG-11's widths are it."""
    layers: list[nn.Module] = [Bytes()]
    channels = 3
    for width in plan:
        if width == 0:
            layers.append(nn.MaxPool2d(2))
            continue
        layers += [nn.Conv2d(channels, width, 3, 1, 1), nn.BatchNorm2d(width), nn.ReLU()]
        channels = width
    layers += [nn.Flatten(), nn.LazyLinear(hidden), nn.ReLU(), nn.Linear(hidden, 10)]
    net = nn.Sequential(*layers)
    net.eval()
    with torch.no_grad():
        net(torch.zeros(1, 3, 32, 32, dtype=torch.uint8))
    return channels_last(net)


def embedding(words: int, width: int) -> nn.Embedding:
    """Smaller at the start than torch's, whose random words would be all that a text is."""
    made = nn.Embedding(words, width, padding_idx=PADDING)
    with torch.no_grad():
        made.weight.mul_(0.1)
    return made


class TextCnn(nn.Module):
    """Convolutions of 3, 4 and 5 words, their maxima, one layer (Kim 2014)."""

    def __init__(self, words: int, classes: int, width: int) -> None:
        super().__init__()
        self.embedding = embedding(words, width)
        self.convolutions = nn.ModuleList(nn.Conv1d(width, width, reach) for reach in (3, 4, 5))
        self.drop = nn.Dropout(0.5)
        self.last = nn.Linear(3 * width, classes)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        words = self.embedding(tokens).transpose(1, 2)
        found = [one(words).amax(2).relu() for one in self.convolutions]
        answer: torch.Tensor = self.last(self.drop(torch.cat(found, 1)))
        return answer


class Attention(nn.Module):
    """A bidirectional LSTM whose states are weighed by attention (Zhou et al. 2016); `dropped` is
    the share of the words' numbers that is left out in training, `dropped_last` that of the last
    layer's.
    """

    def __init__(
        self,
        words: int,
        classes: int,
        width: int,
        dropped: float = 0.5,
        dropped_last: float = 0.5,
    ) -> None:
        super().__init__()
        self.drop_words = nn.Dropout(dropped)
        self.embedding = embedding(words, width)
        self.states = nn.LSTM(width, width, batch_first=True, bidirectional=True)
        self.weight = nn.Linear(2 * width, 1, bias=False)
        self.drop = nn.Dropout(dropped_last)
        self.last = nn.Linear(2 * width, classes)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        states, _ = self.states(self.drop_words(self.embedding(tokens)))
        scores = self.weight(states.tanh()).squeeze(2)
        scores = scores.masked_fill(tokens == PADDING, -1e9).softmax(1)
        summed = (scores.unsqueeze(2) * states).sum(1).tanh()
        answer: torch.Tensor = self.last(self.drop(summed))
        return answer


class Autoencoder(nn.Module):
    """Grey images of 32 x 32 through so many numbers, and a hidden layer after them or none."""

    def __init__(self, numbers: int = 128, hidden: int = 0) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, 4, 4),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(1024, numbers),
            *([nn.Linear(numbers, hidden), nn.ReLU()] if hidden else []),
            nn.Linear(hidden or numbers, 1024),
            nn.Unflatten(1, (16, 8, 8)),
            nn.ReLU(),
            nn.ConvTranspose2d(16, 1, 4, 4),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.layers(images)
        return answer


class CharacterModel(nn.Module):
    """A recurrent language model: scores of the next character at every place."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(CHARACTERS, width)
        self.states = nn.GRU(width, width, batch_first=True)
        self.last = nn.Linear(width, CHARACTERS)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.last(self.states(self.embedding(tokens))[0])
        return answer
