# SPDX-License-Identifier: Apache-2.0
"""Where a value equals its bound, or is NaN, versions of torch have other gradients: these are the
gradients of blocks, in any version."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

pytest.importorskip("potl._torch")

import potl

NAN, INF = float("nan"), float("inf")
LINE = (-INF, -2.0, -1.0, 0.0, 1.0, 2.0, INF, NAN)

Bounded = Callable[[Tensor, float, float], Tensor]
SCALARS: dict[str, tuple[Bounded, str, str]] = {
    # The gradients of x: bounds -1 and 1, and bounds 1 and -1, which cross.
    "clamp": (lambda x, low, high: x.clamp(low, high), "00111000", "00000000"),
    "clamp_": (lambda x, low, high: x.clone().clamp_(low, high), "00111000", "00000000"),
    "clamp from": (lambda x, low, high: x.clamp(min=low), "00111110", "00001110"),
    "clamp to": (lambda x, low, high: x.clamp(max=high), "11111000", "11100000"),
    "clamp_min": (lambda x, low, high: x.clamp_min(low), "00111110", "00001110"),
    "clamp_min_": (lambda x, low, high: x.clone().clamp_min_(low), "00111110", "00001110"),
    "clamp_max": (lambda x, low, high: x.clamp_max(high), "11111000", "11100000"),
    "clamp_max_": (lambda x, low, high: x.clone().clamp_max_(high), "11111000", "11100000"),
}

Several = Callable[[Tensor, Tensor, Tensor], Tensor]
TENSORS: dict[str, tuple[Several, float, float, tuple[str, str, str]]] = {
    # The gradients of x, of the lower and of the upper bound.
    "clamp": (torch.clamp, -1, 1, ("00111000", "11000000", "00000110")),
    "clamp equal": (torch.clamp, 1, 1, ("00001000", "00000000", "00000110")),
    "clamp crossing": (torch.clamp, 1, -1, ("00000000", "00000000", "11111111")),
    "clamp NaN": (torch.clamp, NAN, 1, ("00000000", "00000000", "00000110")),
    "clamp_": (
        lambda x, low, high: x.clone().clamp_(low, high),
        *(-1, 1, ("00111000", "11000000", "00000110")),
    ),
    "clamp_min": (
        lambda x, low, _: torch.clamp_min(x, low),
        *(1, 0, ("00001110", "11110000", "00000000")),
    ),
    "clamp_min_": (
        lambda x, low, _: x.clone().clamp_min_(low),
        *(1, 0, ("00001110", "11110000", "00000000")),
    ),
    "clamp_max": (
        lambda x, _, high: torch.clamp_max(x, high),
        *(0, 1, ("11111000", "00000000", "00000110")),
    ),
    "clamp_max_": (
        lambda x, _, high: x.clone().clamp_max_(high),
        *(0, 1, ("11111000", "00000000", "00000110")),
    ),
    "fmax": (lambda x, y, _: torch.fmax(x, y), 1, 0, ("00001110", "11110001", "00000000")),
    "fmax NaN": (lambda x, y, _: torch.fmax(x, y), NAN, 0, ("11111111", "00000000", "00000000")),
    "fmin": (lambda x, y, _: torch.fmin(x, y), 1, 0, ("11111000", "00000111", "00000000")),
    "fmin NaN": (lambda x, y, _: torch.fmin(x, y), NAN, 0, ("11111111", "00000000", "00000000")),
}


def digits(gradients: Sequence[Tensor]) -> tuple[str, ...]:
    """A gradient of twos for each result, as 1; anything else that is not 0 as a question mark."""
    names = {0.0: "0", 2.0: "1"}
    return tuple("".join(names.get(g, "?") for g in one.tolist()) for one in gradients)


def gradients(function: Several, low: float, high: float, dtype: torch.dtype) -> tuple[str, ...]:
    line = torch.tensor(LINE, dtype=dtype)
    operands = [line, torch.full_like(line, low), torch.full_like(line, high)]
    with torch.no_grad():
        expected = function(*operands)
    for one in operands:
        one.requires_grad_()
    result = function(*operands)
    torch.testing.assert_close(result.detach(), expected, rtol=0, atol=0, equal_nan=True)
    twos = torch.full_like(result, 2, requires_grad=True)
    first = torch.autograd.grad(
        result, operands, twos, create_graph=True, allow_unused=True, materialize_grads=True
    )
    # What a result's gradient passes, the second derivative passes.
    (second,) = torch.autograd.grad(sum(one.sum() for one in first), twos)
    passes = sum(one.detach() for one in first) / 2
    assert torch.equal(second, passes)
    return digits(first)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", SCALARS)
def test_numbers_as_bounds(name: str, dtype: torch.dtype) -> None:
    bounded, ordered, crossing = SCALARS[name]
    for low, high, expected in ((-1.0, 1.0, ordered), (1.0, -1.0, crossing)):
        with potl.deterministic():
            x = torch.tensor(LINE, dtype=dtype, requires_grad=True)
            result = bounded(x, low, high)
            got = torch.autograd.grad(result, x, torch.full_like(result, 2))
            assert digits(got) == (expected,)
            torch.testing.assert_close(
                result.detach(), bounded(x.detach(), low, high), rtol=0, atol=0, equal_nan=True
            )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", TENSORS)
def test_tensors_as_bounds(name: str, dtype: torch.dtype) -> None:
    function, low, high, expected = TENSORS[name]
    with potl.deterministic():
        assert gradients(function, low, high, dtype) == expected


def test_bounds_of_other_shapes_get_sums() -> None:
    with potl.deterministic():
        x = torch.tensor([[-2.0, -1.0, 3.0], [0.0, 5.0, NAN]], requires_grad=True)
        low = torch.tensor(-1.0, requires_grad=True)
        high = torch.tensor([[2.0], [4.0]], requires_grad=True)
        torch.clamp(x, low, high).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [[0, 1, 0], [1, 0, 0]]
    assert low.grad is not None and low.grad.item() == 1
    assert high.grad is not None and high.grad.tolist() == [[1], [1]]


def test_a_gradient_of_minus_zero_keeps_its_sign() -> None:
    with potl.deterministic():
        for function in (lambda x: x.clamp(0, 1), lambda x: x.clone().clamp_(0, 1)):
            x = torch.tensor([0.5, 2.0], requires_grad=True)
            (got,) = torch.autograd.grad(function(x), x, torch.tensor([-0.0, -0.0]))
            assert got.signbit().tolist() == [True, False]


def test_zeros_of_two_signs_have_the_operators_values() -> None:
    with potl.deterministic():
        x, y = torch.tensor([0.0, -0.0], requires_grad=True), torch.tensor([-0.0, 0.0])
        for function in (torch.fmax, torch.fmin, torch.clamp_min, torch.clamp_max):
            assert torch.equal(function(x, y).signbit(), function(x.detach(), y).signbit())


def test_losses_with_a_margin_have_them_too() -> None:
    with potl.deterministic():
        x = torch.tensor([0.5, 1.0, 1.5], requires_grad=True)
        F.hinge_embedding_loss(x, -torch.ones(3), margin=1.0, reduction="sum").backward()
    assert x.grad is not None and x.grad.tolist() == [-1, -1, 0]


def test_without_a_gradient_nothing_is_composed() -> None:
    x = torch.ones(3, requires_grad=True)
    with potl.deterministic():
        with torch.no_grad():
            assert not x.clamp(0, 1).requires_grad
        with pytest.raises(RuntimeError, match="leaf"):
            x.clamp_(0, 1)
        with pytest.raises(RuntimeError, match="out="):
            torch.clamp(x, 0, 1, out=torch.empty(3))
        assert torch.arange(3).clamp(1, 2).tolist() == [1, 1, 2]


def test_lists_of_tensors_with_gradients_are_refused() -> None:
    x = torch.ones(3, requires_grad=True)
    with potl.deterministic():
        assert torch._foreach_clamp_min([x.detach()], 2.0)[0].tolist() == [2, 2, 2]
        with pytest.raises(potl.NotReproducible, match=r"call torch\.clamp for each tensor"):
            torch._foreach_clamp_min([x], 2.0)


def test_after_the_block_the_gradient_is_torchs() -> None:
    with potl.deterministic():
        pass
    node = torch.ones(3, requires_grad=True).clamp(0, 1).grad_fn
    assert node is not None and "Clamp" in node.name()
