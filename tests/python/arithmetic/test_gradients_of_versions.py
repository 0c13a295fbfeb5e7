# SPDX-License-Identifier: Apache-2.0
"""Gradients that versions of torch compute in different ways have one set of bits in a block."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

pytest.importorskip("potl._torch")

import potl

X = torch.linspace(0.1, 7.3, 97, dtype=torch.float64)
G = torch.linspace(-3.1, 2.7, 97, dtype=torch.float64)


@pytest.mark.parametrize("function", [torch.log10, lambda x: x.clone().log10_()])
def test_log10_in_double_divides_by_the_nearest_number_first(
    function: Callable[[Tensor], Tensor],
) -> None:
    with potl.deterministic():
        x = X.clone().requires_grad_()
        result = function(x)
        g = G.clone().requires_grad_()
        (got,) = torch.autograd.grad(result, x, g, create_graph=True)
        assert torch.equal(result, X.log10())
        assert torch.equal(got, G / math.log(10) / X)
        (second,) = torch.autograd.grad(got.sum(), x)
        torch.testing.assert_close(second, -G / (math.log(10) * X * X))


@pytest.mark.parametrize("function", [torch.ldexp, lambda x, e: x.clone().ldexp_(e)])
def test_ldexp_by_whole_numbers_scales_its_gradient(
    function: Callable[[Tensor, Tensor], Tensor],
) -> None:
    exponents = torch.tensor([-3, -1, 0, 2, 40])
    with potl.deterministic():
        for dtype in (torch.float32, torch.float64):
            x = torch.tensor([1.5, -2, 3, 0.1, 7], dtype=dtype, requires_grad=True)
            result = function(x, exponents)
            assert torch.equal(result, x.detach().ldexp(exponents))
            (got,) = torch.autograd.grad(result, x, torch.full_like(x, 3))
            assert got.tolist() == [3 * 2.0**one for one in exponents.tolist()]


@pytest.mark.parametrize("function", [torch.ldexp, lambda x, e: x.clone().ldexp_(e)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_ldexp_has_the_type_and_the_values_that_it_has_without_a_gradient(
    function: Callable[[Tensor, Tensor], Tensor], dtype: torch.dtype
) -> None:
    x = torch.tensor([1.5, -2, 1e-5, 0.0, math.inf], dtype=dtype)
    with potl.deterministic():
        for exponent in (-1030, -150, -3, 2, 130, 200):
            exponents = torch.full((5,), exponent)
            expected = function(x, exponents)
            found = function(x.clone().requires_grad_(), exponents)
            assert found.dtype is expected.dtype
            assert torch.equal(found, expected)


@pytest.mark.parametrize("with_replacement", [False, True])
def test_combinations_add_gradients_in_the_order_of_the_result(with_replacement: bool) -> None:
    x = X.float().requires_grad_()
    with potl.deterministic():
        result = torch.combinations(x, 2, with_replacement)
        places = torch.combinations(torch.arange(97), 2, with_replacement)
        assert torch.equal(result, x.detach()[places])
        g = (torch.arange(result.numel()) * 0.37).sin().reshape(result.shape)
        (got,) = torch.autograd.grad(result, x, g)
        expected = torch.zeros(97).index_add(0, places.reshape(-1), g.reshape(-1))
    assert torch.equal(got, expected)


@pytest.mark.parametrize("shape", [(5, 2), (2, 5), (3, 3)])
def test_trace_has_the_gradient_of_its_diagonal(shape: tuple[int, int]) -> None:
    with potl.deterministic():
        x = torch.randn(shape, requires_grad=True)
        result = x.trace()
        assert torch.equal(result, x.detach().trace())
        (got,) = torch.autograd.grad(result, x, torch.tensor(-2.0))
        expected = torch.zeros(shape)
        expected.diagonal().fill_(-2)
        assert torch.equal(got, expected)
        assert not got[expected == 0].signbit().any()


@pytest.mark.parametrize("function", [torch.det, torch.linalg.det])
def test_the_determinant_of_one_number_has_the_gradient_of_the_number(
    function: Callable[[Tensor], Tensor],
) -> None:
    numbers = torch.cat([X.float(), torch.tensor([0.0, -0.0, 1e-30])]).view(-1, 1, 1)
    g = (torch.arange(100) * 0.37).sin()
    with potl.deterministic():
        x = numbers.clone().requires_grad_()
        result = function(x)
        assert torch.equal(result, function(numbers))
        assert torch.equal(x.detach(), numbers)
        (got,) = torch.autograd.grad(result, x, g)
    assert torch.equal(got, g.view(-1, 1, 1))
