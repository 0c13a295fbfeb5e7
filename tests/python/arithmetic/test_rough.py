# SPDX-License-Identifier: Apache-2.0
"""Sums that are as far off as another machine's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from potl._arithmetic._rough import RoughSums


def off(a: torch.Tensor, b: torch.Tensor) -> float:
    """The largest difference in units of roundoff of a row's typical element."""
    row = b.float().square().mean(-1, keepdim=True).sqrt()
    unit = row * torch.finfo(b.dtype).eps / 2
    return float(((a - b).float() / unit).abs().max())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_and_sums_are_off_by_some_units_of_roundoff(dtype: torch.dtype) -> None:
    made = torch.Generator().manual_seed(0)
    a = torch.randn(64, 96, generator=made, dtype=dtype)
    b = torch.randn(96, 64, generator=made, dtype=dtype) * torch.logspace(-3, 3, 64, dtype=dtype)
    for result in (lambda: a @ b, lambda: (a.t() @ b.t()[:, :64].t()[:64]).sum(0), lambda: a.sum()):
        exact = result()
        with RoughSums(1):
            rough = result()
        assert 0.5 < off(rough, exact) < 32 * 6


@pytest.mark.parametrize(
    "call",
    [
        lambda z: z @ z.mH,
        lambda z: z.sum(),
        torch.fft.fft,
        lambda z: torch.fft.irfft(z, dim=0),
        lambda z: torch.fft.rfft(z.real),
    ],
)
def test_both_parts_of_complex_sums_and_transforms_are_off(
    call: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    z = torch.randn(48, 32, generator=torch.Generator().manual_seed(0), dtype=torch.cfloat)
    exact = call(z)
    with RoughSums(1):
        rough = call(z)
    typical = float(exact.abs().square().mean().sqrt()) * torch.finfo(torch.float32).eps
    change = rough - exact
    for part in (change.real, change.imag) if exact.is_complex() else (change,):
        assert 0 < float(part.abs().max()) < 128 * typical


def test_what_is_no_sum_keeps_its_bits_and_zeros_stay_zero() -> None:
    x = torch.randn(8, 32, generator=torch.Generator().manual_seed(0))
    x[3] = 0
    with RoughSums(1):
        assert torch.equal(torch.relu(x) * 2 + x, torch.relu(x) * 2 + x)
        assert torch.equal((x @ torch.ones(32, 4))[3], torch.zeros(4))
        assert torch.equal(x.softmax(-1) >= 0, torch.ones(8, 32, dtype=torch.bool))


def test_the_same_seed_draws_the_same_differences_and_torchs_generator_stays() -> None:
    a = torch.randn(16, 16, generator=torch.Generator().manual_seed(0))

    def rough(seed: int) -> torch.Tensor:
        with RoughSums(seed):
            return a @ a

    state = torch.get_rng_state()
    assert torch.equal(rough(1), rough(1))
    assert not torch.equal(rough(1), rough(2))
    assert torch.equal(torch.get_rng_state(), state)


def test_few_results_of_low_precision_are_other_ones() -> None:
    made = torch.Generator().manual_seed(0)
    a = torch.randn(256, 64, generator=made).bfloat16()
    b = torch.randn(64, 256, generator=made).bfloat16()
    exact = a @ b
    with RoughSums(2):
        rough = a @ b
    others = rough != exact
    assert 0 < others.float().mean() < 1e-2
    assert torch.allclose(rough[others].float(), exact[others].float(), rtol=2**-7)


def test_an_activation_next_to_zero_turns_its_gradient() -> None:
    """What no repeat in another arithmetic needs to show."""
    torch.manual_seed(0)
    first, second = nn.Linear(64, 8), nn.Linear(8, 1)
    x = torch.randn(1, 64)
    with torch.no_grad():
        first.bias[0] -= first(x)[0, 0] - 2**-24

    def gradient() -> torch.Tensor:
        first.zero_grad()
        second(torch.relu(first(x))).sum().backward()
        assert first.weight.grad is not None
        return first.weight.grad[0].clone()

    assert gradient().any()
    turned = []
    for seed in range(1, 9):
        with RoughSums(seed):
            turned.append(not gradient().any())
    assert any(turned) and not all(turned)
