# SPDX-License-Identifier: Apache-2.0
"""One call of a neural-network operator, and operands for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor


@dataclasses.dataclass(frozen=True)
class Case:
    """`call` takes the operands: floats need gradients, integers do not.

    Attributes:
        narrow: Whether the operator takes bfloat16.
    """

    name: str
    call: Callable[..., Tensor | tuple[Tensor, ...]]
    operands: tuple[Tensor, ...]
    tolerance: float = 2e-5
    narrow: bool = True


_random = np.random.default_rng(20240607)


def floats(*shape: int, scale: float = 1.0) -> Tensor:
    return torch.from_numpy(_random.standard_normal(shape) * scale)


def unit(*shape: int) -> Tensor:
    return torch.from_numpy(_random.uniform(0.05, 0.95, shape))


def integers(below: int, *shape: int) -> Tensor:
    return torch.from_numpy(_random.integers(0, below, shape))
