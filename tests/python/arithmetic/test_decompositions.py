# SPDX-License-Identifier: Apache-2.0
"""Solvers in a block: what they refuse, what they promise of singular matrices, all their forms."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("potl._torch")

import potl

A = torch.tensor([[0.0, 2.0, 1.0], [1.0, 1.0, 0.0], [3.0, 0.0, 1.0]])
SINGULAR = torch.tensor([[1.0, 2.0], [2.0, 4.0]])


def test_a_matrix_of_small_integers_is_solved_exactly() -> None:
    x = torch.tensor([1.0, -2.0, 4.0])
    with potl.deterministic():
        assert torch.equal(torch.linalg.solve(A, A @ x), x)
        assert torch.linalg.det(A).item() == -5.0
        sign, logarithm = torch.linalg.slogdet(A)
    assert sign.item() == -1.0
    torch.testing.assert_close(logarithm, torch.tensor(5.0).log())


def test_a_singular_matrix_raises_as_in_torch() -> None:
    with potl.deterministic():
        for call in (
            lambda: torch.linalg.solve(SINGULAR, torch.ones(2)),
            lambda: torch.linalg.inv(SINGULAR),
            lambda: torch.linalg.cholesky(-SINGULAR),
            lambda: torch.linalg.cholesky(torch.full((2, 2), float("nan"))),
        ):
            with pytest.raises(torch.linalg.LinAlgError):
                call()
        assert torch.linalg.det(SINGULAR).item() == 0.0
        assert [x.item() for x in torch.linalg.slogdet(SINGULAR)] == [0.0, -float("inf")]
        assert torch.linalg.inv_ex(SINGULAR).info.item() == 2


def test_a_right_hand_side_may_have_another_type_than_its_triangle() -> None:
    a, b = torch.randn(5, 5).tril() + 4 * torch.eye(5), torch.randn(5, 2).bfloat16()
    with potl.deterministic():
        found = torch.linalg.solve_triangular(a, b, upper=False)
        assert torch.equal(found, torch.linalg.solve_triangular(a, b.float(), upper=False))
    torch.testing.assert_close(found, torch.linalg.solve_triangular(a, b, upper=False))


def test_cholesky_reads_one_triangle_alone() -> None:
    a = A @ A.mT + torch.eye(3)
    with potl.deterministic():
        whole = torch.linalg.cholesky(a)
        assert torch.equal(torch.linalg.cholesky(a.tril()), whole)
        assert torch.equal(torch.linalg.cholesky(a.triu(), upper=True), whole.mT)
    assert torch.equal(whole, whole.tril())


def test_the_signs_of_qr_are_torchs() -> None:
    for a in (A, A[:, :2], A[:2], torch.eye(3), -torch.eye(3), torch.zeros(3, 2)):
        with potl.deterministic():
            q, r = torch.linalg.qr(a)
            alone = torch.linalg.qr(a, "r").R
        expected = torch.linalg.qr(a)
        torch.testing.assert_close((q, r), tuple(expected), rtol=1e-5, atol=1e-6)
        assert torch.equal(alone, r)


def test_each_matrix_of_a_batch_is_decomposed_for_itself() -> None:
    generator = torch.Generator().manual_seed(1)
    many = torch.randn(64, 12, 12, generator=generator, dtype=torch.float64)
    b = torch.randn(64, 12, 2, generator=generator, dtype=torch.float64)
    with potl.deterministic():
        assert torch.equal(
            torch.linalg.solve(many, b),
            torch.stack([torch.linalg.solve(x, y) for x, y in zip(many, b, strict=True)]),
        )
        q = torch.linalg.qr(many).Q
        assert torch.equal(q, torch.stack([torch.linalg.qr(x).Q for x in many]))
    eye = torch.eye(12, dtype=torch.float64).expand(64, -1, -1)
    torch.testing.assert_close(q.mT @ q, eye, rtol=0, atol=1e-13)


def test_strides_do_not_change_a_determinant() -> None:
    many = torch.randn(64, 12, 12, generator=torch.Generator().manual_seed(1))
    with potl.deterministic():
        for function in (torch.linalg.det, torch.linalg.slogdet):
            apart = function(many.mT.contiguous().mT)
            for one, other in zip(
                torch.utils._pytree.tree_leaves(function(many)),
                torch.utils._pytree.tree_leaves(apart),
                strict=True,
            ):
                assert torch.equal(one, other)


def test_results_are_written_to_out() -> None:
    with potl.deterministic():
        inverse = torch.linalg.inv(A)
        assert torch.equal(torch.linalg.inv(A, out=torch.empty(3, 3)), inverse)
        q, r = torch.linalg.qr(A)
        out = torch.linalg.qr(A, out=(torch.empty(3, 3), torch.empty(3, 3)))
        assert torch.equal(out[0], q)
        assert torch.equal(out[1], r)


@pytest.mark.parametrize("place", [0, 4, -1])
def test_places_of_pivots_outside_of_the_matrix_are_refused(place: int) -> None:
    with potl.deterministic():
        lu, pivots = torch.linalg.lu_factor(A)
        pivots[1] = place
        with pytest.raises(RuntimeError, match="pivots"):
            torch.linalg.lu_solve(lu, pivots, torch.ones(3, 1))


def test_factors_without_pivots_are_refused_with_the_remedy() -> None:
    with potl.deterministic(), pytest.raises(potl.NotReproducible) as raised:
        torch.linalg.lu_factor(A, pivot=False)
    assert "pivot=True" in raised.value.remedy


def test_the_exponential_of_a_matrix_is_that_of_its_own_size() -> None:
    turn, far = torch.tensor([[0.0, -1.0], [1.0, 0.0]]), float("inf")
    many = torch.stack([1000 * turn, 1e-3 * turn, torch.tensor([[far, 0], [0, 0]]), turn * 0])
    with potl.deterministic():
        exact = torch.linalg.matrix_exp(many)
        for one, alone in zip(exact, many, strict=True):
            torch.testing.assert_close(
                torch.linalg.matrix_exp(alone), one, rtol=0, atol=0, equal_nan=True
            )
        assert torch.linalg.matrix_exp(torch.tensor([[-3e38]])).item() == 0.0
    angles = torch.tensor([1000.0, 1e-3], dtype=torch.float64)
    torch.testing.assert_close(exact[:2, 0, 0], angles.cos().float(), rtol=0, atol=1e-6)
    assert exact[2].isnan().any()
    assert torch.equal(exact[3], torch.eye(2))


@pytest.mark.parametrize("sizes", [(4, 4), (6, 3)])
@pytest.mark.parametrize("by", ["matrix_exp", "householder", "cayley"])
def test_weights_are_orthogonal_by_each_map_of_torch(by: str, sizes: tuple[int, int]) -> None:
    net = torch.nn.Linear(*sizes)
    torch.nn.utils.parametrizations.orthogonal(net, orthogonal_map=by)
    with potl.deterministic():
        net(torch.ones(2, sizes[0])).square().sum().backward()
        product = net.weight @ net.weight.mT
    torch.testing.assert_close(product, torch.eye(sizes[1]), rtol=0, atol=1e-5)
