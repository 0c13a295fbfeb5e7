# SPDX-License-Identifier: Apache-2.0
"""The table of docs/experiments/freivalds.md: how far off products are that nobody forged, in units
of the bounds of Freivalds' check.

scripts/experiment freivalds
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

import potl
from potl import _core

ROWS, COLUMNS, DEPTHS = 64, 96, (16, 128, 1024, 8192)
Matrix: TypeAlias = NDArray[np.float32]

FAMILIES: dict[str, Callable[[np.random.Generator, tuple[int, int]], NDArray[np.float64]]] = {
    "normal": lambda random, shape: random.standard_normal(shape),
    "ReLU": lambda random, shape: np.maximum(random.standard_normal(shape), 0),
    "uniform": lambda random, shape: random.random(shape),
    "log-normal": lambda random, shape: np.exp(2 * random.standard_normal(shape)),
    "Student, 2": lambda random, shape: random.standard_t(2, shape),
    "sorted": lambda random, shape: np.sort(
        random.standard_normal(shape), axis=int(shape[0] == ROWS)
    ),
    "constant": lambda random, shape: np.full(shape, 0.1),
}


def _ord32(a: Matrix, b: Matrix) -> Matrix:
    c = np.empty((a.shape[0], b.shape[1]), np.float32)
    _core.gemm("ord32", a, b, c)
    return c


def _torch(a: Matrix, b: Matrix) -> Matrix:
    return (torch.from_numpy(a) @ torch.from_numpy(b)).numpy()


def _chain(a: Matrix, b: Matrix) -> Matrix:
    """One chain of additions: the worst order in use."""
    c = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        c += a[:, k : k + 1] * b[k : k + 1]
    return c


def _rounded(values: Matrix, bits: int) -> Matrix:
    mantissa, exponent = np.frexp(values)
    return np.ldexp(np.round(mantissa * 2**bits) / 2**bits, exponent).astype(np.float32)


def _coarse(bits: int) -> Callable[[Matrix, Matrix], Matrix]:
    return lambda a, b: _torch(_rounded(a, bits), _rounded(b, bits))


ARITHMETIC = {
    "ord32": _ord32,
    "torch": _torch,
    "one chain": _chain,
    "TF32": _coarse(11),
    "bfloat16": _coarse(8),
}


def _pairs(depth: int, random: np.random.Generator) -> Iterator[tuple[str, Matrix, Matrix]]:
    for number, (left, draw_left) in enumerate(FAMILIES.items()):
        for right, draw_right in list(FAMILIES.items())[number:]:
            a = draw_left(random, (ROWS, depth)).astype(np.float32)
            b = draw_right(random, (depth, COLUMNS)).astype(np.float32)
            yield f"{left} x {right}", a, b


def main() -> None:
    random = np.random.default_rng(1)
    print("| depth | arithmetic | least | median | most | of the bound | not consistent |")
    print("|---|---|---|---|---|---|---|")
    for depth in DEPTHS:
        pairs = list(_pairs(depth, random))
        for name, multiply in ARITHMETIC.items():
            found = [(potl.freivalds(a, b, multiply(a, b)), pair) for pair, a, b in pairs]
            usual = [one.usual for one, _ in found]
            flagged = [pair for one, pair in found if one.outcome != "consistent"]
            text = ", ".join(flagged) if len(flagged) < 4 else f"{len(flagged)} of {len(pairs)}"
            print(
                f"| {depth} | {name} | {min(usual):.2g} | {statistics.median(usual):.2g} | "
                f"{max(usual):.2g} | {max(one.worst for one, _ in found):.2g} | {text or 'none'} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
