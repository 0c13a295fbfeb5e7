# SPDX-License-Identifier: Apache-2.0
"""Special functions in a block: against values of many digits, at poles, in all their forms."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

pytest.importorskip("potl._torch")

from special_table import TABLE

import potl

INFINITY, NAN = math.inf, math.nan
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    **{name: getattr(torch.special, name, None) or getattr(torch, name, None) for name in TABLE},
    "trigamma": lambda x: torch.polygamma(1, x),
}
#: In ulp of float64 (docs/reference/elementwise.md); the others are within 3.
ULPS = {"lgamma": 5, "ndtri": 8, "i0": 16, "i1": 16, "i0e": 16, "i1e": 16, "trigamma": 4}


@pytest.mark.parametrize("name", TABLE)
def test_a_value_is_the_exact_one_within_its_bound(name: str) -> None:
    x = torch.tensor([x for x, _ in TABLE[name]], dtype=torch.float64)
    with potl.deterministic():
        values = FUNCTIONS[name](x).tolist()
    for (at, exact), value in zip(TABLE[name], values, strict=True):
        # Next to a root at negative arguments terms near 1 cancel.
        near_root = name in ("lgamma", "digamma") and at < 0
        allowed = max(ULPS.get(name, 3) * math.ulp(exact), 8 * 2**-53 if near_root else 0)
        assert value == exact or abs(value - exact) <= allowed, (at.hex(), exact, value)


@pytest.mark.parametrize("name", TABLE)
def test_a_float32_is_the_double_rounded_once(name: str) -> None:
    x = torch.tensor([x for x, _ in TABLE[name]]).repeat(7)
    with potl.deterministic():
        single, double = FUNCTIONS[name](x), FUNCTIONS[name](x.double())
        bfloat = FUNCTIONS[name](x.bfloat16())
        wide = FUNCTIONS[name](x.bfloat16().float())
    assert torch.equal(single.nan_to_num(7), double.float().nan_to_num(7))
    assert torch.equal(bfloat.nan_to_num(7), wide.bfloat16().nan_to_num(7))


POLES: dict[str, list[tuple[float, float]]] = {
    "lgamma": [
        *((x, INFINITY) for x in (0.0, -0.0, -1.0, -2.0, -1e17, INFINITY, -INFINITY, 1e306)),
        (1.0, 0.0),
        (2.0, 0.0),
    ],
    "digamma": [
        *((x, y) for x, y in ((0.0, -INFINITY), (-0.0, INFINITY), (INFINITY, INFINITY))),
        *((x, NAN) for x in (-1.0, -2.0, -1e17, -INFINITY)),
    ],
    "trigamma": [
        *((x, INFINITY) for x in (0.0, -0.0, -1.0, -2.0, -1e17, 5e-324)),
        *((INFINITY, 0.0), (-INFINITY, NAN)),
    ],
    "acos": [(1.0, 0.0), (-1.0, math.pi), (1 + 2**-52, NAN), (INFINITY, NAN)],
    "asin": [(-0.0, -0.0), (1.0, math.pi / 2), (-1 - 2**-52, NAN), (-INFINITY, NAN)],
    "atan": [(-0.0, -0.0), (INFINITY, math.pi / 2), (-INFINITY, -math.pi / 2)],
    "acosh": [(1.0, 0.0), (1 - 2**-53, NAN), (-2.0, NAN), (INFINITY, INFINITY)],
    "asinh": [(-0.0, -0.0), (INFINITY, INFINITY), (-INFINITY, -INFINITY)],
    "atanh": [(-0.0, -0.0), (1.0, INFINITY), (-1.0, -INFINITY), (1 + 2**-52, NAN)],
    "sinc": [(0.0, 1.0), (-0.0, 1.0), (INFINITY, NAN)],
    "entr": [(0.0, 0.0), (-0.0, 0.0), (-5e-324, -INFINITY), (INFINITY, -INFINITY)],
    "ndtri": [(0.0, -INFINITY), (1.0, INFINITY), (0.5, 0.0), (-0.1, NAN), (1.1, NAN)],
    "i0": [(0.0, 1.0), (-INFINITY, INFINITY), (800.0, INFINITY)],
    "i0e": [(0.0, 1.0), (-INFINITY, 0.0)],
    "i1": [(-0.0, -0.0), (-INFINITY, -INFINITY), (-800.0, -INFINITY)],
    "i1e": [(-0.0, -0.0), (-INFINITY, -0.0)],
}


@pytest.mark.parametrize("name", POLES)
def test_poles_infinities_and_zeros(name: str) -> None:
    x = torch.tensor([x for x, _ in POLES[name]] + [NAN], dtype=torch.float64)
    with potl.deterministic():
        values = FUNCTIONS[name](x).tolist()
    for (at, exact), value in zip(POLES[name], values, strict=False):
        same = math.isnan(value) if math.isnan(exact) else value == exact
        assert same, (at, exact, value)
        assert math.isnan(exact) or math.copysign(1, value) == math.copysign(1, exact), at
    assert math.isnan(values[-1])


def test_angles_and_logarithms_are_torchs_at_zeros_and_infinities() -> None:
    ends = torch.tensor(
        [0.0, -0.0, 1.0, -1.0, 1e300, INFINITY, -INFINITY, NAN], dtype=torch.float64
    )
    z = torch.complex(*torch.meshgrid(ends, ends, indexing="ij"))
    for call in (lambda: ends.angle(), lambda: z.angle(), lambda: torch.view_as_real(z.log())):
        with potl.deterministic():
            value = call()
        assert torch.allclose(value, call(), rtol=1e-15, atol=0, equal_nan=True)
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        x = torch.tensor([-2, 0, 3]).to(dtype)
        with potl.deterministic():
            value = x.angle()
        assert value.dtype == x.angle().dtype and torch.equal(value, x.angle())
    w = torch.tensor([3 + 4j, -1e-3j], dtype=torch.complex64)
    with potl.deterministic():
        assert torch.equal(w.log(), w.to(torch.complex128).log().to(torch.complex64))
        assert torch.equal(w.clone().log_(), w.log())


def test_the_first_power_of_a_complex_number_is_the_number() -> None:
    z = torch.tensor([3 - 7j, -0.0 + 1j, complex(INFINITY, 0), 1e300j], dtype=torch.complex128)
    w = z.clone().requires_grad_()
    with potl.deterministic():
        assert torch.equal(z**1, z)
        assert torch.equal(z.conj() ** 1.0, z.conj())
        assert torch.equal(z.clone().pow_(1), z)
        (w[:2] ** 2).real.sum().backward()
    assert w.grad is not None and torch.equal(w.grad[:2], 2 * z[:2].conj())


def test_the_angle_of_every_pair_of_special_numbers_is_that_of_the_c_library() -> None:
    numbers = (0.0, 5e-324, 1e-300, 1.0, 3.0, 1e300, 1.7e308, INFINITY, NAN)
    numbers += tuple(-x for x in numbers)
    y = torch.tensor(numbers, dtype=torch.float64).repeat_interleave(len(numbers))
    x = torch.tensor(numbers, dtype=torch.float64).repeat(len(numbers))
    with potl.deterministic():
        angles = torch.atan2(y, x)
    exact = [math.atan2(a, b) for a, b in zip(y.tolist(), x.tolist(), strict=True)]
    torch.testing.assert_close(
        angles, torch.tensor(exact, dtype=torch.float64), rtol=4e-16, atol=0, equal_nan=True
    )
    for value, other in zip(angles.tolist(), exact, strict=True):
        assert math.isnan(other) or math.copysign(1, value) == math.copysign(1, other)


def test_nothing_times_a_logarithm_is_nothing() -> None:
    y = torch.tensor([-1.0, -2.0, INFINITY, NAN])
    with potl.deterministic():
        product = torch.special.xlog1py(torch.zeros(4), y).tolist()
    assert product[:3] == [0.0, 0.0, 0.0]
    assert math.isnan(product[3])


@pytest.mark.parametrize("name", TABLE)
def test_a_result_is_one_elements_in_any_form(name: str) -> None:
    x = torch.linspace(-3, 3, 5001)
    function = FUNCTIONS[name]
    with potl.deterministic():
        whole = function(x)
        few = torch.cat([function(part) for part in x.split(700)])
        strided = function(torch.stack([x, x], 1)[:, 1])
        none = function(x[:0])
    assert torch.equal(whole.nan_to_num(7), few.nan_to_num(7))
    assert torch.equal(whole.nan_to_num(7), strided.nan_to_num(7))
    assert none.shape == (0,)


def test_results_are_written_in_place_and_to_out() -> None:
    x = torch.linspace(0.1, 0.9, 9)
    with potl.deterministic():
        wanted, angle = torch.lgamma(x), torch.atan2(x, x + 1)
        out = torch.empty(9)
        assert torch.equal(torch.lgamma(x, out=out), wanted)
        assert torch.equal(x.clone().lgamma_(), wanted)
        assert torch.equal(x.clone().atan2_(x + 1), angle)
        assert torch.equal(x.clone().polygamma_(1), torch.polygamma(1, x))
        assert torch.equal(torch.polygamma(0, x), torch.digamma(x))
        assert torch.lgamma(torch.tensor([3, 4])).dtype == torch.float32


def test_the_derivative_of_digamma_is_trigamma() -> None:
    x = torch.tensor([1.0, 0.5], dtype=torch.float64, requires_grad=True)
    with potl.deterministic():
        (slope,) = torch.autograd.grad(torch.digamma(x).sum(), x)
    exact = torch.tensor([math.pi**2 / 6, math.pi**2 / 2], dtype=torch.float64)
    torch.testing.assert_close(slope, exact, rtol=1e-15, atol=0)


def test_higher_polygammas_are_refused_with_the_remedy() -> None:
    with potl.deterministic(), pytest.raises(potl.NotReproducible) as raised:
        torch.polygamma(2, torch.ones(3))
    assert "order 2" in raised.value.message
    assert "digamma" in raised.value.remedy
