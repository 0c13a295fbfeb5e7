#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Column sums, cross-entropy and one operator of each family that models meet (forward and
backward) against stock torch, float32, one thread.

A ratio is the stock call's processor time over that of the same call inside `potl.deterministic`:
above 1, potl is faster.
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


def stepping(call: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> Callable[[], object]:
    """Forward and backward."""
    x.requires_grad_()
    dy = torch.randn_like(call(x).detach())

    def step() -> None:
        x.grad = None
        call(x).backward(dy)  # type: ignore[no-untyped-call]

    return step


def families() -> dict[str, Callable[[], object]]:
    """Operators that no other benchmark has."""
    image = torch.randn(16, 64, 16, 16)
    last = image.contiguous(memory_format=torch.channels_last)
    table, other = torch.randn(512, 512), torch.randn(512, 512)
    edges, nodes = torch.randn(8192, 64), torch.randint(1024, (8192,))
    wide = nodes[:, None].expand(8192, 64)
    lstm = torch.nn.LSTM(8, 32, batch_first=True)
    norm, group = torch.nn.BatchNorm1d(512), torch.nn.GroupNorm(8, 64)
    norm2d, conv = torch.nn.BatchNorm2d(64), torch.nn.Conv2d(64, 64, 3, padding=1)
    calls: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], torch.Tensor]] = {
        "square": (lambda x: x**2, table),
        "root": (lambda x: x**-0.5, table.abs() + 0.1),
        "maximum": (lambda x: torch.maximum(x, other), table),
        "where": (lambda x: torch.where(other > 0, x, 0.0), table),
        "hardswish": (functional.hardswish, table),
        "smooth_l1": (lambda x: functional.smooth_l1_loss(x, other), table),
        "sum.transposed": (lambda x: x.t().sum(0), table),
        "batch_norm.samples": (norm, table),
        "batch_norm.channels_last": (norm2d, last),
        "group_norm": (group, image),
        "group_norm.channels_last": (group, last),
        "conv2d.channels_last": (conv, last),
        "max_pool2d.channels_last": (lambda x: functional.max_pool2d(x, 2), last),
        "mean.channels_last": (lambda x: x.mean((2, 3)), last),
        "interpolate.channels_last": (
            lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear"),
            last,
        ),
        "scatter_add.rows": (lambda x: torch.zeros(1024, 64).scatter_add(0, wide, x), edges),
        "scatter_max.rows": (
            lambda x: torch.zeros(1024, 64).scatter_reduce(0, wide, x, "amax"),
            edges,
        ),
        "index_add.numbers": (
            lambda x: torch.zeros(1024).index_add(0, nodes, x),
            torch.randn(8192),
        ),
        "lstm.small": (lambda x: lstm(x)[0], torch.randn(32, 50, 8)),
    }
    return {name: stepping(call, x.detach().clone()) for name, (call, x) in calls.items()}


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    print(f"{_core.active_isa()} kernels; torch {torch.__version__}")
    calls = {
        f"{name}.{rows}x{columns}": make(rows, columns)
        for name, make, shapes in (
            ("column_sum", column_sum, SUMS),
            ("cross_entropy", cross_entropy, CLASSES),
        )
        for rows, columns in shapes
    }
    results = []
    for name, call in (calls | families()).items():
        call()
        times = max(1, round(SECONDS / max(1e-6, measuring.timed(call))))
        ratio = measuring.outside_and_inside(
            call, "ord32", times=times, rounds=ROUNDS, clock=measuring.processor_timed
        )
        print(f"{name}: {ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]", flush=True)
        asked = {"at_least": AT_LEAST} if name in calls else {}
        results.append(
            measuring.result(
                f"reduction.{name}",
                ratio.value,
                "ratio",
                f"stock torch, fp32, 1 thread: {name}",
                **asked,
            )
        )
    print(f"load averages {os.getloadavg()}")
    measuring.write("reduction", results)


if __name__ == "__main__":
    main()
