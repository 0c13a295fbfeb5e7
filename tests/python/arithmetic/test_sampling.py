# SPDX-License-Identifier: Apache-2.0
"""Samples of distributions in a `deterministic` block: potl's, whoever draws them, and
differentiable where torch's are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributions as D
import torch.nn.functional as F
from torch import Tensor

pytest.importorskip("potl._torch", reason="potl was built without torch")

import potl
from potl import _core
from potl._task import _random

KEY = _core.derive_key(7, "sampling")
SHAPES = torch.linspace(0.05, 40, 3 * 7000).view(3, 7000)

DRAWS: dict[str, Callable[[], Any]] = {
    "gamma": lambda: torch._standard_gamma(SHAPES),
    "gamma, transposed": lambda: torch._standard_gamma(SHAPES.t()),
    "gamma, float64": lambda: torch._standard_gamma(SHAPES.double()),
    "Dirichlet": lambda: torch._sample_dirichlet(SHAPES.view(-1, 7)),
    "Poisson": lambda: torch.poisson(SHAPES),
    "Poisson, bfloat16": lambda: torch.poisson(SHAPES.bfloat16()),
    "binomial": lambda: torch.binomial(torch.tensor([[1.0], [60], [5000]]), SHAPES / 40),
    "multinomial": lambda: torch.multinomial(SHAPES, 400, replacement=True),
    "multinomial of a vector": lambda: torch.multinomial(SHAPES[0], 400, replacement=True),
    "multinomial without replacement": lambda: torch.multinomial(SHAPES, 40),
    "multinomial of one": lambda: torch.multinomial(SHAPES, 1, replacement=True),
    "multinomial, out=": lambda: torch.multinomial(
        SHAPES, 9, True, out=torch.empty(0, dtype=torch.int64)
    ),
    "Beta": lambda: D.Beta(SHAPES[0], 2 * SHAPES[0]).sample(),
    "Gamma": lambda: D.Gamma(SHAPES[0], 2 * SHAPES[0]).sample(),
    "Chi2": lambda: D.Chi2(SHAPES[0]).sample(),
    "Categorical": lambda: D.Categorical(SHAPES).sample((5,)),
    "Multinomial": lambda: D.Multinomial(50, SHAPES[:, :9]).sample(),
    "NegativeBinomial": lambda: D.NegativeBinomial(3.0, SHAPES[0] / 50).sample(),
}


def drawn(make: Callable[[], Tensor], *, block: bool = True) -> Tensor:
    with _random.scope():
        _random.seed_all(KEY)
        if not block:
            return make()
        with potl.deterministic():
            return make()


@pytest.mark.parametrize("name", DRAWS)
def test_samples_have_the_same_bits_in_a_block_in_a_job_and_on_any_number_of_threads(
    name: str, set_threads: Callable[[int], None]
) -> None:
    values = drawn(DRAWS[name])
    assert torch.equal(values, drawn(DRAWS[name], block=False))
    set_threads(1 if torch.get_num_threads() > 1 else 2)
    assert torch.equal(values, drawn(DRAWS[name]))


def test_samples_are_the_fills_of_the_core() -> None:
    with potl.deterministic():
        torch.manual_seed(5)
        values = torch._standard_gamma(SHAPES)
        rows = torch.multinomial(SHAPES, 9, replacement=True)
    torch.manual_seed(5)
    wanted, places = np.empty(SHAPES.shape), np.empty((3, 9), dtype=np.int64)
    key = torch.empty(2, dtype=torch.int64).random_().numpy().tobytes()
    _core.fill_gamma(wanted, key, 0, SHAPES.double().numpy())
    assert torch.equal(values, torch.from_numpy(wanted).float())
    key = torch.empty(2, dtype=torch.int64).random_().numpy().tobytes()
    for row in range(3):
        _core.fill_categories(places[row], key, 9 * row, SHAPES[row].double().numpy())
    assert torch.equal(rows, torch.from_numpy(places))


def test_students_t_has_heavy_tails_and_the_right_middle() -> None:
    values = drawn(lambda: D.StudentT(torch.full((100_000,), 3.0)).sample())
    # The quartiles of three degrees of freedom; five deviations of a fraction of 100,000.
    assert abs(float((values < 0).double().mean()) - 0.5) < 0.008
    assert abs(float((values.abs() < 0.764892).double().mean()) - 0.5) < 0.008
    assert abs(float((values.abs() > 5.840909).double().mean()) - 0.01) < 0.0016


@pytest.mark.parametrize(
    ("make", "operands"),
    [
        (lambda a, b: D.Gamma(a, b).rsample((500,)), (2.5, 0.5)),
        (lambda a, b: D.Gamma(a, b).rsample((500,)), (0.3, 2.0)),
        (lambda a, b: D.Beta(a, b).rsample((500,)), (0.7, 3.0)),
        (lambda a, b: D.Dirichlet(torch.stack([a, b, b])).rsample((500,)), (4.0, 0.5)),
    ],
)
def test_gradients_of_samples_are_near_torchs(
    make: Callable[[Tensor, Tensor], Tensor], operands: tuple[float, float]
) -> None:
    # torch's are approximations, of about three digits.
    leaves = [torch.tensor(one, dtype=torch.float64, requires_grad=True) for one in operands]
    gradients = []
    samples = drawn(lambda: make(*leaves).detach())
    for block in (True, False):

        def derived() -> Any:
            return torch.autograd.grad((make(*leaves) * samples.cos()).sum(), leaves)

        gradients.append(torch.stack(drawn(derived, block=block)))
    assert torch.allclose(gradients[0], gradients[1], rtol=1e-2)
    assert not torch.equal(gradients[0], gradients[1])


def test_samples_are_never_0_or_1_where_torchs_are_not() -> None:
    tiny = torch.finfo(torch.float32).tiny
    gamma = drawn(lambda: torch._standard_gamma(torch.full((1000,), 1e-3)))
    shares = drawn(lambda: torch._sample_dirichlet(torch.full((1000, 2), 1e-3)))
    assert float(gamma.min()) == tiny == float(shares.min())
    assert float(shares.max()) == 1 - 2.0**-24


@pytest.mark.parametrize("block", [True, False])
def test_wrong_parameters_are_refused_as_torch_refuses_them(block: bool) -> None:
    one, nan = torch.ones(2), float("nan")
    for call, message in (
        (lambda: torch.poisson(-one), "rates >= 0"),
        (lambda: torch.poisson(nan * one), "rates >= 0"),
        (lambda: torch.poisson(one.long()), "floating"),
        (lambda: torch._standard_gamma(one.bfloat16()), "float32"),
        (lambda: torch._sample_dirichlet(one.bfloat16()), "float32"),
        (lambda: torch.binomial(one / 2, one), "whole"),
        (lambda: torch.binomial(one, 2 * one), "a probability is in"),
        (lambda: torch.multinomial(-one, 3, True), "weights >= 0"),
        (lambda: torch.multinomial(nan * one, 3, True), "weights >= 0"),
        (lambda: torch.multinomial(0 * one, 3, True), "finite sum above 0"),
        (lambda: torch.multinomial(one, 0, True), "n_sample <= 0"),
        (lambda: torch.multinomial(one, 3), "without replacement"),
        (lambda: torch.multinomial(torch.ones(2, 2, 2), 3, True), "1 or 2 dim"),
    ):
        with pytest.raises(RuntimeError, match=message):
            drawn(call, block=block)


def test_what_has_no_elements_draws_nothing() -> None:
    for shape in ((0,), (0, 3), (3, 0)):
        for call in (torch._standard_gamma, torch._sample_dirichlet, torch.poisson):
            with potl.deterministic():
                torch.manual_seed(5)
                assert call(torch.ones(shape)).shape == shape
                left = torch.rand(1)
                torch.manual_seed(5)
                assert torch.equal(left, torch.rand(1))


def test_rrelu_draws_a_slope_for_each_negative_element_and_repeats_it_in_its_gradient() -> None:
    x = torch.linspace(-3, 3, 4001, requires_grad=True)
    with potl.deterministic():
        torch.manual_seed(5)
        y = F.rrelu(x, 0.1, 0.3, training=True)
        (slopes,) = torch.autograd.grad(y.sum(), x)
        torch.manual_seed(5)
        in_place = F.rrelu_(x.detach().clone(), 0.1, 0.3, training=True)
        steady = F.rrelu(x, 0.1, 0.3)
    assert torch.equal(y, x * slopes) and torch.equal(y, in_place)
    negative = slopes[:2000]
    assert float(negative.min()) >= 0.1 and float(negative.max()) < 0.3
    assert abs(float(negative.mean()) - 0.2) < 5 * 0.2 / 12**0.5 / 2000**0.5
    assert torch.equal(slopes[2001:], torch.ones(2000))
    assert torch.equal(steady, F.leaky_relu(x, 0.2))
