# SPDX-License-Identifier: Apache-2.0
"""Calls that sample at positions of a grid, align a sequence, measure distances, and solve."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from neural_case import Case, floats, integers
from torch import Tensor


def _grids() -> Iterator[Case]:
    plane, solid = floats(2, 3, 5, 7), floats(2, 3, 4, 5, 6)
    on_plane, in_solid = floats(2, 4, 6, 2, scale=1.3), floats(2, 3, 2, 4, 3, scale=1.3)
    borders = ("zeros", "border", "reflection")
    for mode, border, align in itertools.product(
        ("bilinear", "nearest", "bicubic"), borders, (False, True)
    ):

        def sample(x, grid, mode=mode, border=border, align=align):  # type: ignore[no-untyped-def]
            return F.grid_sample(x, grid, mode, border, align)

        yield Case(f"grid_sample/{mode}/{border}/{align}", sample, (plane, on_plane))
        if mode != "bicubic":
            yield Case(f"grid_sample/{mode}/{border}/{align}/3d", sample, (solid, in_solid))
    for shape in ((0, 3), (2, 0)):
        yield Case(
            f"grid_sample/none of {shape}",
            lambda x, grid: F.grid_sample(x, grid, align_corners=False),
            (floats(*shape, 5, 7), floats(shape[0], 4, 6, 2)),
        )
    yield Case(
        "grid_sample/one place twice",
        lambda x, grid: F.grid_sample(x, grid * 0, align_corners=True),
        (plane, on_plane),
    )
    for align in (False, True):
        yield Case(
            f"affine_grid/{align}",
            lambda x, align=align: F.affine_grid(x, [2, 3, 5, 6], align),
            (floats(2, 2, 3),),
        )
    yield Case(
        "affine_grid/3d", lambda x: F.affine_grid(x, [2, 1, 5, 6, 4], True), (floats(2, 3, 4),)
    )


def _ctc() -> Iterator[Case]:
    logits, labels = floats(12, 3, 5), 1 + integers(4, 3, 4)
    labels[0] = torch.tensor([1, 1, 2, 2])
    for reduction in ("none", "mean", "sum"):
        yield Case(
            f"ctc/{reduction}",
            lambda x, y, reduction=reduction: F.ctc_loss(
                x.log_softmax(-1), y, (12, 10, 7), (4, 2, 3), reduction=reduction
            ),
            (logits, labels),
        )
    for name, lengths in (("an empty target", (0, 2, 3)), ("empty targets", (0, 0, 0))):
        yield Case(
            f"ctc/{name}",
            lambda x, y, lengths=lengths: F.ctc_loss(x.log_softmax(-1), y, (12, 10, 7), lengths),
            (logits, labels),
        )
    yield Case(
        "ctc/one row, last blank",
        lambda x, y: F.ctc_loss(x.log_softmax(-1), y, (12, 10, 7), (2, 2, 1), blank=4),
        (logits, torch.tensor([1, 2, 1, 1, 3])),
    )
    yield Case(
        "ctc/more labels than frames",
        lambda x, y: F.ctc_loss(x.log_softmax(-1), y, (12, 0, 2), (4, 2, 3), zero_infinity=True),
        (logits, labels),
    )
    yield Case(
        "ctc/lengths in tensors",
        lambda x, y, frames, lengths: F.ctc_loss(x.log_softmax(-1), y, frames, lengths),
        (logits, labels, torch.tensor([12, 10, 7]), torch.tensor([4, 2, 3])),
    )
    yield Case(
        "ctc/one sample",
        lambda x, y: F.ctc_loss(x[:, 0].log_softmax(-1), y[0], (12,), (4,)),
        (logits, labels),
    )


def _distances() -> Iterator[Case]:
    for p in (0.0, 1.0, 1.5, 2.0, 3.0, float("inf")):
        yield Case(
            f"cdist/{p}",
            lambda a, b, p=p: torch.cdist(a, b, p),
            (floats(2, 4, 5), floats(2, 3, 5)),
        )
        yield Case(f"pdist/{p}", lambda a, p=p: F.pdist(a, p), (floats(5, 3),))
    yield Case("pdist/one row", F.pdist, (floats(1, 3),))
    yield Case("cdist/to itself", lambda a: torch.cdist(a, a), (floats(4, 5),))
    yield Case("cdist/by products", torch.cdist, (floats(30, 5), floats(27, 5)))
    yield Case(
        "cross", lambda a, b: torch.linalg.cross(a, b, dim=1), (floats(4, 3, 2), floats(3, 2)[None])
    )
    yield Case("histc", lambda x: torch.histc(x, 7, -1, 1), (floats(60),))
    yield Case("histc/its own range", lambda x: torch.histc(x, 5), (floats(60),))
    yield Case("histc/bounds", lambda x: torch.histc(x.float(), 4, 0, 3), (integers(4, 50),))


def _triangular() -> Iterator[Case]:
    solve = torch.linalg.solve_triangular
    a, b = floats(2, 6, 6, scale=0.3) + 2 * torch.eye(6, dtype=torch.float64), floats(2, 6, 3)
    for upper, ones in itertools.product((False, True), (False, True)):
        yield Case(
            f"solve_triangular/{upper}/{ones}",
            lambda a, b, upper=upper, ones=ones: solve(
                a.triu() if upper else a.tril(), b, upper=upper, unitriangular=ones
            ),
            (a, b),
        )
    yield Case(
        "solve_triangular/right",
        lambda a, b: solve(a.tril(), b.mT, upper=False, left=False),
        (a, b),
    )
    yield Case(
        "solve_triangular/broadcast", lambda a, b: solve(a[0].tril(), b, upper=False), (a, b)
    )


def _decompositions() -> Iterator[Case]:
    linalg = torch.linalg
    # Far from singular; the transposed one is not contiguous, of which torch factors another.
    a, b = floats(2, 5, 5) + 4 * torch.eye(5, dtype=torch.float64), floats(2, 5, 3)
    yield Case("solve", linalg.solve, (a, b))
    yield Case("solve/transposed", lambda a, b: linalg.solve(a.mT, b), (a, b))
    yield Case("solve/right", lambda a, b: linalg.solve(a, b.mT, left=False), (a, b))
    yield Case("solve/vectors", linalg.solve, (a, floats(2, 5)))
    yield Case("solve/one of many", linalg.solve, (a[0], b))
    yield Case("solve/none", linalg.solve, (a[:0], b[:0]))
    yield Case("inv", linalg.inv, (a,))
    yield Case("det", linalg.det, (a,), 1e-4)
    yield Case("slogdet", lambda a: tuple(linalg.slogdet(a)), (a,))
    yield Case("lu_solve", lambda a, b: linalg.lu_solve(*linalg.lu_factor(a), b), (a, b))
    yield Case("cholesky", lambda a: linalg.cholesky(a @ a.mT), (a,), 1e-4)
    yield Case("cholesky/upper", lambda a: linalg.cholesky(a @ a.mT, upper=True), (a,), 1e-4)
    yield Case("cholesky_solve", lambda a, b: torch.cholesky_solve(b, a.tril()), (a, b))
    tall, square = floats(2, 7, 4), floats(2, 4, 4)
    for mode, x in (("reduced", tall), ("reduced", square), ("complete", square)):
        yield Case(
            f"qr/{mode}/{tuple(x.shape)}",
            lambda x, mode=mode: tuple(linalg.qr(x, mode)),
            (x,),
            1e-4,
        )
    yield Case("householder_product", linalg.householder_product, (tall, floats(2, 3)), 1e-4)
    yield Case("householder_product/none", linalg.householder_product, (tall[:0], floats(0, 4)))
    several = torch.stack([floats(4, 4, scale=scale) for scale in (0.0, 0.1, 1.0, 3.0)])
    yield Case("matrix_exp", linalg.matrix_exp, (several,), 1e-4)
    yield Case("matrix_exp/none", linalg.matrix_exp, (square[:0],))


def _spectra() -> Iterator[Case]:
    """Functions of vectors that do not depend on their signs."""
    linalg = torch.linalg
    square, tall = floats(2, 5, 5), floats(2, 7, 4)

    def eigen(a: Tensor, upper: str) -> Tensor:
        values, vectors = linalg.eigh(a, upper)
        return (vectors * values.tanh()[..., None, :]) @ vectors.mT

    def singular(a: Tensor) -> Tensor:
        u, values, v = linalg.svd(a, full_matrices=False)
        return (u * values.tanh()[..., None, :]) @ v

    yield Case("eigh", lambda a: eigen(a, "L"), (square,), 1e-4)
    yield Case("eigh/upper", lambda a: eigen(a, "U"), (square,), 1e-4)
    yield Case("eigh/none", lambda a: eigen(a, "L"), (square[:0],))
    yield Case("eigvalsh", linalg.eigvalsh, (square,), 1e-4)
    for name, x in (("square", square), ("tall", tall), ("wide", tall.mT)):
        yield Case(f"svd/{name}", singular, (x,), 1e-4)
        yield Case(f"svdvals/{name}", linalg.svdvals, (x,), 1e-4)
        yield Case(f"pinv/{name}", linalg.pinv, (x,), 1e-3)
        yield Case(
            f"lstsq/{name}", lambda a, b: linalg.lstsq(a, b)[0], (x, floats(2, x.size(-2), 3)), 1e-3
        )
    yield Case("svd/full", lambda a: linalg.svd(a)[1], (tall,), 1e-4)
    yield Case("lstsq/vectors", lambda a, b: linalg.lstsq(a, b)[0], (tall, floats(2, 7)), 1e-3)
    yield Case(
        "lstsq/driver",
        lambda a, b: tuple(linalg.lstsq(a, b, driver="gelsd")),
        (tall, floats(2, 7, 2)),
        1e-3,
    )
    yield Case("nuclear norm", lambda a: linalg.matrix_norm(a, "nuc"), (tall,), 1e-4)
    yield Case("spectral norm", lambda a: linalg.matrix_norm(a, 2), (tall,), 1e-4)
    yield Case("cholesky_inverse", lambda a: torch.cholesky_inverse(a.tril()), (square,), 1e-3)


def cases() -> list[Case]:
    parts = (_ctc(), _triangular(), _decompositions())
    wide = [dataclasses.replace(case, narrow=False) for part in parts for case in part]
    spectra = [dataclasses.replace(case, narrow=False) for case in _spectra()]
    return [*_grids(), *_distances(), *wide, *spectra]
