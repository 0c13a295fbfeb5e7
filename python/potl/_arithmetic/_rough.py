# SPDX-License-Identifier: Apache-2.0
"""Rough sums: steps whose sums are as far off as another machine's order of summation leaves them.

potl's own modes round less than many machines do, and an activation next to zero keeps its sign in
them that another machine turns. What such a sign does to a step shows here.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from .. import _core

_SUMS = frozenset(_core.rough_sums())


class RoughSums(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Inside of it, results of torch's own sums are off by a few units of roundoff.

    Args:
        seed: What the differences are drawn from; torch's generators stay as they are.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._seed = seed
        self._roughness = _core.roughness(seed)
        self._generators: dict[torch.device, torch.Generator] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ in _SUMS and func.namespace == "aten":
            for one in out if isinstance(out, (tuple, list)) else (out,):
                if not isinstance(one, Tensor) or one.numel() == 0:
                    continue
                if one.is_complex():
                    self._disturb(torch.view_as_real(one), (-2, -1) if one.dim() else -1)
                elif one.is_floating_point():
                    self._disturb(one, -1)
        return out

    def _disturb(self, result: Tensor, row_dims: int | tuple[int, int]) -> None:
        if result.layout != torch.strided:
            return
        wide = result if result.dtype == torch.float64 else result.float()
        row = wide if wide.dim() == 0 else wide.square().mean(row_dims, keepdim=True).sqrt()
        off = torch.empty_like(wide).normal_(generator=self._of(wide)) * row.abs()
        off *= self._roughness * torch.finfo(wide.dtype).eps / 2
        if result.dtype != wide.dtype:
            # Where between its neighbours the sum lay before it was rounded to fewer bits.
            _, exponent = torch.frexp(wide)
            unit = torch.ldexp(torch.ones_like(wide), exponent - 1) * torch.finfo(result.dtype).eps
            off += torch.empty_like(wide).uniform_(-0.5, 0.5, generator=self._of(wide)) * unit
        # An exact zero is one of no terms, or of terms that are zero.
        result.copy_(torch.where(wide == 0, wide, wide + off))

    def _of(self, result: Tensor) -> torch.Generator:
        generator = self._generators.get(result.device)
        if generator is None:
            generator = torch.Generator(result.device).manual_seed(self._seed)
            self._generators[result.device] = generator
        return generator
