# SPDX-License-Identifier: Apache-2.0
"""The samples that torch tests its own operators with, in a `deterministic` block.

What is not refused there has torch's value and gradients, and the same bits when its operands lie
apart in memory; in-place and out= forms have the bits of the plain one.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

pytest.importorskip("potl._torch", reason="potl was built without torch")
pytest.importorskip("expecttest", reason="torch's own samples need it")

import potl

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal import common_utils
    from torch.testing._internal.common_methods_invocations import op_db

SAMPLES = 24 if os.environ.get("POTL_FULL") else 2
# Not functions of their operands' values: memory as it was found, or how an operand lies in it.
UNDEFINED = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty")
UNDEFINED += ("new_empty_strided", "resize_", "resize_as_")
UNDEFINED += ("as_strided", "as_strided_copy", "as_strided_scatter")
# Values are drawn from potl's generator instead of torch's.
DRAWN = ("bernoulli", "cauchy", "dropout", "exponential", "geometric", "log_normal", "multinomial")
DRAWN += ("multi_head_attention_forward", "normal", "rand", "rrelu", "uniform")
# Torch itself composes differently for operands that lie apart (docs/reference/arithmetic.md).
BY_STRIDES = ("inner", "nn.functional.scaled_dot_product_attention")
BY_STRIDES += ("linalg.det", "linalg.slogdet", "logdet")  # their gradients alone
# Vectors have the signs of potl's rule (docs/reference/neural_operators.md). Functions that do not
# depend on signs are in helpers/sampling_cases.py.
BY_SIGNS = ("linalg.eigh", "linalg.svd", "svd", "svd_lowrank", "pca_lowrank")
# In place, torch gives the operand another size.
RESIZED = ("addbmm",)
# Of a value, and of the largest operand or result: sums of many terms cancel.
RELATIVE, OF_LARGEST = 2e-4, 1e-4

Call = tuple[Any, tuple[Any, ...], dict[str, Any]]
OPERATORS = {
    f"{one.name}{'.' if one.variant_test_name else ''}{one.variant_test_name}": one
    for one in op_db
    if torch.float32 in one.dtypes
    and one.name not in UNDEFINED
    and not one.name.startswith("jiterator")  # for GPUs
}


@pytest.fixture(autouse=True)
def no_traces_of_stacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of what samples take: torch keeps one for each kind of device that is not in use,
    whenever a seed is set, and looks for the test that asks.
    """
    monkeypatch.setattr(torch, "manual_seed", torch.default_generator.manual_seed)
    monkeypatch.setattr(common_utils, "extract_test_fn", lambda: None)


def samples(operator: Any) -> Iterator[Call]:
    """A few of torch's samples, the first and the last among them."""
    torch.manual_seed(1)
    differentiable = torch.float32 in (operator.backward_dtypes or ())
    every = list(operator.sample_inputs("cpu", torch.float32, requires_grad=differentiable))
    chosen = {round(i * (len(every) - 1) / max(1, SAMPLES - 1)) for i in range(SAMPLES)}
    for index in sorted(chosen & set(range(len(every)))):
        one = every[index]
        yield one.input, tuple(one.args), dict(one.kwargs)


def copied(call: Call, *, apart: bool = False, gradients: bool = True) -> Call:
    """Operands of its own; `apart`: every second place of a larger memory."""

    def copy(value: Any) -> Any:
        if not isinstance(value, Tensor) or value.layout != torch.strided:
            return value
        new = value.detach().clone(memory_format=torch.preserve_format)
        if apart and value.dim() > 0:
            room = torch.zeros(*value.shape[:-1], 2 * value.shape[-1] + 1, dtype=value.dtype)
            new = room[..., 1::2].copy_(new)
        return new.requires_grad_(gradients and value.requires_grad)

    copy_of: Call = tree_map(copy, call)
    return copy_of


def is_real(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point() and value.layout == torch.strided


def results(function: Callable[..., Any], call: Call) -> list[Any]:
    """What the call gives, and the gradients of its operands."""
    torch.manual_seed(5)
    first, rest, named = call
    out = function(first, *rest, **named)
    outputs = [one for one in tree_leaves(out) if is_real(one) and one.requires_grad]
    inputs = [one for one in tree_leaves(call) if is_real(one) and one.requires_grad]
    found = tree_leaves(out)
    if outputs and inputs:
        weights = [(torch.arange(one.numel()) % 7 - 3.0).reshape(one.shape) for one in outputs]
        weights = [weight.to(one.dtype) for weight, one in zip(weights, outputs, strict=True)]
        found = found + list(torch.autograd.grad(outputs, inputs, weights, allow_unused=True))
    return [one.detach().clone() if isinstance(one, Tensor) else one for one in found]


def in_block(function: Callable[..., Any], call: Call) -> list[Any]:
    with potl.deterministic("ord32"):
        return results(function, call)


def by_torch(function: Callable[..., Any], call: Call) -> list[Any] | None:
    """None: torch has no result, or no gradient."""
    try:
        return results(function, call)
    except RuntimeError:
        return None


def bits(found: list[Any]) -> list[Any]:
    """Values as integers; all NaN are one."""
    out = []
    for one in found:
        if is_real(one):
            one = torch.where(one.isnan(), torch.full_like(one, torch.nan), one).contiguous()
            one = one.reshape(-1).view(torch.uint8)
        out.append(one.tolist() if isinstance(one, Tensor) else one)
    return out


def largest(values: list[Any]) -> float:
    finite = [one.abs()[one.isfinite()] for one in values if is_real(one)]
    return max([1.0, *(float(one.max()) for one in finite if one.numel())])


def assert_close(found: list[Any], stock: list[Any], unit: float) -> None:
    assert len(found) == len(stock)
    for one, other in zip(found, stock, strict=True):
        if not isinstance(other, Tensor):
            continue
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        if other.is_floating_point():
            torch.testing.assert_close(
                one, other, rtol=RELATIVE, atol=OF_LARGEST * unit, equal_nan=True
            )
        elif not other.is_complex():
            assert torch.equal(one, other)


def assert_out_is_written(function: Callable[..., Any], call: Call, like: Any) -> None:
    """A result that lies apart in memory gets the bits of a new one."""
    if not isinstance(like, Tensor) or like.layout != torch.strided:
        return

    def into(*operands: Any, **options: Any) -> Tensor:
        room = torch.zeros(*like.shape, 2, dtype=like.dtype)
        function(*operands, **options, out=room[..., 0])
        return room

    stock = by_torch(into, call)
    if stock is None or bits([stock[0][..., 0]]) != bits([like]) or stock[0][..., 1].any():
        return  # some of torch's compositions write to other places
    [plain] = in_block(function, call)
    [room] = in_block(into, call)
    assert bits([room[..., 0]]) == bits([plain])
    assert not room[..., 1].any()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_is_refused_or_has_torchs_value_and_one_set_of_bits(name: str) -> None:
    operator = OPERATORS[name]
    for call in samples(operator):
        stock = by_torch(operator.op, copied(call))
        if stock is None:
            continue
        try:
            found = in_block(operator.op, copied(call))
        except potl.NotReproducible as refused:
            assert refused.remedy
            continue
        is_drawn = any(part in operator.name for part in DRAWN) or call[2].get("dropout_p", 0) > 0
        if not is_drawn and operator.name not in BY_SIGNS:
            assert_close(found, stock, largest([*tree_leaves(call), *stock]))
        apart = copied(call, apart=True)
        if operator.name not in BY_STRIDES and by_torch(operator.op, apart) is not None:
            assert bits(in_block(operator.op, copied(call, apart=True))) == bits(found)
        call = copied(call, gradients=False)
        if operator.supports_out and len(stock_of := by_torch(operator.op, call) or []) == 1:
            assert_out_is_written(operator.op, call, stock_of[0])
        in_place = operator.inplace_variant
        if in_place is None or is_drawn or operator.name in RESIZED:
            continue
        if by_torch(in_place, copied(call)) is None:
            continue
        [plain] = in_block(operator.op, copied(call))
        [written] = in_block(in_place, copied(call))
        assert bits([written]) == bits([plain.to(written.dtype)])
