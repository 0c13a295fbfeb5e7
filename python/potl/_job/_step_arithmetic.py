# SPDX-License-Identifier: Apache-2.0
"""What the steps of a session compute in."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from .._arithmetic import _arithmetic, _noise, _rough


class StepArithmetic:
    """A job's arithmetic, and for a while another one.

    Args:
        name: Of the job's arithmetic.

    Attributes:
        name: Of the job's arithmetic.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._noise: _noise.Noise | None = None
        self._rough: _rough.RoughSums | None = None

    @property
    def is_reproducible(self) -> bool:
        """Whether it has the same bits on every machine."""
        return self.name != _arithmetic.STOCK

    def block(self) -> contextlib.AbstractContextManager[None]:
        """Computes in it, or in what `perturb` or `roughen` has put in its place."""
        if self._rough is not None:
            return self._rough
        if self._noise is not None and self._noise.arithmetic is not None:
            return _arithmetic.block(self._noise.arithmetic, lenient=True)
        return _arithmetic.block(self.name)

    @contextlib.contextmanager
    def perturb(self, index: int, *, device: str, threads_only: bool) -> Iterator[bool]:
        """Computes otherwise, as honest hardware might.

        Args:
            index: Which of several ways.
            device: Where the task computes.
            threads_only: Changes nothing but the number of threads.

        Yields:
            Whether it is another arithmetic, and not just another number of threads.
        """
        kept = threads_only or self.is_reproducible
        noise = _noise.make(index, device="other" if kept else device)
        before, self._noise = self._noise, noise
        try:
            with noise.around():
                yield noise.arithmetic is not None
        finally:
            self._noise = before

    @contextlib.contextmanager
    def roughen(self, seed: int) -> Iterator[bool]:
        """Leaves sums as far off as another machine's order of summation might.

        Args:
            seed: What the differences are drawn from.

        Yields:
            Whether that is possible: stock arithmetic alone rounds otherwise elsewhere.
        """
        if self.is_reproducible:
            yield False
            return
        before, self._rough = self._rough, _rough.RoughSums(seed)
        try:
            yield True
        finally:
            self._rough = before
