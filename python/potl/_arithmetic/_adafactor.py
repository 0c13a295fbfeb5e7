# SPDX-License-Identifier: Apache-2.0
"""Adafactor (Shazeer and Stern 2018) as `torch.optim` defines it, without the platform's libm.

torch raises plain numbers of Python to powers, which nothing else could reach.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ._library import module


def adafactor(stock: Callable[..., None]) -> Callable[..., None]:
    """`torch.optim._adafactor.adafactor`, with potl's powers in a block."""

    @functools.wraps(stock)
    def stepped(*lists: Any, **options: Any) -> None:
        if not module().is_on():
            stock(*lists, **options)
            return
        for parts in zip(*lists, strict=True):
            _step(parts, **options)

    return stepped


def _step(
    parts: Sequence[Any],
    *,
    d: float,
    lr: float | Tensor,
    beta2_decay: float,
    weight_decay: float,
    eps1: float | None,
    eps2: float,
    maximize: bool,
    **_: Any,
) -> None:
    """One parameter's step: the algorithm of the page of `torch.optim.Adafactor`."""
    parameter, gradient, row_variance, column_variance, variance, step = parts
    if maximize:
        gradient = -gradient
    if eps1 is None:
        eps1 = torch.finfo(parameter.dtype).eps
    step += 1
    count = step.item()
    share = module().exact_pow(count, beta2_decay)
    rate = min(float(lr), 1 / math.sqrt(count)) * max(eps2, _root_mean_square(parameter))
    if weight_decay != 0:
        parameter.mul_(1 - float(lr) * weight_decay)
    squares = gradient.square()
    if gradient.dim() > 1:
        row_variance.lerp_(squares.mean(-1, keepdim=True), share)
        column_variance.lerp_(squares.mean(-2, keepdim=True), share)
        mean = row_variance.mean(-2, keepdim=True).clamp_(min=eps1)
        estimate = (row_variance @ column_variance).div_(mean)
    else:
        estimate = variance.lerp_(squares, share).clone()
    update = estimate.clamp_(min=eps1 * eps1).rsqrt_().mul_(gradient)
    parameter.add_(update, alpha=-rate / max(1.0, _root_mean_square(update) / d))


def _root_mean_square(tensor: Tensor) -> float:
    return float(tensor.norm(2)) / math.sqrt(tensor.numel())
