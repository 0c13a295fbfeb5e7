#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Matrix products in every mode against stock torch in the same process, and ord32 against an
OpenBLAS with its AVX-512 kernels in a process of its own. One thread and two; the lower ratio
counts.

potl's side is torch.mm inside `potl.deterministic`, on torch's own threads; the other side is the
same call outside. Blocks of calls alternate; entering the mode and the first call of a block are
not timed. log64 writes the rounding log of every product, as a trainer does at the end of a step.

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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import measuring
import openblas_worker
import torch

import potl
from potl import _core

ROUNDS = 25 if measuring.FULL else 9
MOST_ROUNDS = 41  # where the machine is noisy
SECONDS = 0.02  # of each timed block, about
REST = 0.06  # before and after another process: its threads still wait for work, spinning
THREADS = (1, 2)
Work = Callable[[], object]

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


@dataclass(frozen=True)
class Side:
    """A product, and the block that it is computed in."""

    work: Work
    around: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext

    def seconds(self, times: int) -> float:
        """Of one product, the mean of so many."""
        with self.around():
            self.work()
            began = time.perf_counter()
            for _ in range(times):
                self.work()
            return (time.perf_counter() - began) / times


def repetitions(side: Side) -> int:
    return max(1, round(SECONDS / max(1e-6, min(side.seconds(1) for _ in range(3)))))


def compare(theirs: Side, ours: Side) -> measuring.Ratio:
    """The other side's time over potl's, from blocks in turn."""
    times = repetitions(ours)
    return measuring.paired(
        lambda: theirs.seconds(times), lambda: ours.seconds(times), rounds=ROUNDS, most=MOST_ROUNDS
    )


def product(mode: str, a: torch.Tensor, b: torch.Tensor) -> Side:
    """potl's product of two matrices."""
    out = torch.empty(a.shape[0], b.shape[1])
    if mode != "log64":
        return Side(lambda: torch.mm(a, b, out=out), lambda: potl.deterministic(mode))
    trainer = potl.RoundingTrainer()

    def step() -> None:
        trainer.begin_step(1)
        torch.mm(a, b, out=out)
        trainer.end_step()

    return Side(step, lambda: potl.deterministic(mode, log=trainer))


def stock(a: torch.Tensor, b: torch.Tensor) -> Side:
    out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype)
    return Side(lambda: torch.mm(a, b, out=out))


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
    torch.set_num_threads(threads)
    ratios = {label(threads): compare(stock(a, b), product("ord32", a, b))}
    name = f"gemm.ord32.{size}.{threads}t"
    return entry(name, ratios, 2 * size**3, "torch.mm fp32", floor(1.6, 0.9))


def against_best(size: int, blas: openblas_worker.Client) -> dict[str, Any]:
    """Against the faster of torch and OpenBLAS, per number of threads."""
    a, b = square(size)
    ratios = {}
    for threads in THREADS:
        torch.set_num_threads(threads)
        theirs, ours = stock(a, b), product("ord32", a, b)
        repeated = repetitions(ours)
        times: dict[str, list[float]] = {"torch": [], "OpenBLAS": [], "potl": []}
        for _ in range(ROUNDS):
            times["torch"].append(theirs.seconds(repeated))
            times["potl"].append(ours.seconds(repeated))
            time.sleep(REST)
            times["OpenBLAS"].append(blas.seconds(size, threads, repeated))
            time.sleep(REST)
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
        torch.set_num_threads(threads)
        ours = product(mode, a, b)
        ratios[label(threads)] = compare(stock(a.double(), b.double()), ours)
    return entry(f"gemm.{mode}.{size}", ratios, 2 * size**3, "torch.mm fp64", bound)


def in_integers(mode: str, size: int, at_least: float) -> dict[str, Any]:
    a, b = square(size)
    ratios = {}
    for threads in THREADS:
        torch.set_num_threads(threads)
        ratios[label(threads)] = compare(product("ord32", a, b), product(mode, a, b))
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
        torch.set_num_threads(threads)
        ratios = []
        for rows, columns, depth in SHAPES:
            for kind, a, b in transposes(rows, columns, depth):
                found = compare(stock(a, b), product("ord32", a, b))
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
