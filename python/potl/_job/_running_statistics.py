# SPDX-License-Identifier: Apache-2.0
"""Running statistics of batch norms whose batches several processes have.

One process moves them after each micro-batch. Here each process learns the statistics of its own
micro-batch, by a momentum of 1, and all of them make all moves, in the order of the micro-batches.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any  # what hooks get

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

_KINDS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class RunningStatistics:
    """Those of a model's batch norms in float32 that have a momentum. Others move by themselves.

    Args:
        model: Some of its modules may be in training mode.
    """

    def __init__(self, model: nn.Module) -> None:
        self._norms = [
            one
            for one in model.modules()
            if isinstance(one, _KINDS) and type(one) in _KINDS and _moves(one)
        ]

    @contextlib.contextmanager
    def learned(self) -> Iterator[list[float]]:
        """While a micro-batch is computed, which then moves nothing.

        Yields:
            At the end, for each call of a batch norm in training: its number, and mean and variance
            of the channels.
        """
        found: list[float] = []
        number: dict[nn.Module, int] = {one: index for index, one in enumerate(self._norms)}
        before = [
            (one, one.momentum, [kept.clone() for kept in _buffers(one)]) for one in self._norms
        ]

        def see(module: _BatchNorm, inputs: Any, output: Any) -> None:
            if module.training:
                mean, variance, _ = _buffers(module)
                found.extend((number[module], *mean.tolist(), *variance.tolist()))

        hooks = [one.register_forward_hook(see) for one in self._norms]
        try:
            for one in self._norms:
                one.momentum = 1.0
            yield found
        finally:
            for hook in hooks:
                hook.remove()
            with torch.no_grad():
                for one, momentum, buffers in before:
                    one.momentum = momentum
                    for kept, value in zip(_buffers(one), buffers, strict=True):
                        kept.copy_(value)

    @torch.no_grad()
    def move(self, found: Sequence[float]) -> None:
        """Makes the moves of a micro-batch.

        Args:
            found: What `learned` gave in the process that computed it.
        """
        at = 0
        while at < len(found):
            norm = self._norms[int(found[at])]
            mean, variance, count = _buffers(norm)
            for kept in (mean, variance):
                statistic = np.array(found[at + 1 : at + 1 + len(kept)], np.float32)
                moved = _moved(kept.numpy(force=True), statistic, float(norm.momentum or 0))
                kept.copy_(torch.from_numpy(moved))
                at += len(kept)
            count += 1
            at += 1


def _moves(norm: _BatchNorm) -> bool:
    return (
        isinstance(norm.momentum, float)
        and isinstance(norm.running_mean, torch.Tensor)
        and norm.running_mean.dtype == torch.float32
    )


def _buffers(norm: _BatchNorm) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    mean, variance, count = norm.running_mean, norm.running_var, norm.num_batches_tracked
    assert mean is not None and variance is not None and count is not None
    return mean, variance, count


def _moved(
    kept: NDArray[np.float32], statistic: NDArray[np.float32], momentum: float
) -> NDArray[np.float32]:
    """As docs/reference/neural_operators.md has it."""
    factor = np.float32(momentum)
    with np.errstate(all="ignore"):
        return fma(factor, statistic, kept * (np.float32(1) - factor))


def fma(
    factor: np.float32, numbers: NDArray[np.float32], rest: NDArray[np.float32]
) -> NDArray[np.float32]:
    """factor * numbers + rest, rounded once."""
    product = np.float64(factor) * numbers  # exact
    total = product + rest
    # To round to float64 and then to float32 would be to round twice. What the sum leaves over
    # (Knuth's sum of two) makes it odd, so that the second rounding sees on which side it is.
    part = total - product
    over = (product - (total - part)) + (rest - part)
    even = total.view(np.int64) & 1 == 0
    odd = np.where(
        even & (over != 0) & np.isfinite(total),
        np.nextafter(total, np.copysign(np.inf, over)),
        total,
    )
    rounded: NDArray[np.float32] = odd.astype(np.float32)
    return rounded
