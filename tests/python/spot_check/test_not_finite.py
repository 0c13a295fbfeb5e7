# SPDX-License-Identifier: Apache-2.0
"""Products of a training that diverges: honest ones are never false, and false ones stay that."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from product_steps import Step
from torch import nn

from potl._spot_check._products import ProductsOutcome, check_products, record_products

Tensor = torch.Tensor
INF, NAN = float("inf"), float("nan")
VALUES = {
    "an infinity": [INF],
    "a negative one": [-INF],
    "a NaN": [NAN],
    "both infinities": [INF, -INF],
    "all of them": [INF, NAN, -INF],
}


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class Product:
    """One operator, and the operands in which something is not finite."""

    def __init__(self, run: Callable[..., Any], *operands: Tensor) -> None:
        self.run, self.operands = run, list(operands)

    def with_values(self, which: int, values: list[float]) -> Product:
        changed = [one.clone() for one in self.operands]
        flat = changed[which].view(-1) if changed[which].is_contiguous() else None
        if flat is None:  # channels last
            flat = changed[which].permute(0, 2, 3, 1).reshape(-1)
        for i, value in enumerate(values):
            flat[(7 + 1001 * i) % flat.numel()] = value
        if not changed[which].is_contiguous():
            n, c, h, w = changed[which].shape
            changed[which] = flat.view(n, h, w, c).permute(0, 3, 1, 2)
        return Product(self.run, *changed)

    def witness(self) -> list[Tensor]:
        with record_products() as witness:
            self.run(*self.operands)
        return witness.tensors

    def check(self, witness: list[Tensor]) -> ProductsOutcome:
        with check_products([one.clone() for one in witness]) as outcome:
            self.run(*self.operands)
        return outcome


def _backward(x: Tensor, w: Tensor, dy: Tensor, **options: Any) -> None:
    x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
    with torch.enable_grad():
        nn.functional.conv2d(x, w, **options).backward(dy)


MAKE: dict[str, Callable[[], Product]] = {
    "mm": lambda: Product(torch.mm, drawn(128, 160), drawn(160, 96, seed=1)),
    "mm transposed": lambda: Product(
        lambda a, b: torch.mm(a.T, b.T), drawn(160, 128), drawn(96, 160, seed=1)
    ),
    "bmm": lambda: Product(torch.bmm, drawn(3, 128, 160), drawn(3, 160, 96, seed=1)),
    "addmm": lambda: Product(
        torch.addmm, drawn(96, seed=2), drawn(128, 160), drawn(160, 96, seed=1)
    ),
    "baddbmm": lambda: Product(
        torch.baddbmm, drawn(128, 96, seed=2), drawn(3, 128, 160), drawn(3, 160, 96, seed=1)
    ),
    "a convolution": lambda: Product(
        lambda x, w, b: nn.functional.conv2d(x, w, b, padding=1),
        drawn(16, 16, 8, 8), drawn(64, 16, 3, 3, seed=1), drawn(64, seed=2),
    ),
    "in groups, channels last": lambda: Product(
        lambda x, w: nn.functional.conv2d(x, w, groups=2, padding=2, dilation=2),
        drawn(16, 32, 8, 8).to(memory_format=torch.channels_last), drawn(64, 16, 3, 3, seed=1),
    ),
    "of lines": lambda: Product(
        lambda x, w: nn.functional.conv1d(x, w, padding=2, stride=2),
        drawn(8, 32, 64), drawn(64, 32, 5, seed=1),
    ),
    "of volumes": lambda: Product(
        lambda x, w: nn.functional.conv3d(x, w, padding=1),
        drawn(4, 32, 4, 6, 6), drawn(64, 32, 3, 3, 3, seed=1),
    ),
    "its gradients": lambda: Product(
        lambda x, w, dy: _backward(x, w, dy, padding=1),
        drawn(16, 16, 8, 8), drawn(64, 16, 3, 3, seed=1), drawn(16, 64, 8, 8, seed=2),
    ),
    "a batch norm": lambda: Product(
        lambda x: nn.functional.batch_norm(x, None, None, training=True), drawn(32, 16, 16, 16)
    ),
}  # fmt: skip
OPERANDS = [(name, which) for name in MAKE for which in range(len(MAKE[name]().operands))]


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize(("name", "which"), OPERANDS)
def test_an_honest_product_of_operands_that_are_not_finite_is_not_false(
    name: str, which: int, values: str
) -> None:
    product = MAKE[name]().with_values(which, VALUES[values])
    witness = product.witness()
    assert not all(bool(torch.isfinite(one).all()) for one in witness)
    outcome = product.check(witness)
    assert outcome.failure is None, outcome.failure
    assert not outcome.holds  # nothing is shown either
    assert outcome.diverged is not None and outcome.diverged.reason == "diverged"


@pytest.mark.parametrize(("name", "which"), [one for one in OPERANDS if "norm" not in one[0]])
def test_a_finite_claim_where_operands_are_not_finite_is_false(name: str, which: int) -> None:
    product = MAKE[name]().with_values(which, [INF])
    witness = product.witness()
    for index, one in enumerate(witness):
        if torch.isfinite(one).all():
            continue
        for forged in (one.nan_to_num(0, 0, 0), _first_made(one, 3.0)):
            outcome = product.check([*witness[:index], forged, *witness[index + 1 :]])
            if outcome.diverged is not None:
                # An earlier product of the operator is not finite, and ended the step.
                assert outcome.diverged.index < index
                continue
            assert outcome.failure is not None
            assert (outcome.failure.reason, outcome.failure.index) == ("inconsistent", index)


def _first_made(one: Tensor, value: float) -> Tensor:
    """With one of the elements that are not finite changed."""
    out = one.clone()
    flat = out.view(-1)
    flat[int(torch.nonzero(~torch.isfinite(flat))[0])] = value
    return out


@pytest.mark.parametrize("values", ["an infinity", "a NaN"])
@pytest.mark.parametrize("name", ["mm", "bmm", "addmm", "baddbmm", "a convolution", "of lines"])
def test_a_false_number_beside_what_is_not_finite_is_false(name: str, values: str) -> None:
    which = 1 if name in ("addmm", "baddbmm") else 0
    product = MAKE[name]().with_values(which, VALUES[values])
    (honest,) = product.witness()
    places = torch.nonzero(torch.isfinite(honest.view(-1))).view(-1)
    for place in (int(places[0]), int(places[-1])):
        forged = honest.clone()
        forged.view(-1)[place] += 1000
        failure = product.check([forged]).failure
        assert failure is not None and failure.reason == "inconsistent"


def test_who_computes_otherwise_may_have_more_that_is_not_finite() -> None:
    """Fast convolutions transform whole tiles, and spread what is in them."""
    product = MAKE["a convolution"]().with_values(0, [INF])
    (honest,) = product.witness()
    spread = honest.clone()
    spread[0] = NAN
    outcome = product.check([spread])
    assert outcome.failure is None and outcome.diverged is not None


def test_who_leaves_out_products_with_zero_is_not_false() -> None:
    a, b = drawn(128, 160), drawn(160, 96, seed=1)
    a[3, 5], b[5] = INF, 0.0
    other = a.clone()
    other[3, 5] = 0.0
    outcome = Product(torch.mm, a, b).check([other @ b])
    assert outcome.failure is None and outcome.diverged is not None


def test_an_operand_that_reaches_nothing_is_as_good_as_any() -> None:
    x, w = drawn(64, 128, 16, 16), drawn(256, 128, 1, 1, seed=1)
    x[0, 0, 1, 1] = NAN  # between two places of a stride of two
    product = Product(lambda x, w: nn.functional.conv2d(x, w, stride=2), x, w)
    (honest,) = product.witness()
    assert torch.isfinite(honest).all()
    outcome = product.check([honest])
    assert outcome.holds, outcome
    forged = honest.clone()
    forged[3, 3, 3, 3] += 1000
    failure = product.check([forged]).failure
    assert failure is not None and failure.reason == "inconsistent"


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_sums_that_overflow_accuse_nobody(sign: float) -> None:
    """Which of them do depends on their order."""
    a, b = torch.full((128, 160), 1e20), torch.full((160, 96), 1e19)
    b[::2] *= sign
    product = Product(torch.mm, a, b)
    (honest,) = product.witness()
    for one in (honest, torch.full_like(honest, INF), torch.full_like(honest, NAN)):
        assert product.check([one]).failure is None


def test_numbers_that_cannot_overflow_give_nothing_that_is_not_finite() -> None:
    a, b = torch.full((128, 160), 1e15), torch.full((160, 96), 1e15)
    product = Product(torch.mm, a, b)
    (honest,) = product.witness()
    failure = product.check([_with(honest, INF)]).failure
    assert failure is not None and failure.reason == "not finite"


def _with(one: Tensor, value: float) -> Tensor:
    out = one.clone()
    out.view(-1)[77] = value
    return out


@pytest.mark.parametrize("name", ["mlp", "cnn", "gpt"])
def test_a_step_with_a_weight_that_is_not_finite_diverges(name: str) -> None:
    step = Step(name)
    with torch.no_grad():
        next(iter(step.model.parameters())).view(-1)[5] = INF
    with check_products(step.witness()) as outcome:
        step.gradients()
    assert outcome.failure is None and not outcome.holds
    assert outcome.diverged is not None


def test_a_step_that_goes_on_after_it_diverged_does_not_hold() -> None:
    product = MAKE["mm"]().with_values(0, [INF])
    witness = product.witness()
    with check_products(witness) as outcome, contextlib.suppress(Exception):
        product.run(*product.operands)
    assert outcome.finished and not outcome.holds and outcome.failure is None
