# SPDX-License-Identifier: Apache-2.0
"""`nn.init.trunc_normal_` with the same bits under every version of torch.

It is Python, which torch wrote anew after 2.11: first the inverse of a distribution, then normals
that are drawn again where they lie outside. potl has the second way, as torch 2.13 goes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

_NAME = "_no_grad_trunc_normal_"
# Below this share of the normal distribution torch 2.13 goes another way, with log and pow, whose
# bits depend on the machine.
_DRAWN_AGAIN = 0.3


def put(inside: Callable[[], bool]) -> Callable[[], None]:
    """Puts potl's function in the place of torch's, for calls for which `inside` holds.

    Returns:
        Puts torch's back.
    """
    stock = getattr(nn.init, _NAME, None)
    if stock is None:  # a torch to come, whose own bits a test will find to be others
        return lambda: None

    def switch(
        tensor: torch.Tensor,
        mean: float,
        std: float,
        a: float,
        b: float,
        generator: torch.Generator | None = None,
    ) -> Any:
        if tensor.is_meta or not inside() or _share(mean, std, a, b) <= _DRAWN_AGAIN:
            return stock(tensor, mean, std, a, b, generator=generator)
        return _trunc_normal(tensor, mean, std, a, b, generator)

    setattr(nn.init, _NAME, switch)
    return lambda: setattr(nn.init, _NAME, stock)


def _share(mean: float, std: float, a: float, b: float) -> float:
    low, high = ((1 + math.erf((end - mean) / std / math.sqrt(2))) / 2 for end in (a, b))
    return high - low


def _trunc_normal(
    tensor: torch.Tensor,
    mean: float,
    std: float,
    a: float,
    b: float,
    generator: torch.Generator | None,
) -> torch.Tensor:
    with torch.no_grad():
        # As the tensor's type has them.
        low, high = (tensor.new_tensor(end, device="cpu").item() for end in (a, b))
        drawn = tensor.normal_(mean, std, generator=generator)
        while (outside := (drawn < low) | (drawn > high)).any():
            again = torch.empty_like(drawn).normal_(mean, std, generator=generator)
            drawn = torch.where(outside, again, drawn)
        return tensor if drawn is tensor else tensor.copy_(drawn)
