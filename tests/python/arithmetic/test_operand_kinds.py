# SPDX-License-Identifier: Apache-2.0
"""Tensors that are not dense, or have no memory, in a `deterministic` block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

pytest.importorskip("potl._torch", reason="potl was built without torch")

import potl

A = torch.arange(12.0).reshape(3, 4)
COO, CSR = A.to_sparse(), A.to_sparse_csr()
MKLDNN = A.to_mkldnn()
NESTED = torch.nested.nested_tensor([A[:1], A])


def embedding_with_sparse_gradients() -> None:
    layer = nn.Embedding(10, 4, sparse=True)
    layer(torch.arange(5)).sum().backward()


# Each runs a kernel of torch's own for such tensors, whose sums differ between machines.
NOT_DENSE: dict[str, Callable[[], Any]] = {
    "coo @ dense": lambda: COO @ A.t(),
    "csr @ dense": lambda: CSR @ A.t(),
    "dense + coo": lambda: A.clone().add_(COO),
    "coo + coo": lambda: COO + COO,
    "csr + csr": lambda: CSR + CSR,
    "coo * 2": lambda: COO * 2,
    "sin(coo)": lambda: torch.sin(COO),
    "softmax(coo)": lambda: torch.sparse.softmax(COO, 1),
    "clone(coo)": lambda: COO.clone(),
    "coalesce": lambda: torch.sparse_coo_tensor(torch.zeros(1, 2, dtype=torch.long), A[0, :2]),
    "to_dense": lambda: COO.to_dense(),
    "to_sparse": lambda: A.to_sparse(),
    "embedding": embedding_with_sparse_gradients,
    "tanh(mkldnn)": lambda: torch.tanh(MKLDNN),
    "mkldnn + mkldnn": lambda: MKLDNN + MKLDNN,
    "to_mkldnn": lambda: A.to_mkldnn(),
    "linear(nested)": lambda: F.linear(NESTED, A),
    "layer_norm(nested)": lambda: F.layer_norm(NESTED, (4,), torch.ones(4), torch.zeros(4)),
    "nested + nested": lambda: NESTED + NESTED,
    "gelu(nested)": lambda: F.gelu(NESTED),
}


@pytest.mark.parametrize("name", NOT_DENSE)
def test_tensors_that_are_not_dense_are_refused(name: str) -> None:
    NOT_DENSE[name]()  # torch can
    with pytest.raises(potl.NotReproducible) as refused, potl.deterministic("ord32"):
        NOT_DENSE[name]()
    assert refused.value.remedy
    NOT_DENSE[name]()  # and can again


def test_blocks_inside_and_after_an_error_leave_torch_as_it_was() -> None:
    with potl.deterministic("ord32"):
        with potl.deterministic("ord32"):
            pass
        with pytest.raises(potl.NotReproducible):
            COO.to_dense()
    assert torch.equal(COO.to_dense(), A)


def test_errors_that_have_other_reasons_stay() -> None:
    with pytest.raises(RuntimeError, match="must match the size"), potl.deterministic("ord32"):
        torch.ones(3) + torch.ones(4)


# ---------------------------------------------------------------------- without memory


def test_second_derivatives_meet_gradients_without_memory() -> None:
    """The derivative of sign(x) is a zero that has no memory."""
    x = torch.tensor([-2.0, 3.0], requires_grad=True)
    with potl.deterministic("ord32"):
        (first,) = torch.autograd.grad((x.abs() * x).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
    assert torch.equal(second, torch.tensor([-2.0, 2.0]))


@pytest.mark.parametrize("operator", [torch.add, torch.sub, torch.mul, torch.div])
def test_zeros_without_memory_are_zeros(operator: Callable[[Tensor, Tensor], Tensor]) -> None:
    with potl.deterministic("ord32"):
        got = operator(torch._efficientzerotensor((3,)), torch.ones(3))
    assert torch.equal(got + 0, operator(torch.zeros(3), torch.ones(3)))


def test_zeros_without_memory_are_copied() -> None:
    """Like a copy that turns what it copies."""
    x = torch.randn(64, 128, requires_grad=True)
    with potl.deterministic("ord32"):
        y = x.reshape(128, 64).t()
        (first,) = torch.autograd.grad(y.abs().sum(), y, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
    assert not second.any()


def test_sizes_are_computed_without_memory() -> None:
    x = torch.empty(3, 1, device="meta")
    with potl.deterministic("ord32"):
        assert (x * torch.empty(4, device="meta") + 1).shape == (3, 4)
