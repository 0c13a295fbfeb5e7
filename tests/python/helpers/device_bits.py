# SPDX-License-Identifier: Apache-2.0
"""The bits of a device and of the CPU. Where there is no CUDA device its kernels run on simulated
blocks (potl._simulated), for tensors of the CPU.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

import torch
from torch import Tensor

import potl
from potl import NotReproducible
from potl._arithmetic._library import module

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"


def simulated(on: bool) -> None:
    """Has tensors of the CPU computed by simulated blocks, where there is no GPU."""
    if not GPU:
        kernels = importlib.import_module("potl._simulated").kernels() if on else None
        module().use_device("cpu", kernels)


def both(
    compute: Callable[[str], list[Tensor]], mode: str = "ord32"
) -> tuple[list[Tensor], list[Tensor] | None]:
    """What is computed on the CPU, and on the device; None if that refuses."""
    with potl.deterministic(mode):
        here = compute("cpu")
    simulated(True)
    try:
        with potl.deterministic(mode):
            there = [one.cpu() for one in compute(DEVICE)]
    except NotReproducible:
        return here, None
    finally:
        simulated(False)
    return here, there


def leaf(values: Tensor, device: str) -> Tensor:
    """Of its own memory, so that no two devices have one gradient."""
    return values.to(device, copy=True).requires_grad_()


def same(a: Tensor, b: Tensor) -> bool:
    """Bit for bit; NaN have the bits that their device gives them."""
    nan = a.isnan() & b.isnan() if a.is_floating_point() else torch.zeros_like(a, dtype=torch.bool)
    raw = (one.masked_fill(nan, 0).reshape(-1).view(torch.uint8) for one in (a, b))
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(*raw)


def hostile() -> Tensor:
    few = [0.0, -0.0, 1.0, -1.0, 3.0, 0.1, 1e-45, -1e-45, 1.1e-38, 3.4e38, 2.5, 1e-20, float("inf")]
    generator = torch.Generator().manual_seed(0)
    bits = torch.randint(-(2**31), 2**31 - 1, (4096,), generator=generator)
    return torch.cat([torch.tensor(few), bits.int().view(torch.float32)])
