# SPDX-License-Identifier: Apache-2.0
"""A small training written directly on potl's products, for both sides of a rounding log: an MLP
with ReLU, residual sums, average pooling and SGD. Everything but the products is one IEEE operation
per element.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from potl import _core

Array = npt.NDArray[np.float32]
BATCH, INPUTS, HIDDEN, CLASSES = 128, 96, 64, 8
OFFSET, RATE = 24000, np.float32(2.0**-4)


@dataclass
class Products:
    """The products of one step, through a session, with their operands for a third party."""

    session: Any
    calls: list[tuple[Array, Array]] = field(default_factory=list)

    def __call__(self, kind: str, a: Array, b: Array) -> Array:
        a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
        out = np.empty((a.shape[0], b.shape[1]), np.float32)
        self.session.multiply(kind, a, b, out)
        self.calls.append((a, b))
        return out

    @property
    def values(self) -> int:
        return sum(a.shape[0] * b.shape[1] for a, b in self.calls)

    def operands(self, position: int) -> tuple[Array, Array]:
        """Both rows behind an element of the step's log."""
        for a, b in self.calls:
            size = a.shape[0] * b.shape[1]
            if position < size:
                row, column = divmod(position, b.shape[1])
                return a[row], np.ascontiguousarray(b[:, column])
            position -= size
        raise IndexError(position)


class Steering(Products):
    """The products of a trainer who decides by itself how to round what is near a tie, goes on with
    that, and logs it.
    """

    def __init__(self, choose: Callable[[int, float, bool], bool]) -> None:
        super().__init__(None)
        self.choose = choose  # (number of the entry, distance to the tie / E, up) -> up
        self.entries: list[tuple[int, bool]] = []
        self.flipped: list[int] = []  # positions

    def __call__(self, kind: str, a: Array, b: Array) -> Array:
        a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
        out = np.empty((a.shape[0], b.shape[1]), np.float32)
        for index, value, window in _core.gemm_log64(a, b, out, 32, 0):
            lower, upper = neighbours(value)
            up = bool(out.flat[index] == upper)
            distance = abs(value - (float(lower) + float(upper)) / 2) / (window / 2)
            chosen = self.choose(len(self.entries), distance, up)
            if chosen != up:
                self.flipped.append(self.values + index)
                out.flat[index] = upper if chosen else lower
            self.entries.append((self.values + index, chosen))
        self.calls.append((a, b))
        return out

    def log(self) -> bytes:
        return _core.encode_rounding_log(bits=32, values=self.values, entries=self.entries)


def neighbours(value: float) -> tuple[np.float32, np.float32]:
    """The float32 numbers around the tie next to a value that is near one."""
    low = np.float32(value)
    if float(low) > value:
        low = np.nextafter(low, np.float32(-np.inf))
    return low, np.nextafter(low, np.float32(np.inf))


class Mlp:
    """x -> relu(x w0) -> relu(. w1) + residual -> average of pairs -> w2, squared error."""

    def __init__(self, seed: int = 0) -> None:
        draw = np.random.default_rng(seed)
        shapes = ((INPUTS, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN // 2, CLASSES))
        self.weights = [
            (draw.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32) for shape in shapes
        ]
        # Raw sensor values: an offset that the weights have to cancel costs digits.
        self.weights[0][INPUTS // 2 :] = self.weights[0][: INPUTS // 2]
        self.draw = np.random.default_rng(seed + 1)
        self.pool = np.zeros((HIDDEN, HIDDEN // 2), np.float32)
        self.pool[np.arange(HIDDEN), np.arange(HIDDEN) // 2] = 0.5

    def batch(self) -> tuple[Array, Array]:
        half = self.draw.standard_normal((BATCH, INPUTS // 2)) + OFFSET
        other = self.draw.standard_normal((BATCH, INPUTS // 2)) - half
        x = np.concatenate([half, other], axis=1).astype(np.float32)
        target = self.draw.standard_normal((BATCH, CLASSES)).astype(np.float32)
        return x, target

    def step(self, multiply: Products) -> None:
        x, target = self.batch()
        w0, w1, w2 = self.weights
        h0 = np.maximum(multiply("linear", x, w0), np.float32(0))
        h1 = np.maximum(multiply("linear", h0, w1), np.float32(0))
        pair = np.stack([h0.ravel(), h1.ravel()], axis=1)
        total = multiply("residual", pair, np.ones((2, 1), np.float32)).reshape(h0.shape)
        pooled = multiply("pool", total, self.pool)
        out = multiply("linear", pooled, w2)
        d_out = (out - target) * np.float32(1 / BATCH)
        d_w2 = multiply("linear_weight", pooled.T, d_out)
        d_total = multiply("pool_input", multiply("linear_input", d_out, w2.T), self.pool.T)
        d_h1 = d_total * (h1 > 0)
        d_w1 = multiply("linear_weight", h0.T, d_h1)
        d_h0 = (multiply("linear_input", d_h1, w1.T) + d_total) * (h0 > 0)
        d_w0 = multiply("linear_weight", x.T, d_h0)
        rates = (RATE * np.float32(OFFSET**-2), RATE, RATE)
        for i, gradient in enumerate((d_w0, d_w1, d_w2)):
            self.weights[i] = self.weights[i] - rates[i] * gradient

    def bits(self) -> bytes:
        return b"".join(weight.tobytes() for weight in self.weights)


def train(
    steps: int, order: int, *, bits: int = 32, role: str = "trainer"
) -> tuple[Mlp, list[Any]]:
    """The model after training, and the log of each step (None without a role)."""
    model, logs = Mlp(), []
    session = _core.RoundingSession(role, bits=bits, order=order)
    for number in range(1, steps + 1):
        session.begin_step(number)
        model.step(Products(session))
        if role == "trainer":
            logs.append(session.end_step())
        else:
            session.cancel_step()
    return model, logs
