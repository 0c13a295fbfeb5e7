# SPDX-License-Identifier: Apache-2.0
"""The statistics of a batch norm, compared with what one pass over its input gives.

Most of a batch norm are the sums of its mean and deviation, which torch adds up one by one. The
checker has its own, in float64 and another order, to judge those of the worker by. It goes on with
the worker's: where rounding decides about a sign, both sides have to have the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any  # torch's operators take anything

import numpy as np
import torch
from numpy.typing import NDArray

from .. import _core
from ._freivalds import _array

_UNIT = 2.0**-24
# A mean far from zero leaves less of the deviation in sums of squares. Beyond this, and with other
# algorithms than sums in float64, torch computes.
_CONDITION = 2.0**20
# Sums of squares below, and variances above, are normal numbers of float32 with room. What is
# smaller than the smallest of them may be zero on a machine that flushes it.
_MOST, _LEAST, _FLUSHED = 2.0**120, 2.0**-100, 2.0**-126


@dataclass(frozen=True)
class StatisticsFound:
    """How far statistics are off. As `FreivaldsResult`; a row is a channel."""

    outcome: str
    row: int
    worst: float

    @property
    def holds(self) -> bool:
        """Right to the last bits."""
        return self.outcome == "consistent"

    @property
    def rejected(self) -> bool:
        """No order of additions gives this."""
        return self.outcome in ("inconsistent", "not finite")


class Statistics:
    """Mean and inverse deviation of the channels of `aten.native_batch_norm`'s input.

    Args:
        args: Of the operator, in training: float32, batch x channels x sizes.
    """

    def __init__(self, args: tuple[Any, ...]) -> None:
        self._args = args
        self._found: tuple[NDArray[np.float64], ...] | None = None

    def computed(self, place: int) -> torch.Tensor:
        """Torch's own: 0 is the result, 1 the mean, 2 the inverse of the deviation."""
        return self._computed[place]

    def judged(
        self, place: int, given: torch.Tensor, pool: _core.ThreadPool | None
    ) -> StatisticsFound:
        """What is given in the place of torch's own."""
        mean, variance, squares = self._moments(pool)
        epsilon = self._args[7]
        claimed = given.double().numpy()
        # Of float32 sums in any order, and of the square of the mean among them.
        rounding = 3 * self._count * _UNIT
        with np.errstate(all="ignore"):
            if place == 1:
                off = np.abs(claimed - mean)
                usual = 4 * _UNIT * np.abs(mean) + _UNIT / 4 * np.sqrt(variance) + _FLUSHED
                possible = rounding * np.sqrt(squares)
            else:
                off = np.abs(claimed * np.sqrt(variance + epsilon) - 1)
                usual = np.full_like(off, 4 * _UNIT)
                share = rounding * squares / (variance + epsilon)
                # 1 / sqrt(1 - share) - 1, which is without bound from a share of 1 on.
                possible = np.where(share < 1, 1 / np.sqrt(np.maximum(1 - share, 0)) - 1, np.inf)
            well = np.isfinite(variance) & (squares <= _CONDITION * variance)
            well &= (self._count * squares < _MOST) & (variance + epsilon > _LEAST)
            if (bad := well & ~np.isfinite(claimed)).any():
                return StatisticsFound("not finite", int(np.argmax(bad)), np.inf)
            # Of zeros nothing is off by rounding.
            excess = np.where(well & (off > 0), off / (possible + usual), 0.0)
            row = int(np.argmax(excess))
            if excess[row] > 1:
                return StatisticsFound("inconsistent", row, float(excess[row]))
            outcome = "consistent" if (well & (off <= usual)).all() else "unusual"
            return StatisticsFound(outcome, row, float(excess[row]))

    def normalised(self, mean: torch.Tensor, inverse: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """What the operator returns with these statistics, to the bit, and running means of them.

        Args:
            mean: Of each channel, consistent or computed.
            inverse: The same of the deviation.
        """
        x, weight, bias, running_mean, running_variance, _, momentum, _ = self._args
        if not _forms_are_alike():
            mean, inverse = self.computed(1), self.computed(2)
            out = self.computed(0)
        else:
            out = _with_statistics(x, weight, bias, mean, inverse)
        if running_mean is not None:
            running_mean.lerp_(mean, momentum)
        if running_variance is not None:
            _, variance, _ = self._moments(None)
            unbiased = torch.from_numpy(variance * self._count / max(self._count - 1, 1))
            running_variance.lerp_(unbiased.to(running_variance), momentum)
        return out, mean, inverse

    @property
    def _count(self) -> int:
        x = self._args[0]
        return int(x.numel() // x.shape[1])

    def _moments(self, pool: _core.ThreadPool | None) -> tuple[NDArray[np.float64], ...]:
        """Mean, variance and mean square of each channel."""
        if self._found is None:
            x = self._args[0]
            rows = _array(x.contiguous()).reshape(-1, x[0, 0].numel())
            sums, squares = _core.channel_sums(rows, x.shape[1], pool)
            mean, square = np.array(sums) / self._count, np.array(squares) / self._count
            with np.errstate(all="ignore"):  # of a channel that is not finite
                self._found = mean, np.maximum(square - mean * mean, 0.0), square
        return self._found

    @cached_property
    def _computed(self) -> tuple[torch.Tensor, ...]:
        x, weight, bias, _, _, _, momentum, epsilon = self._args
        found = torch.ops.aten.native_batch_norm(
            x, weight, bias, None, None, True, momentum, epsilon
        )
        return tuple(found)


def _with_statistics(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    mean: torch.Tensor,
    inverse: torch.Tensor,
) -> torch.Tensor:
    """Without training torch takes a mean and a variance. With a variance of 1 the weights can
    bring the inverse of the deviation, and what is left are the operations of a training.
    """
    factors = inverse if weight is None else inverse * weight
    out: torch.Tensor = torch.ops.aten.native_batch_norm(
        x, factors, bias, mean, torch.ones_like(mean), False, 0.0, 0.0
    )[0]
    return out


@cache
def _forms_are_alike() -> bool:
    """Whether this torch has the same bits with and without training."""
    random = torch.Generator().manual_seed(0)
    x = torch.randn(5, 8, 7, 9, generator=random) * 3 + 1
    weight, bias = torch.randn(2, 8, generator=random)
    for one in (x, x.contiguous(memory_format=torch.channels_last)):
        trained, mean, inverse = torch.ops.aten.native_batch_norm(
            one, weight, bias, None, None, True, 0.0, 1e-5
        )
        if not torch.equal(trained, _with_statistics(one, weight, bias, mean, inverse)):
            return False
    return True
