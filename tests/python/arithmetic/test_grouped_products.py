# SPDX-License-Identifier: Apache-2.0
"""Products of groups, in which mixtures of experts compute: those of the groups one by one."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

pytest.importorskip("potl._torch")

import potl

ENDS = torch.tensor([3, 3, 8], dtype=torch.int32)
SPANS = [(0, 3), (3, 3), (3, 8)]


def values(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def grouped(a: Tensor, b: Tensor, ends: Tensor | None = ENDS) -> Tensor:
    return torch.nn.functional.grouped_mm(a, b, offs=ends)


@pytest.mark.parametrize("mode", ["ord32", "cr32", "xint24"])
def test_rows_columns_and_terms_are_multiplied_by_group(mode: str) -> None:
    rows, columns = values(8, 16), values(16, 8)
    with potl.deterministic(mode):
        weights, heights = values(3, 16, 4), values(3, 4, 16)
        of_rows = [rows[i:j] @ w for (i, j), w in zip(SPANS, weights, strict=True)]
        assert torch.equal(grouped(rows, weights), torch.cat(of_rows))
        of_columns = [h @ columns[:, i:j] for (i, j), h in zip(SPANS, heights, strict=True)]
        assert torch.equal(grouped(heights, columns), torch.cat(of_columns, 1))
        left, right = values(4, 8), values(8, 16)
        of_terms = [left[:, i:j] @ right[i:j] for i, j in SPANS]
        assert torch.equal(grouped(left, right), torch.stack(of_terms))
        assert torch.equal(grouped(heights, weights, None), heights @ weights)


def test_gradients_are_those_of_the_groups() -> None:
    rows, weights = values(8, 16).requires_grad_(), values(3, 16, 4).requires_grad_()
    slope = values(8, 4)
    with potl.deterministic():
        found = torch.autograd.grad(grouped(rows, weights), (rows, weights), slope)
        one_by_one = torch.cat([rows[i:j] @ weights[k] for k, (i, j) in enumerate(SPANS)])
        expected = torch.autograd.grad(one_by_one, (rows, weights), slope)
    torch.testing.assert_close(found, expected)


def test_what_is_behind_the_last_group_gets_zeros() -> None:
    # torch leaves there what was in the memory.
    with potl.deterministic():
        short = grouped(values(8, 16), values(3, 16, 4), ENDS.clamp_max(5))
    assert not short[5:].any() and short[:5].any()


@pytest.mark.parametrize("ends", [[3, 2, 8], [3, 3, 9], [-1, 3, 8], [3, 8]])
def test_groups_that_do_not_fit_are_an_error(ends: list[int]) -> None:
    places = torch.tensor(ends, dtype=torch.int32)
    with potl.deterministic(), pytest.raises(RuntimeError, match="grouped_mm"):
        grouped(values(8, 16), values(3, 16, 4), places)
