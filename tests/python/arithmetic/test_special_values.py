# SPDX-License-Identifier: Apache-2.0
"""Inside of a block an element's result depends on the element alone: not on whether torch's kernel
meets it in a vector, among the elements left over, or in a strided operand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

pytest.importorskip("potl._torch")

import potl

NAN, INFINITY = float("nan"), float("inf")
SPECIAL = (0.0, -0.0, NAN, -NAN, INFINITY, -INFINITY, 1.0, -1.0, 0.5, -0.5, 0.25, -0.25, 1e-40)
SPECIAL += (-1e-40, 3.4e38, -3.4e38, 2.5, -2.5, 3.0, -3.0, 6.0, 1e-3)
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)

aten = torch.ops.aten

UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "softshrink": F.softshrink,
    "softshrink 0": lambda x: F.softshrink(x, 0.0),
    "hardshrink": F.hardshrink,
    "hardtanh": F.hardtanh,
    "relu": torch.relu,
    "relu6": F.relu6,
    "threshold": lambda x: F.threshold(x, 0.1, 0.2),
    "threshold to -0": lambda x: F.threshold(x, 0.0, -0.0),
    "leaky_relu": F.leaky_relu,
    "leaky_relu 0": lambda x: F.leaky_relu(x, 0.0),
    "clamp": lambda x: x.clamp(-1, 1),
    "clamp from -0": lambda x: x.clamp(-0.0, 1.0),
    "clamp_min": lambda x: x.clamp_min(0.0),
    "clamp_max": lambda x: x.clamp_max(-0.0),
    "trunc": torch.trunc,
    "round": torch.round,
    "ceil": torch.ceil,
    "floor": torch.floor,
    "frac": torch.frac,
    "sgn": torch.sgn,
    "sign": torch.sign,
    "neg": torch.neg,
    "abs": torch.abs,
    "reciprocal": torch.reciprocal,
    "nan_to_num": torch.nan_to_num,
    "sqrt": torch.sqrt,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "logit": lambda x: torch.logit(x, 1e-6),
    "isposinf": torch.isposinf,
    "logical_not": torch.logical_not,
    "frexp": lambda x: torch.frexp(x)[0],
    "masked_fill": lambda x: x.masked_fill(x > 0, -0.0),
    "relu6 gradient": lambda x: _gradient(F.relu6, x),
    "hardtanh gradient": lambda x: _gradient(F.hardtanh, x),
    "softshrink gradient": lambda x: _gradient(F.softshrink, x),
    "hardshrink gradient": lambda x: _gradient(F.hardshrink, x),
    "threshold gradient": lambda x: _gradient(torch.relu, x),
    "leaky_relu gradient": lambda x: _gradient(F.leaky_relu, x),
    "hardswish gradient": lambda x: _gradient(F.hardswish, x),
    "hardsigmoid gradient": lambda x: _gradient(F.hardsigmoid, x),
    "logit gradient": lambda x: _gradient(lambda x: torch.logit(x, 1e-6), x),
    "clamp gradient": lambda x: _gradient(lambda x: x.clamp(-1, 1), x),
    "abs gradient": lambda x: _gradient(torch.abs, x),
}

BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "nextafter": torch.nextafter,
    "heaviside": torch.heaviside,
    "lt": torch.lt,
    "clamp": lambda a, b: torch.clamp(a, b, b),
    "where": lambda a, b: torch.where(a > b, a, b),
    "threshold_backward": lambda a, b: aten.threshold_backward(a, b, 0),
    "leaky_relu_backward": lambda a, b: aten.leaky_relu_backward(a, b, 0.1, False),
    "hardtanh_backward": lambda a, b: aten.hardtanh_backward(a, b, -1, 1),
    "softshrink_backward": lambda a, b: aten.softshrink_backward(a, b, 0.5),
    "hardshrink_backward": lambda a, b: aten.hardshrink_backward(a, b, 0.5),
    "prelu": lambda a, b: aten._prelu_kernel(a, b),
    "prelu gradient": lambda a, b: aten._prelu_kernel_backward(a, b, a)[0],
}


def _gradient(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    x = x.detach().requires_grad_()
    y = function(x)
    return torch.autograd.grad(y, x, torch.full_like(y, -0.75))[0]


def special(dtype: torch.dtype) -> Tensor:
    return torch.tensor(SPECIAL, dtype=torch.float64).to(dtype)


def bits(y: Tensor) -> bytes:
    """Every NaN counts as the same one: which it is depends on the processor."""
    y = y.detach().clone().resolve_conj()
    if y.is_complex():
        y = torch.view_as_real(y)
    if y.is_floating_point():
        y = torch.where(y.isnan(), torch.zeros_like(y).fill_(NAN), y)
        y = y.contiguous().view({2: torch.int16, 4: torch.int32, 8: torch.int64}[y.element_size()])
    return bytes(y.contiguous().numpy().tobytes())


def check(function: Callable[..., Tensor], *operands: Tensor) -> None:
    count = operands[0].numel()
    with potl.deterministic():
        whole = function(*operands)
        parts = [function(*(x[i : i + 1] for x in operands)) for i in range(count)]
        strided = function(*(torch.stack([x, x, x], 1)[:, 1] for x in operands))
    assert bits(whole) == bits(torch.cat(parts))
    assert bits(whole) == bits(strided)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UNARY)
def test_a_result_is_one_elements(name: str, dtype: torch.dtype) -> None:
    # Each value is in the middle of a vector in most copies.
    check(UNARY[name], special(dtype).repeat(7))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", BINARY)
def test_a_result_is_two_elements(name: str, dtype: torch.dtype) -> None:
    x = special(dtype)
    check(BINARY[name], x.repeat_interleave(len(x)), x.repeat(len(x)))


COMPLEX: dict[str, Callable[[Tensor], Tensor]] = {
    "neg": torch.neg,
    "neg in place": lambda z: z.clone().neg_(),
    "neg out": lambda z: torch.neg(z, out=torch.empty_like(z)),
    "foreach_neg": lambda z: torch._foreach_neg([z])[0],
    "conj": torch.conj_physical,
    "reciprocal": torch.reciprocal,
    "sub gradient": lambda z: _gradient(lambda z: 1 - z, z),
    "div gradient": lambda z: _gradient(lambda z: 1 / z, z),
}


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("name", COMPLEX)
def test_a_result_is_one_complex_elements(name: str, dtype: torch.dtype) -> None:
    x = special(torch.float64)
    check(COMPLEX[name], torch.complex(x.repeat_interleave(len(x)), x.repeat(len(x))).to(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_shrinking_gives_plus_zero_between_the_bounds(dtype: torch.dtype) -> None:
    with potl.deterministic():
        y = F.softshrink(torch.full((20,), -0.25, dtype=dtype))
        beyond = F.softshrink(torch.tensor([-2.0, 2.0, NAN], dtype=dtype))
    assert not y.signbit().any()
    assert beyond[:2].tolist() == [-1.5, 1.5]
    assert beyond[2].isnan()


@pytest.mark.parametrize("function", [F.relu6, F.hardtanh, F.softshrink, F.hardshrink])
def test_the_gradient_where_the_operand_is_nan_is_zero(
    function: Callable[[Tensor], Tensor],
) -> None:
    x = torch.full((131,), NAN)
    with potl.deterministic():
        assert not _gradient(function, x).any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shrink", [F.softshrink, F.hardshrink, F.relu6, F.hardtanh])
def test_numbers_shrink_as_in_torch(shrink: Callable[[Tensor], Tensor], dtype: torch.dtype) -> None:
    x = torch.linspace(-8, 8, 999, dtype=torch.float64).to(dtype)
    with potl.deterministic():
        y, dx = shrink(x), _gradient(shrink, x)
    assert torch.equal(y, shrink(x))
    assert torch.equal(dx, _gradient(shrink, x))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_nan_has_no_sign_that_a_number_could_take_over(dtype: torch.dtype) -> None:
    x = torch.tensor([-NAN, NAN, -0.0, 0.0, -1.0, 1.0], dtype=torch.float64).repeat(9)
    x = x.to(dtype)
    assert x.signbit()[0]  # outside
    one = torch.ones_like(x)
    with potl.deterministic():
        assert torch.signbit(x).tolist() == [False, False, True, False, True, False] * 9
        assert torch.copysign(one, x).tolist() == [1, 1, -1, 1, -1, 1] * 9
        assert one.copysign_(x).tolist() == [1, 1, -1, 1, -1, 1] * 9
        assert torch.copysign(x[5], -NAN) == 1
        assert torch.copysign(x[5], -2.0).dtype == dtype


def test_bounds_of_logit_that_cross_are_torchs() -> None:
    """Where both bounds cut a value, torch takes the lower one; clamp would take the upper."""
    x = torch.linspace(0.05, 0.95, 19, dtype=torch.float64)
    with potl.deterministic():
        found = torch.logit(x, 0.6)
    torch.testing.assert_close(found, torch.logit(x, 0.6))
