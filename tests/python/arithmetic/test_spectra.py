# SPDX-License-Identifier: Apache-2.0
"""Eigenvalues, singular values and least squares in a block: signs, ranks, all their forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("potl._torch")

import potl

A = torch.tensor([[4.0, 1.0, -2.0], [1.0, 2.0, 0.0], [-2.0, 0.0, 3.0]])
TALL = torch.tensor([[3.0, 1.0], [-4.0, 1.0], [0.0, 1.0]])
FORMS: dict[str, Callable[..., Any]] = {
    "eigh": torch.linalg.eigh,
    "eigvalsh": torch.linalg.eigvalsh,
    "svd": torch.linalg.svd,
    "svdvals": torch.linalg.svdvals,
    "pinv": torch.linalg.pinv,
    "lstsq": lambda a, **out: torch.linalg.lstsq(a, TALL, **out),
    "cholesky_inverse": torch.cholesky_inverse,
}


def leaves(result: Any) -> list[Tensor]:
    return [result] if isinstance(result, Tensor) else list(result)


def is_positive(vectors: Tensor) -> bool:
    """The largest element of each column is."""
    return bool((vectors.gather(-2, vectors.abs().argmax(-2, keepdim=True)) > 0).all())


def test_eigenvectors_have_a_rule_for_their_signs() -> None:
    many = torch.randn(20, 6, 6, generator=torch.Generator().manual_seed(2))
    with potl.deterministic():
        values, vectors = torch.linalg.eigh(many)
        u, _, v = torch.linalg.svd(many[..., :4])
    assert is_positive(vectors)
    assert is_positive(u)
    expected = torch.linalg.eigh(many).eigenvectors
    torch.testing.assert_close(vectors.abs(), expected.abs(), rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(values, torch.linalg.eigvalsh(many), rtol=1e-4, atol=1e-5)
    assert v.shape == (20, 4, 4)


@pytest.mark.parametrize("triangle", ["L", "U"])
def test_eigh_reads_one_triangle_alone(triangle: str) -> None:
    with potl.deterministic():
        whole = torch.linalg.eigh(A)
        ones = torch.ones_like(A)
        other = ones.triu(1) if triangle == "L" else ones.tril(-1)
        part = torch.linalg.eigh(A.masked_fill(other.bool(), torch.nan), triangle)
        with pytest.raises(RuntimeError, match="UPLO"):
            torch.linalg.eigh(A, "X")
    for one, other in zip(whole, part, strict=True):
        assert torch.equal(one, other)


def test_each_matrix_of_a_batch_is_decomposed_for_itself() -> None:
    many = torch.randn(40, 9, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    with potl.deterministic():
        together = torch.linalg.svd(many)
        apart = [torch.linalg.svd(one) for one in many]
        for index, part in enumerate(together):
            assert torch.equal(part, torch.stack([one[index] for one in apart]))


def test_values_alone_have_the_bits_of_those_with_vectors() -> None:
    with potl.deterministic():
        assert torch.equal(torch.linalg.eigvalsh(A), torch.linalg.eigh(A).eigenvalues)
        assert torch.equal(torch.linalg.svdvals(TALL), torch.linalg.svd(TALL).S)


@pytest.mark.parametrize("mode", ["cr32", "log64", "xint24", "xint16"])
def test_a_spectrum_is_the_same_in_every_mode(mode: str) -> None:
    with potl.deterministic():
        wanted = [*torch.linalg.eigh(A), *torch.linalg.svd(TALL), torch.linalg.lstsq(TALL, A)[0]]
    with potl.deterministic(mode):
        found = [*torch.linalg.eigh(A), *torch.linalg.svd(TALL), torch.linalg.lstsq(TALL, A)[0]]
    for one, other in zip(found, wanted, strict=True):
        assert torch.equal(one, other)


def test_ranks_are_counted() -> None:
    with potl.deterministic():
        one = torch.ones(4, 3, dtype=torch.float64)
        assert torch.linalg.matrix_rank(one).item() == 1
        assert torch.linalg.matrix_rank(torch.zeros(3, 3), hermitian=True).item() == 0
        torch.testing.assert_close(torch.linalg.pinv(one), one.mT / 12)
        # Of all solutions the shortest.
        solved = torch.linalg.lstsq(one, 6 * one[:, 0])
    assert solved.rank.item() == 1
    torch.testing.assert_close(solved.solution, torch.full((3,), 2.0, dtype=torch.float64))


@pytest.mark.parametrize("driver", [None, "gels", "gelsy", "gelsd", "gelss"])
@pytest.mark.parametrize(
    "sizes", [((3, 2), (3, 2)), ((3, 2), (3,)), ((4, 3, 2), (1, 3, 5)), ((2, 3), (2, 1))]
)
def test_least_squares_give_what_torch_gives(driver: str | None, sizes: Any) -> None:
    generator = torch.Generator().manual_seed(4)
    a, b = (torch.randn(*size, generator=generator) for size in sizes)
    stock = torch.linalg.lstsq(a, b, driver=driver)
    with potl.deterministic():
        found = torch.linalg.lstsq(a, b, driver=driver)
    for one, other in zip(found, stock, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_least_squares_refuse_an_rcond_that_is_no_number() -> None:
    with potl.deterministic(), pytest.raises(RuntimeError, match="rcond is NaN"):
        torch.linalg.lstsq(TALL, TALL, rcond=float("nan"))


@pytest.mark.parametrize("form", ["eigh", "eigvalsh", "svd", "svdvals", "pinv", "lstsq"])
@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_what_is_not_finite_raises_as_in_torch(form: str, wrong: float) -> None:
    a = A.clone()
    a[2, 1] = wrong
    with potl.deterministic():
        with pytest.raises(torch.linalg.LinAlgError, match="non-finite"):
            FORMS[form](a)
        with pytest.raises(torch.linalg.LinAlgError, match="Batch element 1"):
            torch.linalg.svd(torch.stack([A, a]))


@pytest.mark.parametrize("form", FORMS)
def test_results_are_written_to_out(form: str) -> None:
    with potl.deterministic():
        plain = FORMS[form](A)
        places = [torch.empty_like(one) for one in leaves(plain)]
        FORMS[form](A, out=places if len(places) > 1 else places[0])
    for one, other in zip(places, leaves(plain), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("function", [torch.linalg.eigh, torch.linalg.svd, torch.linalg.qr])
def test_complex_matrices_are_refused_by_name(function: Callable[[Tensor], Any]) -> None:
    with potl.deterministic(), pytest.raises(potl.NotReproducible, match=function.__name__[7:]):
        function(A.to(torch.complex64))


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0), (2, 0, 0), (0, 3, 3)])
def test_matrices_without_elements_have_results_without_elements(shape: tuple[int, ...]) -> None:
    x = torch.zeros(shape)
    stock = torch.linalg.svd(x)
    with potl.deterministic():
        found = torch.linalg.svd(x)
        assert torch.linalg.lstsq(x, x[..., :1]).solution.shape[-2] == shape[-1]
    for one, other in zip(found, stock, strict=True):
        assert torch.equal(one, other)
