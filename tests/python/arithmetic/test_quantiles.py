# SPDX-License-Identifier: Apache-2.0
"""Versions of torch have other quantiles, and other gradients where numbers are equal: these are
those of blocks, in any version."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

pytest.importorskip("potl._torch")

import potl

NAN, INF = float("nan"), float("inf")
LINE = (0.1, 0.7, 1.3, 2.9, 3.3, 7.1)
MODES = ("linear", "lower", "higher", "midpoint", "nearest")
QUANTILES: dict[float, tuple[str, ...]] = {
    # Of LINE in float32, for each of the modes.
    0.1: ("0x1.99999ap-2", "0x1.99999ap-4", "0x1.666666p-1", "0x1.99999ap-2", "0x1.99999ap-4"),
    0.7: ("0x1.8ccccc0p+1", "0x1.733334p+1", "0x1.a66666p+1", "0x1.8ccccc0p+1", "0x1.a66666p+1"),
    0.9: ("0x1.4ccccc0p+2", "0x1.a66666p+1", "0x1.c66666p+2", "0x1.4ccccc0p+2", "0x1.a66666p+1"),
}


@pytest.mark.parametrize("q", QUANTILES)
def test_ranks_are_rounded_to_the_type_of_the_numbers(q: float) -> None:
    line = torch.tensor(LINE)
    expected = [float.fromhex(one) for one in QUANTILES[q]]
    with potl.deterministic():
        for function in (torch.quantile, torch.nanquantile):
            for given in (q, torch.tensor(q)):
                found = [function(line, given, interpolation=mode).item() for mode in MODES]
                assert found == expected


def gradient(result: Tensor, x: Tensor) -> list[float]:
    (got,) = torch.autograd.grad(result, x)
    return [float(one) for one in got]


def test_of_equal_numbers_a_stable_sort_says_which_has_the_gradient() -> None:
    with potl.deterministic():
        x = torch.tensor([3.0, 1, 1, 2, 2, 2, 0], requires_grad=True)
        assert gradient(x.quantile(0.5), x) == [0, 0, 0, 1, 0, 0, 0]
        assert gradient(x.quantile(0.75), x) == [0, 0, 0, 0, 0.5, 0.5, 0]
        assert gradient(x.quantile(0.75, interpolation="midpoint"), x) == [0, 0, 0, 0, 0.5, 0.5, 0]
        both = x.quantile(torch.tensor([0.5, 1.0]))
        assert gradient(both.sum(), x) == [1, 0, 0, 1, 0, 0, 0]
        x = torch.tensor([3.0, 1, NAN, 2, 2], requires_grad=True)
        assert gradient(x.nanquantile(0.5), x) == [0, 0, 0, 0.5, 0.5]
        assert gradient(x.quantile(0.5), x) == [0, 0, 1, 0, 0]


def test_a_rank_has_the_slope_between_its_numbers() -> None:
    with potl.deterministic():
        q = torch.tensor([0.1, 0.5], requires_grad=True)
        assert gradient(torch.tensor([0.0, 1.0, 3.0]).quantile(q).sum(), q) == [2, 0]


@pytest.mark.parametrize("function", [torch.quantile, torch.nanquantile])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shapes_and_values_are_torchs(function: object, dtype: torch.dtype) -> None:
    assert callable(function)
    # Ranks that every version computes exactly.
    x = torch.randn(5, 3, 9, generator=torch.Generator().manual_seed(0)).to(dtype)
    x[0, 0, 2], x[1, 2, 3], x[2, 1] = NAN, INF, NAN
    for q in (0.25, torch.tensor(0.5, dtype=dtype), torch.tensor([0.0, 0.75, 1.0], dtype=dtype)):
        for operand in (x, x.transpose(0, 2), x[0, 0, 0], x[:, 0, ::2]):
            for dim in (None, 0, -1):
                for keepdim in (False, True):
                    expected = function(operand, q, dim=dim, keepdim=keepdim)
                    with potl.deterministic():
                        found = function(operand, q, dim=dim, keepdim=keepdim)
                        into = torch.empty(0, dtype=dtype)
                        assert function(operand, q, dim=dim, keepdim=keepdim, out=into) is into
                    for one in (found, into):
                        torch.testing.assert_close(one, expected, equal_nan=True)


def test_each_row_of_a_vmap_has_a_quantile_of_its_own() -> None:
    x, q = torch.tensor([LINE, LINE]), torch.tensor([0.1, 0.9])
    with potl.deterministic():
        found = torch.func.vmap(lambda row, one: row.quantile(one))(x, q)
    assert found.tolist() == [float.fromhex(QUANTILES[one][0]) for one in (0.1, 0.9)]


def test_what_torch_refuses_is_refused() -> None:
    x = torch.tensor(LINE)
    with potl.deterministic():
        for wrong in (
            lambda: x.quantile(1.5),
            lambda: x.quantile(torch.tensor([[0.5]])),
            lambda: x.quantile(torch.tensor(0.5, dtype=torch.float64)),
            lambda: x.quantile(0.5, interpolation="cubic"),
            lambda: x.long().quantile(0.5),
            lambda: torch.empty(0).quantile(0.5),
        ):
            with pytest.raises(RuntimeError, match="quantile"):
                wrong()
        with pytest.raises(IndexError):
            x.quantile(0.5, dim=1)
