# SPDX-License-Identifier: Apache-2.0
"""Small trainings on scikit-learn's digits (1,797 real 8x8 images) for the attacks and the demo."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import Sampler, TensorDataset

from .._task._task import Task

SMALL = 256
"""Samples of the attack tests: 8 steps of 32 an epoch."""


@functools.cache
def digits(samples: int | None = None, *, image: bool = False) -> TensorDataset:
    """The digits, scaled to 0..1: float32 [n, 64] (or [n, 1, 8, 8]) and int64 [n]."""
    from sklearn.datasets import load_digits  # type: ignore[import-untyped]

    pixels, labels = load_digits(return_X_y=True)
    x = torch.tensor(pixels[:samples] / 16.0, dtype=torch.float32)
    y = torch.tensor(labels[:samples], dtype=torch.int64)
    return TensorDataset(x.reshape(-1, 1, 8, 8) if image else x, y)


def perceptron(*, norm: bool = False) -> nn.Sequential:
    """64 - 32 - 10, with or without batch norm."""
    layers: list[nn.Module] = [nn.Linear(64, 32)]
    if norm:
        layers.append(nn.BatchNorm1d(32))
    return nn.Sequential(*layers, nn.ReLU(), nn.Linear(32, 10))


def _classifier(
    model: nn.Module,
    optimizer: torch.optim.Optimizer | list[torch.optim.Optimizer],
    kind: type[Task] = Task,
    sampler: Sampler[int] | None = None,
) -> Task:
    """Six epochs on the small digits."""
    return kind(
        model=model,
        optimizer=optimizer,
        dataset=digits(SMALL),
        loss=F.cross_entropy,
        batch_size=32,
        epochs=6,
        sampler=sampler,
    )


def plain() -> Task:
    """SGD without momentum: the optimizer has no state."""
    model = perceptron()
    return _classifier(model, torch.optim.SGD(model.parameters(), lr=0.05))


def mixed() -> Task:
    """As plain, under bfloat16 autocast."""
    task = plain()
    task.autocast = torch.bfloat16
    return task


class Taught(nn.Module):
    """A classifier with a teacher, which follows it in a moving average."""

    def __init__(self) -> None:
        super().__init__()
        self.student = perceptron()
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)

    @staticmethod
    def follow(average: torch.Tensor, p: torch.Tensor) -> None:
        """One step of the average."""
        average.mul_(0.9).add_(p, alpha=0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            with torch.no_grad():
                pairs = zip(self.teacher.parameters(), self.student.parameters(), strict=True)
                for average, p in pairs:
                    self.follow(average, p)
        out: torch.Tensor = self.student(x)
        return out


def taught(make: Callable[[], Taught] = Taught) -> Task:
    """As mixed, on a net that keeps an average of itself."""
    model = make()
    task = _classifier(model, torch.optim.SGD(model.student.parameters(), lr=0.05))
    task.autocast = torch.bfloat16
    return task


def momentum() -> Task:
    """SGD with momentum and batch norm: optimizer state and buffers."""
    model = perceptron(norm=True)
    return _classifier(model, torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9))


def adam() -> Task:
    """Adam: two moments and a counter per parameter."""
    model = perceptron()
    return _classifier(model, torch.optim.Adam(model.parameters(), lr=2e-3))


def adam_mixed() -> Task:
    """As adam, under bfloat16 autocast."""
    task = adam()
    task.autocast = torch.bfloat16
    return task


def pulsed() -> Task:
    """As adam_mixed, at a rate that is next to 0 in every second step."""
    task = adam_mixed()
    pulses = torch.optim.lr_scheduler.LambdaLR(
        task.optimizers[0], lambda step: 1.0 if step % 2 else 1e-5
    )
    task.schedulers = (pulses,)
    return task


class Turns(Task):
    """Two optimizers that take turns, under bfloat16 autocast."""

    def step(self, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """Trains the layer whose turn it is."""
        for one in self.optimizers:
            one.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(self.model(batch[0]), batch[1])
        loss.backward()  # type: ignore[no-untyped-call]
        turn = self.model.get_buffer("turn")
        turn += 1
        self.optimizers[int(turn) % 2].step()
        return loss.detach()


def turns() -> Task:
    """Each layer has an Adam of its own, which makes every second step."""
    model = perceptron()
    model.register_buffer("turn", torch.zeros((), dtype=torch.int64))
    return _classifier(
        model, [torch.optim.Adam(model[i].parameters(), lr=2e-3) for i in (0, 2)], Turns
    )


class Quantized(nn.Module):
    """A classifier of the nearest codes, which follow what is near them in moving averages. Half of
    them are far from everything.
    """

    codes: torch.Tensor
    sums: torch.Tensor
    used: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.into = nn.Linear(64, 16)
        self.out = nn.Linear(16, 10)
        codes = torch.randn(16, 16) * 0.5
        codes[8:] += 6
        self.register_buffer("codes", codes)
        self.register_buffer("sums", codes.clone())
        self.register_buffer("used", torch.ones(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        at = self.into(x)
        nearest = (at[:, None] - self.codes).square().sum(2).argmin(1)
        found = self.codes[nearest]
        if self.training:
            with torch.no_grad():
                near = F.one_hot(nearest, 16).float()
                self.used.mul_(0.5).add_(near.sum(0), alpha=0.5)
                self.sums.mul_(0.5).add_(near.T @ at, alpha=0.5)
                self.codes.copy_(self.sums / (self.used + 1e-5)[:, None])
        out: torch.Tensor = self.out(at + (found - at).detach())
        return out


def quantized() -> Task:
    """Plain SGD on a net whose codes are buffers."""
    model = Quantized()
    return _classifier(model, torch.optim.SGD(model.parameters(), lr=0.05))


def scaled() -> Task:
    """Plain SGD through a gradient scaler."""
    task = plain()
    task.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    return task


def plateau() -> Task:
    """Plain SGD whose rate follows the loss."""
    task = plain()
    task.schedulers = (torch.optim.lr_scheduler.ReduceLROnPlateau(task.optimizers[0], patience=50),)
    return task


def cycled() -> Task:
    """SGD with rate and momentum in one cycle."""
    task = momentum()
    one = torch.optim.lr_scheduler.OneCycleLR(task.optimizers[0], 0.02, total_steps=task.steps)
    task.schedulers = (one,)
    return task


def convolutional() -> nn.Sequential:
    """The demo's net: two convolutions with batch norm, about 5,000 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, padding=1, stride=2),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 4 * 4, 10),
    )


def demo() -> Task:
    """The demo's training: 11 epochs of 57 steps on all digits."""
    model = convolutional()
    return Task(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9),
        dataset=digits(image=True),
        loss=F.cross_entropy,
        batch_size=32,
        epochs=11,
    )


class WithSpare(nn.Module):
    """A linear classifier in one tensor, whose last row no output depends on."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(65, 10))
        nn.init.uniform_(self.weight, -0.125, 0.125)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight[:64]


class Owned(Task):
    """A step of the user's own, about which nothing is known."""

    def step(self, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """Does what the default does."""
        return super().step(batch)


def owned() -> Task:
    """Plain SGD, by a step of the user's own."""
    model = perceptron()
    return _classifier(model, torch.optim.SGD(model.parameters(), lr=0.05), Owned)


class Curriculum:
    """Which pixels are shown so far: all of them."""

    def __init__(self) -> None:
        self.shown = torch.ones(64)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """As torch's."""
        return {"shown": self.shown}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """As torch's."""
        self.shown.copy_(state["shown"])


class Guided(Task):
    """A classifier of what a curriculum shows."""

    def compute_loss(
        self, batch: tuple[torch.Tensor, torch.Tensor], reduction: str = "mean"
    ) -> torch.Tensor:
        """Of the pixels that are shown."""
        shown = self.state["curriculum"].state_dict()["shown"]
        return F.cross_entropy(self.model(batch[0] * shown), batch[1], reduction=reduction)


def guided() -> Task:
    """Plain SGD, with an object of the user's own in the state."""
    model = perceptron()
    return Guided(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.05),
        dataset=digits(SMALL),
        batch_size=32,
        epochs=6,
        state={"curriculum": Curriculum()},
    )


def spare() -> Task:
    """Plain SGD, with a parameter that never gets a gradient."""
    model = WithSpare()
    return _classifier(model, torch.optim.SGD(model.parameters(), lr=0.05))


class Gated(nn.Module):
    """64 - 32 - 10, whose hidden layer can be shut: by a mask, or by a gain that no tensor holds.

    Args:
        masked: Whether the mask is there, else the gain.
    """

    def __init__(self, *, masked: bool) -> None:
        super().__init__()
        self.hidden = nn.Linear(64, 32)
        self.out = nn.Linear(32, 10)
        self.keep: torch.Tensor | None
        self.register_buffer("keep", torch.ones(32, dtype=torch.bool) if masked else None)
        self.gain = 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.hidden(x)) * (self.gain if self.keep is None else self.keep)
        out: torch.Tensor = self.out(hidden)
        return out

    def get_extra_state(self) -> dict[str, float]:
        return {"gain": self.gain}

    def set_extra_state(self, state: dict[str, float]) -> None:
        self.gain = state["gain"]


def masked() -> Task:
    """Plain SGD on a net with a mask of booleans."""
    model = Gated(masked=True)
    return _classifier(model, torch.optim.SGD(model.parameters(), lr=0.05))


def gated() -> Task:
    """Plain SGD on a net with a number in its extra state."""
    model = Gated(masked=False)
    return _classifier(model, torch.optim.SGD(model.parameters(), lr=0.05))


def normed() -> Task:
    """Plain SGD through a layer norm, which undoes every scale of the weights before it."""
    model = nn.Sequential(
        nn.Linear(64, 32, bias=False), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 10)
    )
    return _classifier(model, torch.optim.SGD(model.parameters(), lr=0.05))


class Scaled(nn.Module):
    """A classifier in bfloat16, whose outputs are scaled by gains that are not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.net = perceptron()
        self.gain = nn.Parameter(torch.ones(10), requires_grad=False)
        self.bfloat16()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = (self.net(x.bfloat16()) * self.gain).float()
        return out


def frozen() -> Task:
    """Plain SGD in bfloat16, with a small tensor that is not trained."""
    model = Scaled()
    return _classifier(model, torch.optim.SGD(model.net.parameters(), lr=0.05))


class Attentive(nn.Module):
    """Attention among the rows of an image. One tensor holds the biases of queries, keys and
    values, and no output depends on those of the keys.
    """

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Linear(8, 16)
        self.asked = nn.Linear(16, 48)
        self.out = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.rows(x.view(-1, 8, 8))
        query, key, value = self.asked(rows).chunk(3, -1)
        seen = F.scaled_dot_product_attention(query, key, value)
        out: torch.Tensor = self.out((rows + seen).mean(1))
        return out


def attentive() -> Task:
    """AdamW under bfloat16 autocast, which makes full steps of gradients that are rounding."""
    model = Attentive()
    task = _classifier(model, torch.optim.AdamW(model.parameters(), lr=2e-3))
    task.autocast = torch.bfloat16
    return task


def tuned() -> Task:
    """Plain SGD of the last layer alone."""
    model = perceptron()
    model[0].requires_grad_(False)
    return _classifier(model, torch.optim.SGD(model[2].parameters(), lr=0.05))


class Ordered(Sampler[int]):
    """As many indices as there are samples, each drawn by its weight."""

    def __init__(self, weights: torch.Tensor) -> None:
        self.weights = weights

    def __iter__(self) -> Iterator[int]:
        count = len(self.weights)
        yield from torch.multinomial(self.weights, count, replacement=True).tolist()

    def __len__(self) -> int:
        return len(self.weights)


def ordered() -> Task:
    """Plain SGD on samples that the client's own sampler draws."""
    model = perceptron()
    sampler = Ordered(torch.linspace(1, 2, SMALL))
    return _classifier(model, torch.optim.SGD(model.parameters(), lr=0.05), sampler=sampler)
