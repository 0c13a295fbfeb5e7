#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Matrix products in every mode against stock torch in the same process, and ord32 against an
OpenBLAS with its AVX-512 kernels in a process of its own. One thread and two; the lower ratio
counts.

A ratio is the other's time over potl's. What is asked for depends on the processor's vendor: MKL,
which torch calls, runs at half speed on AMD's. `--only TEXT` measures the names that hold TEXT and
writes nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import measuring
import openblas_worker
import torch

from potl import _core

ROUNDS = 25 if measuring.FULL else 9
SECONDS = 0.02  # of each timed block, about
REST = 0.03  # before each block: threads of the other side may still wait for work, spinning
THREADS = (1, 2)
Work = Callable[[], object]
Pair = tuple[Work, Work]  # the other side's, potl's

# Rows, columns and depth of products in layers of ResNet-20 and ResNet-50 and of GPT-2, forward
# and backward, the skinny ones included.
SHAPES = [
    (131072, 16, 144),
    (131072, 144, 16),
    (16, 144, 131072),
    (12544, 256, 64),
    (12544, 64, 256),
    (64, 256, 12544),
    (3136, 128, 512),
    (784, 1024, 256),
    (196, 512, 2048),
    (64, 1000, 2048),
    (512, 2304, 768),
    (512, 768, 3072),
    (768, 3072, 512),
    (64, 50257, 768),
]


def vendor() -> str:
    """`amd`, `intel` (with AVX-512) or `other`, for which nothing is asked."""
    with contextlib.suppress(OSError):
        text = Path("/proc/cpuinfo").read_text()
        if "AuthenticAMD" in text:
            return "amd"
        if "GenuineIntel" in text and "avx512f" in text:
            return "intel"
    return "other"


def floor(amd: float, intel: float) -> dict[str, float]:
    """The `at_least` of a result."""
    found = {"amd": amd, "intel": intel}.get(vendor())
    return {} if found is None else {"at_least": found}


def rested(work: Work) -> float:
    time.sleep(REST)
    return measuring.timed(work)


def repeated(work: Work, times: int) -> Work:
    def block() -> None:
        for _ in range(times):
            work()

    return block


def compare(theirs: Work, ours: Work) -> measuring.Ratio:
    """The other side's time over potl's, from blocks in turn."""
    times = max(1, round(SECONDS / max(1e-6, min(measuring.timed(ours) for _ in range(3)))))
    first, second = repeated(theirs, times), repeated(ours, times)
    first()
    pairs = []
    for number in range(ROUNDS):
        if number % 2:
            after, before = rested(second), rested(first)
        else:
            before, after = rested(first), rested(second)
        pairs.append((before / times, after / times))
    return measuring.of_pairs(pairs)


def product(mode: str, a: torch.Tensor, b: torch.Tensor, threads: int) -> Work:
    """potl's product of two matrices; torch's runs with the same number of threads from now on."""
    torch.set_num_threads(threads)
    left, right = a.numpy(), b.numpy()
    out = torch.empty(a.shape[0], b.shape[1]).numpy()
    pool = _core.ThreadPool(threads) if threads > 1 else None
    if mode == "log64":
        return lambda: _core.gemm_log64(left, right, out, pool=pool)
    return lambda: _core.gemm(mode, left, right, out, pool)


def stock(a: torch.Tensor, b: torch.Tensor) -> Work:
    out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype)
    return lambda: torch.mm(a, b, out=out)


def square(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(size)
    return torch.randn(size, size, generator=generator), torch.randn(
        size, size, generator=generator
    )


def entry(
    name: str,
    ratios: dict[str, measuring.Ratio],
    operations: int,
    against: str,
    bound: dict[str, float],
) -> dict[str, Any]:
    """The lowest of several ratios; the others are named beside it."""
    worst = min(ratios, key=lambda label: ratios[label].value)
    found = ratios[worst]
    others = ", ".join(f"{label} {one.value:.3f}" for label, one in ratios.items())
    speed = operations / found.baseline_seconds / 1e9
    return measuring.result(name, speed, "GFLOP/s", f"{against} ({others})", found, **bound)


def label(threads: int) -> str:
    return f"{threads}t"


def ordered(size: int, threads: int) -> dict[str, Any]:
    a, b = square(size)
    ours = product("ord32", a, b, threads)
    ratios = {label(threads): compare(stock(a, b), ours)}
    name = f"gemm.ord32.{size}.{threads}t"
    return entry(name, ratios, 2 * size**3, "torch.mm fp32", floor(1.6, 0.9))


def against_best(size: int, blas: openblas_worker.Client) -> dict[str, Any]:
    """Against the faster of torch and OpenBLAS, per number of threads."""
    a, b = square(size)
    ratios = {}
    for threads in THREADS:
        ours = product("ord32", a, b, threads)
        times: dict[str, list[float]] = {"torch": [], "OpenBLAS": [], "potl": []}
        theirs = stock(a, b)
        theirs(), ours(), blas.seconds(size, threads)
        for _ in range(ROUNDS):
            times["torch"].append(rested(theirs))
            time.sleep(REST)
            times["OpenBLAS"].append(blas.seconds(size, threads))
            times["potl"].append(rested(ours))
        best = min(("torch", "OpenBLAS"), key=lambda side: sorted(times[side])[ROUNDS // 2])
        pairs = list(zip(times[best], times["potl"], strict=True))
        ratios[f"{label(threads)} to {best}"] = measuring.of_pairs(pairs)
    name, against = f"gemm.ord32.best.{size}", "better of torch.mm and OpenBLAS SkylakeX"
    return entry(name, ratios, 2 * size**3, against, {"at_least": 0.85})


def in_double(mode: str, size: int, bound: dict[str, float]) -> dict[str, Any]:
    """A mode that sums in float64, against torch's product in float64."""
    a, b = square(size)
    ratios = {}
    for threads in THREADS:
        ours = product(mode, a, b, threads)
        ratios[label(threads)] = compare(stock(a.double(), b.double()), ours)
    return entry(f"gemm.{mode}.{size}", ratios, 2 * size**3, "torch.mm fp64", bound)


def in_integers(mode: str, size: int, at_least: float) -> dict[str, Any]:
    a, b = square(size)
    ratios = {}
    for threads in THREADS:
        reference, ours = product("ord32", a, b, threads), product(mode, a, b, threads)
        ratios[label(threads)] = compare(reference, ours)
    bound = {"at_least": at_least}
    return entry(f"gemm.{mode}.{size}", ratios, 2 * size**3, "gemm.ord32", bound)


def transposes(rows: int, columns: int, depth: int) -> Iterator[tuple[str, torch.Tensor, Any]]:
    """Operands that lie as they are or transposed: N or T, for both."""
    generator = torch.Generator().manual_seed(rows)
    for first in "NT":
        a = torch.randn((rows, depth) if first == "N" else (depth, rows), generator=generator)
        for second in "NT":
            b = torch.randn(
                (depth, columns) if second == "N" else (columns, depth), generator=generator
            )
            yield first + second, a if first == "N" else a.t(), b if second == "N" else b.t()


def shapes() -> dict[str, Any]:
    means, worst = {}, []
    for threads in THREADS:
        ratios = []
        for rows, columns, depth in SHAPES:
            for kind, a, b in transposes(rows, columns, depth):
                ours = product("ord32", a, b, threads)
                found = compare(stock(a, b), ours)
                ratios.append(found.value)
                worst.append((found.value, f"{threads}t {kind} {rows}x{columns}x{depth}"))
                print(
                    f"{threads} thread(s) {kind} {rows:6} x {columns:5} x {depth:6}  "
                    f"{found.value:6.3f} [{found.low:.3f}, {found.high:.3f}]",
                    flush=True,
                )
        means[label(threads)] = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
    others = ", ".join(f"{name} {value:.3f}" for name, value in means.items())
    lowest = "worst {1} {0:.3f}".format(*min(worst))
    against = (
        f"torch.mm fp32, geometric mean of {len(SHAPES)} shapes, 4 transposes ({others}; {lowest})"
    )
    return measuring.result(
        "gemm.ord32.shapes", min(means.values()), "ratio", against, **floor(1.5, 0.95)
    )


def plan(blas: openblas_worker.Client | None) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    for size in (512, 1024, 2048):
        for threads in THREADS:
            yield f"gemm.ord32.{size}.{threads}t", lambda s=size, t=threads: ordered(s, t)
    for size in (512, 1024, 2048):
        if blas is not None:
            yield f"gemm.ord32.best.{size}", lambda s=size: against_best(s, blas)
    for size in (1024, 2048):
        yield f"gemm.log64.{size}", lambda s=size: in_double("log64", s, floor(1.4, 0.9))
        yield f"gemm.cr32.{size}", lambda s=size: in_double("cr32", s, floor(1.3, 0.85))
        yield f"gemm.xint24.{size}", lambda s=size: in_integers("xint24", s, 0.42)
        yield f"gemm.xint16.{size}", lambda s=size: in_integers("xint16", s, 0.75)
    yield "gemm.ord32.shapes", shapes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT")
    only = parser.parse_args().only
    print(f"{measuring.processor()} ({vendor()}), potl runs {_core.active_isa()}")
    results = []
    with openblas_worker.start() as blas:
        if isinstance(blas, str):
            print(f"gemm.ord32.best is skipped: {blas}")
        for name, measure in plan(None if isinstance(blas, str) else blas):
            if only in name:
                results.append(measure())
                print(json.dumps(results[-1]), flush=True)
    print(f"load averages {os.getloadavg()}")
    if not only:
        measuring.write("gemm", results)


if __name__ == "__main__":
    main()
