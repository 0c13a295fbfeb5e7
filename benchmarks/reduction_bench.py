#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Column sums and cross-entropy (forward and backward) against stock torch, float32, one thread.

A ratio is the stock call's time over that of the same call inside `potl.deterministic`: above 1,
potl is faster.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import measuring
import torch
from torch.nn import functional

from potl import _core

ROUNDS = 61 if measuring.FULL else 21
SECONDS = 0.005  # of each timed block, about
AT_LEAST = 0.9
SUMS = ((128, 10), (128, 64), (128, 512), (128, 2048), (4096, 64), (4096, 768), (32768, 16))
CLASSES = ((128, 10), (512, 10), (128, 100), (512, 100), (128, 1000), (512, 1000), (256, 8192))


def column_sum(rows: int, columns: int) -> Callable[[], object]:
    x = torch.randn(rows, columns)
    return lambda: x.sum(0)


def cross_entropy(rows: int, classes: int) -> Callable[[], object]:
    x = torch.randn(rows, classes, requires_grad=True)
    target = torch.randint(classes, (rows,))

    def step() -> None:
        x.grad = None
        functional.cross_entropy(x, target).backward()  # type: ignore[no-untyped-call]

    return step


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    print(f"{_core.active_isa()} kernels; torch {torch.__version__}")
    results = []
    for name, make, shapes in (
        ("column_sum", column_sum, SUMS),
        ("cross_entropy", cross_entropy, CLASSES),
    ):
        for rows, columns in shapes:
            call = make(rows, columns)
            call()
            times = max(1, round(SECONDS / max(1e-6, measuring.timed(call))))
            ratio = measuring.outside_and_inside(call, "ord32", times=times, rounds=ROUNDS)
            print(
                f"{name} {rows} x {columns}: {ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]",
                flush=True,
            )
            results.append(
                measuring.result(
                    f"reduction.{name}.{rows}x{columns}",
                    ratio.value,
                    "ratio",
                    f"stock torch, fp32, 1 thread, {rows} x {columns}",
                    at_least=AT_LEAST,
                )
            )
    print(f"load averages {os.getloadavg()}")
    measuring.write("reduction", results)


if __name__ == "__main__":
    main()
