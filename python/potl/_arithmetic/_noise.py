# SPDX-License-Identifier: Apache-2.0
"""Honest replays in other arithmetics: what the verifier's own noise is measured with.

potl's modes add up in other orders than torch does, through forward pass, backward pass and update,
at the types that the task computes in: like another machine. Other thread counts alone change few
sums.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from .._base._errors import UnsupportedError
from . import _arithmetic
from ._library import module

_WAYS: tuple[str | None, ...] = ("ord32", "cr32", None, "xint24")  # None: threads alone
# Threads of the CPU change nothing elsewhere.
_WAYS_ELSEWHERE = ("ord32",)


@dataclass(frozen=True, kw_only=True)
class Noise:
    """One way to compute.

    Attributes:
        arithmetic: One of potl's modes, or None for torch's own.
        threads: Another number of threads than usual, or None for the same.
    """

    arithmetic: str | None = None
    threads: int | None = None

    @contextlib.contextmanager
    def around(self) -> Iterator[None]:
        """Sets the number of threads."""
        usual = torch.get_num_threads()
        try:
            if self.threads is not None:
                torch.set_num_threads(self.threads)
            yield
        finally:
            torch.set_num_threads(usual)


def make(index: int, *, device: str) -> Noise:
    """The way of the repeat `index` on a device."""
    ways = _WAYS if device == "cpu" else _WAYS_ELSEWHERE
    arithmetic = ways[index % len(ways)]
    if arithmetic is not None and _is_known(arithmetic, device):
        return Noise(arithmetic=arithmetic)
    return other_threads(index)


def _is_known(arithmetic: str, device: str) -> bool:
    """Whether this installation computes in it on a device."""
    try:
        _arithmetic.require(arithmetic)
    except UnsupportedError:
        return False
    return device == "cpu" or (device == "cuda" and bool(module().knows_device(device)))


def other_threads(index: int) -> Noise:
    """Another number of threads, for what has no other arithmetic."""
    most = max(2, min(os.cpu_count() or 1, 8))
    others = [n for n in range(1, most + 1) if n != torch.get_num_threads()]
    return Noise(threads=others[index % len(others)])
