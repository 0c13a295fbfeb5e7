# SPDX-License-Identifier: Apache-2.0
"""A step that takes its products from a witness: honest ones hold, and give the gradients of the
step; any false product ends the step, for its reason and at its place.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import product_steps
import programs
import pytest
import torch
from processor import torch_instruction_sets
from product_steps import NETS, Step
from torch import nn

from potl._spot_check import _claims, _products
from potl._spot_check._products import ProductsOutcome, check_products, record_products

Tensors = list[torch.Tensor]
# Of each net: the products of a step that are worth a check, and two statistics of a batch norm.
COUNTS = {"mlp": 2, "cnn": 8 + 4, "gpt": 27}


def checked(step: Step, witness: Any, **options: Any) -> tuple[ProductsOutcome, Tensors]:
    gradients: Tensors = []
    with check_products(witness, **options) as outcome:
        gradients = step.gradients()
    return outcome, gradients


def differences(some: Tensors, others: Tensors) -> float:
    """Of all gradients together: that of a bias before a batch norm is rounding alone."""
    assert [one.shape for one in some] == [one.shape for one in others]
    mine, theirs = (torch.cat([one.flatten() for one in each]) for each in (some, others))
    return float((mine - theirs).norm() / theirs.norm())


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", NETS)
def test_an_honest_step_holds_and_gives_its_gradients(name: str, seed: int) -> None:
    step = Step(name, seed)
    plain = [one.clone() for one in step.gradients()]
    witness = step.witness()
    assert differences(step.gradients(), plain) == 0  # recording changes nothing
    outcome, gradients = checked(step, witness, probes=1 + 3 * (seed == 0))
    assert outcome.holds and outcome.failure is None
    assert outcome.verified == len(witness) == COUNTS[name]
    assert outcome.unusual == []
    assert differences(gradients, plain) < 1e-5


@pytest.mark.parametrize("capability", torch_instruction_sets())
def test_a_worker_with_other_threads_and_instructions_holds(
    capability: str, tmp_path: Path
) -> None:
    threads = "2" if capability == torch_instruction_sets()[-1] else "1"
    at_start = {"ATEN_CPU_CAPABILITY": capability, "OMP_NUM_THREADS": threads}
    program = [programs.python(**at_start), product_steps.__file__, "3", tmp_path]
    subprocess.run(program, check=True, env={**os.environ, **at_start})
    for path in sorted(tmp_path.iterdir()):
        with np.load(path) as arrays:
            witness = [torch.from_numpy(arrays[each]) for each in arrays]
        step = Step(path.stem.partition("-")[0], 3)
        plain = [one.clone() for one in step.gradients()]
        outcome, gradients = checked(step, witness, threads=2)
        assert outcome.holds, (path.stem, outcome.failure)
        assert outcome.unusual == [], path.stem
        assert differences(gradients, plain) < 1e-4


def test_a_batch_norm_that_magnifies_rounding_accuses_nobody() -> None:
    """Of channels whose mean is 10,000 deviations away nearly all digits go. Kernels that round
    otherwise than the worker's would make a false product of that.
    """
    torch.manual_seed(0)
    first, second = (nn.Conv2d(16, 16, 3, padding=1) for _ in range(2))
    with torch.no_grad():
        assert first.bias is not None
        first.bias.fill_(100)
        first.weight.mul_(0.01)
    net = nn.Sequential(first, nn.BatchNorm2d(16), nn.ReLU(), second)
    x = torch.randn(64, 16, 16, 16)

    def step() -> None:
        net(x).square().mean().backward()

    with record_products() as witness:
        step()
    with check_products(witness.tensors) as outcome:
        step()
    assert outcome.holds, outcome.failure
    assert outcome.unusual == [1, 2]  # the statistics


@pytest.mark.parametrize("name", NETS)
def test_one_false_element_ends_the_step_at_its_product(name: str) -> None:
    step = Step(name)
    honest = step.witness()
    for index, result in enumerate(honest):
        witness = [one.clone() for one in honest]
        place = 7 * index % result.numel()
        witness[index].view(-1)[place] += 1000 * float(result.abs().max())
        outcome, gradients = checked(step, witness)
        assert not outcome.holds and gradients == []
        failure = outcome.failure
        assert failure is not None
        assert (failure.reason, failure.index) == ("inconsistent", index)
        assert failure.shape == tuple(result.shape)
        assert outcome.verified == index


def test_a_failure_names_its_operator() -> None:
    step = Step("cnn")
    honest = step.witness()
    operators = []
    for index in range(len(honest)):
        witness = [one.clone() for one in honest]
        witness[index].fill_(float("nan"))
        outcome, _ = checked(step, witness)
        assert outcome.failure is not None
        assert (outcome.failure.reason, outcome.failure.index) == ("not finite", index)
        operators.append(outcome.failure.operator)
    assert operators == [
        *["convolution", "batch norm (mean)", "batch norm (inverse deviation)"] * 2,
        "convolution",
        *["convolution (input gradient)", "convolution (weight gradient)"] * 2,
        "convolution (weight gradient)",
    ]


@pytest.mark.parametrize("name", NETS)
def test_products_of_another_batch_or_other_weights_are_false(name: str) -> None:
    step, other = Step(name), Step(name, 1)
    weights, batch = step.model.state_dict(), step.x
    other.model.load_state_dict(weights)
    outcome, _ = checked(step, other.witness())
    assert outcome.failure is not None
    assert (outcome.failure.reason, outcome.failure.index) == ("inconsistent", 0)
    other = Step(name, 1)
    other.x = batch
    outcome, _ = checked(step, other.witness())
    assert outcome.failure is not None and outcome.failure.reason == "inconsistent"


class Coarse(_products.TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps what tensor cores make of each product: operands rounded to the 11 bits of TF32."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.results: Tensors = []

    @staticmethod
    def rounded(value: Any) -> Any:
        if not (isinstance(value, torch.Tensor) and value.is_floating_point()):
            return value
        mantissa, exponent = torch.frexp(value)
        return torch.ldexp((mantissa * 2048).round() / 2048, exponent)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        coarse = tuple(self.rounded(one) for one in args)
        for claim in _claims.claims_of(func, coarse, kwargs):
            self.results.append(claim.compute().contiguous())
        return func(*args, **kwargs)


@pytest.mark.parametrize("name", NETS)
def test_a_product_of_operands_with_fewer_bits_is_never_taken(name: str) -> None:
    step = Step(name)
    plain = [one.clone() for one in step.gradients()]
    honest = step.witness()
    with Coarse() as coarse:
        step.gradients()
    again = 0
    for index in range(0, len(honest), 3 if name == "gpt" else 1):
        witness = [one.clone() for one in honest]
        witness[index] = coarse.results[index]
        outcome, gradients = checked(step, witness)
        if outcome.holds:
            assert outcome.unusual == [index]
            assert outcome.verified == len(honest) - 1
            assert differences(gradients, plain) < 1e-5
            again += 1
        else:
            assert outcome.failure is not None
            assert (outcome.failure.reason, outcome.failure.index) == ("inconsistent", index)
    assert again > 0


Edit = Callable[[Tensors], Any]
BAD: dict[str, tuple[Edit, str, int]] = {
    "no tensor at all": (lambda w: [], "missing", 0),
    "the last one missing": (lambda w: w[:-1], "missing", COUNTS["mlp"] - 1),
    "one more": (lambda w: [*w, w[0].clone()], "leftover", COUNTS["mlp"]),
    "another shape": (lambda w: [w[0].T.contiguous(), *w[1:]], "shape", 0),
    "as many elements in another shape": (lambda w: [w[0].view(-1), *w[1:]], "shape", 0),
    "another order": (lambda w: w[::-1], "shape", 0),
    "another type": (lambda w: [w[0].double(), *w[1:]], "dtype", 0),
    "integers": (lambda w: [w[0].int(), *w[1:]], "dtype", 0),
    "no tensor": (lambda w: [None, *w[1:]], "missing", 0),
    "an array": (lambda w: [w[0].numpy(), *w[1:]], "malformed", 0),
    "a parameter": (lambda w: [nn.Parameter(w[0]), *w[1:]], "malformed", 0),
    "sparse": (lambda w: [w[0].to_sparse(), *w[1:]], "malformed", 0),
    "columns first": (lambda w: [w[0].T.contiguous().T, *w[1:]], "malformed", 0),
    "one element for all": (lambda w: [torch.ones(1).expand(w[0].shape), *w[1:]], "malformed", 0),
    "no memory": (lambda w: [w[0].to("meta"), *w[1:]], "malformed", 0),
    "a NaN": (lambda w: [w[0].index_fill(0, torch.tensor(3), float("nan")), w[1]], "not finite", 0),
    "an infinity": (lambda w: [w[0], w[1].index_fill(0, torch.tensor(3), -float("inf"))],
                    "not finite", 1),
    "the largest numbers": (lambda w: [torch.full_like(w[0], 3e38), w[1]], "inconsistent", 0),
    "zeros": (lambda w: [w[0], torch.zeros_like(w[1])], "inconsistent", 1),
}  # fmt: skip


@pytest.mark.parametrize("edit", BAD)
def test_a_witness_that_is_none_is_refused_for_its_reason(edit: str) -> None:
    step = Step("mlp")
    change, reason, index = BAD[edit]
    outcome, _ = checked(step, change(step.witness()))
    assert not outcome.holds
    assert outcome.failure is not None
    assert (outcome.failure.reason, outcome.failure.index) == (reason, index)


def test_two_results_in_one_memory_are_refused() -> None:
    # The step writes into its first result (ReLU in place): the second would change with it.
    x, w = torch.randn(256, 256), torch.randn(256, 256)
    with record_products() as witness:
        (x @ w).relu_() + x @ w
    assert len(witness.tensors) == 2
    with check_products([witness.tensors[0], witness.tensors[0]]) as outcome:
        (x @ w).relu_() + x @ w
    assert outcome.failure is not None
    assert (outcome.failure.reason, outcome.failure.index) == ("malformed", 1)


def test_what_a_step_writes_into_its_results_does_not_change_the_witness() -> None:
    x, w = torch.randn(256, 256), torch.randn(256, 256)
    with record_products() as witness:
        y = x @ w
        y.zero_()
    assert float(witness.tensors[0].abs().max()) > 0
    with check_products(witness.tensors) as outcome:
        y = x @ w
        y.zero_()
    assert outcome.holds


def test_nothing_is_multiplied_while_a_witness_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    step = Step("cnn")
    witness = step.witness()

    def never(*_: object) -> None:
        raise AssertionError("a product was computed")

    claims_of = _claims.claims_of

    def without_computing(*arguments: Any) -> Any:
        found = claims_of(*arguments)
        for one in found:
            object.__setattr__(one, "compute", never)
        return found

    monkeypatch.setattr(_products, "claims_of", without_computing)
    assert checked(step, witness)[0].holds


def test_a_step_that_ends_early_or_fails_does_not_hold() -> None:
    step = Step("mlp")
    witness = step.witness()
    with pytest.raises(OSError, match="gone"), check_products(witness) as outcome:
        raise OSError("gone")
    assert not outcome.holds
    with check_products(witness) as outcome:
        step.model(step.x)
    assert outcome.failure is not None and outcome.failure.reason == "leftover"


def test_a_step_that_goes_on_after_a_false_product_does_not_hold() -> None:
    step = Step("mlp")
    honest = step.witness()
    false = [honest[0] + 100, honest[0], honest[1]]
    with check_products(false) as outcome:
        with pytest.raises(Exception):  # noqa: B017 - as a step with a fallback would
            step.gradients()
        assert not outcome.holds
        step.gradients()
        pytest.fail("the next product is false too")
    assert not outcome.holds
    assert outcome.failure is not None and outcome.failure.reason == "inconsistent"


def test_sums_with_products_batches_and_layouts() -> None:
    a, b = torch.randn(3, 128, 160), torch.randn(3, 160, 128)
    d = torch.randn(128, 128)
    image = torch.randn(16, 32, 8, 8).to(memory_format=torch.channels_last)
    layer = nn.Conv2d(32, 64, 3, padding=1).to(memory_format=torch.channels_last)
    line, kernel = torch.randn(8, 32, 64), torch.randn(64, 32, 5)
    volume, cube = torch.randn(4, 32, 4, 6, 6), torch.randn(64, 32, 3, 3, 3)

    def run() -> Tensors:
        return [
            torch.bmm(a, b),
            torch.baddbmm(d, a, b),
            torch.addmm(d, a[0], b[0]),
            torch.addmm(d[0], a[0], b[0]),
            torch.mm(b[0].T, a[0].T),
            layer(image),
            nn.functional.conv1d(line, kernel, padding=2, stride=2),
            nn.functional.conv3d(volume, cube, padding=(1, 0, 1), dilation=(1, 2, 1)),
        ]

    with record_products() as witness:
        expected = run()
    assert [one.shape for one in witness.tensors] == [one.shape for one in expected]
    with check_products(witness.tensors) as outcome:
        found = run()
    assert outcome.holds and outcome.verified == 8, outcome.failure
    for got, wanted in zip(found, expected, strict=True):
        assert torch.equal(got, wanted) and got.stride() == wanted.stride()
    false = [one.clone() for one in witness.tensors]
    for one in false:
        one.view(-1)[5] += 1000
        with check_products([one]) as outcome:
            run()
        assert outcome.failure is not None


@pytest.mark.parametrize(
    "product",
    [
        lambda a, b, d: torch.addmm(d, a, b, beta=2),
        lambda a, b, d: torch.addmm(d, a, b, alpha=2),
        lambda a, b, d: a.double() @ b.double(),
        lambda a, b, d: a.bfloat16() @ b.bfloat16(),
        lambda a, b, d: a[:8] @ b,
        lambda a, b, d: a[:24] @ b,
        lambda a, b, d: nn.functional.conv_transpose2d(
            a.view(8, 32, 16, 16), b.view(-1)[: 32 * 32 * 9].view(32, 32, 3, 3)
        ),
        lambda a, b, d: nn.functional.conv2d(
            a.view(16, 16, 16, 16), b[0, :144].view(16, 1, 3, 3), groups=16
        ),
    ],
)
def test_what_has_no_check_or_is_too_small_for_one_is_computed(
    product: Callable[..., torch.Tensor],
) -> None:
    a, b, d = torch.randn(256, 256), torch.randn(256, 256), torch.randn(256, 256)
    with record_products() as witness:
        product(a, b, d)
    assert witness.tensors == []
    with check_products([]) as outcome:
        product(a, b, d)
    assert outcome.holds and outcome.verified == 0


def test_the_tensors_may_come_one_at_a_time() -> None:
    step = Step("mlp")
    asked = []

    def loaded(witness: Tensors) -> Any:
        for index, one in enumerate(witness):
            asked.append(index)
            yield one

    assert checked(step, loaded(step.witness()))[0].holds
    assert asked == [0, 1]


def test_examples_of_docstrings_are_true() -> None:
    import doctest

    assert doctest.testmod(_products, extraglobs={"torch": torch}).failed == 0
