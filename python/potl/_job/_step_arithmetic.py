# SPDX-License-Identifier: Apache-2.0
"""What the steps of a session compute in."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from .._arithmetic import _arithmetic, _noise, _rough

_AUTOCAST = ("cpu", "cuda")


@contextlib.contextmanager
def _usual_attention() -> Iterator[None]:
    """Attention is composed as it is where nobody has forbidden a way, which are settings of
    torch's for all devices; `sdpa_kernel` inside chooses.
    """
    backends: Any = torch.backends.cuda
    before = backends.flash_sdp_enabled(), backends.math_sdp_enabled()
    backends.enable_flash_sdp(True)
    backends.enable_math_sdp(True)
    try:
        yield
    finally:
        backends.enable_flash_sdp(before[0])
        backends.enable_math_sdp(before[1])


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

    @contextlib.contextmanager
    def block(self) -> Iterator[None]:
        """Computes in it, or in what `perturb` or `roughen` has put in its place, whatever the
        program has around it: that is no part of the task.
        """
        torch.clear_autocast_cache()  # within another autocast, it keeps weights of earlier steps
        with contextlib.ExitStack() as held:
            for device in _AUTOCAST:
                if torch.is_autocast_enabled(device):
                    held.enter_context(torch.autocast(device, enabled=False))
            if self.is_reproducible:
                held.enter_context(_usual_attention())
            held.enter_context(self._block())
            yield

    def _block(self) -> contextlib.AbstractContextManager[None]:
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
