# SPDX-License-Identifier: Apache-2.0
"""torch.func.jacrev, and is_grads_batched, pass several gradients of one operand to an operator."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

pytest.importorskip("potl._torch")

import potl

# Not mish and silu: under vmap torch makes their gradients of other operators.
NAMES = (
    "celu elu gelu hardshrink hardsigmoid hardswish hardtanh leaky_relu logsigmoid relu relu6 selu "
    "sigmoid softplus softshrink tanh tanhshrink"
)
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {n: getattr(F, n) for n in NAMES.split()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", [(7,), (1,), (2, 3)])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_jacobian_has_the_bits_of_its_rows(
    name: str, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    function = FUNCTIONS[name]
    x = torch.linspace(-4, 4, 7, dtype=dtype)[: torch.Size(shape).numel()].view(shape)
    directions = torch.arange(1, 4 * x.numel() + 1, dtype=dtype).view(4, *shape)
    with potl.deterministic("ord32"):
        leaf = x.clone().requires_grad_()
        y = function(leaf)
        rows = [torch.autograd.grad(y, leaf, dy, retain_graph=True)[0] for dy in directions]
        (together,) = torch.autograd.grad(
            y, leaf, directions, is_grads_batched=True, retain_graph=True
        )
        assert torch.equal(together, torch.stack(rows))
        _, pull = torch.func.vjp(function, x)
        (pulled,) = torch.func.vmap(pull)(directions)
        assert torch.equal(pulled, torch.stack(rows))
        jacobian = torch.func.jacrev(function)(x)
    assert jacobian.shape == (*shape, *shape)
