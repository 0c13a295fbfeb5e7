#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Functions of single float32 elements against stock torch, with one thread and with two.

A ratio is the stock kernel's time over that of the same call inside `potl.deterministic`, on
torch's threads, both into an existing result, for activations of 2^16 elements (256 KiB); a small
and a large size are printed beside it. Values are normally distributed, positive
for log. rsqrt, sigmoid, silu and the rest are shown without a bound.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any

import measuring
import torch

import potl
from potl import _core

ROUNDS = 101 if measuring.FULL else 41
SECONDS = 0.002  # of each timed block, about
AT_LEAST = {"exp": 1.2, "tanh": 1.2, "log": 1.2, "erf": 1.2, "gelu": 0.8}
SIZE = 1 << 16
SIZES = (1 << 14, SIZE, 1 << 20)


def into(kernel: Callable[..., object]) -> Callable[[torch.Tensor, torch.Tensor], object]:
    return lambda x, y: kernel(x, out=y)


def functions() -> dict[str, Callable[[torch.Tensor, torch.Tensor], object]]:
    """Name -> torch's kernel with an out argument."""
    aten = torch.ops.aten
    names = ("exp", "tanh", "log", "erf", "sigmoid", "rsqrt", "expm1", "log1p", "sin", "cos")
    found = {name: into(getattr(torch, name)) for name in names}
    found["gelu"] = into(aten.gelu.out)
    found["silu"] = into(aten.silu.out)
    return found


def compare(name: str, count: int, threads: int) -> measuring.Ratio:
    """Torch's time over potl's."""
    x = torch.randn(count, generator=torch.Generator().manual_seed(1))
    if name in ("log", "rsqrt", "log1p"):
        x = x.abs() + 0.01
    out, expected = torch.empty_like(x), torch.empty_like(x)
    kernel = functions()[name]

    def call() -> None:
        kernel(x, out)

    kernel(x, expected)
    with potl.deterministic("ord32"):
        call()
    torch.testing.assert_close(out, expected, rtol=2e-6, atol=1e-6)
    times = max(1, round(SECONDS / max(1e-6, measuring.timed(call))))
    ratio = measuring.outside_and_inside(call, "ord32", times=times, rounds=ROUNDS)
    per = 1e9 / (count * times)
    print(
        f"{threads} thread(s) {name:8} {count:8} elements {ratio.value:6.3f} "
        f"[{ratio.low:.3f}, {ratio.high:.3f}]  torch {ratio.seconds * per:.3f}, "
        f"potl {ratio.baseline_seconds * per:.3f} ns each",
        flush=True,
    )
    return ratio


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--functions", nargs="*", default=list(functions()))
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    arguments = parser.parse_args()
    print(f"{_core.active_isa()} kernels; torch {torch.__version__}")
    results = []
    for threads in arguments.threads:
        torch.set_num_threads(threads)
        for name in arguments.functions:
            ratios = {count: compare(name, count, threads) for count in SIZES}
            asked: dict[str, Any] = {"at_least": AT_LEAST[name]} if name in AT_LEAST else {}
            results.append(
                measuring.result(
                    f"elementwise.{name}.{threads}t",
                    ratios[SIZE].value,
                    "ratio",
                    f"torch.{name} fp32, {threads} thread(s), {SIZE} elements",
                    **asked,
                )
            )
    print(f"load averages {os.getloadavg()}")
    measuring.write("elementwise", results)


if __name__ == "__main__":
    main()
