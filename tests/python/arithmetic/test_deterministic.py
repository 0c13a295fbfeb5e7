# SPDX-License-Identifier: Apache-2.0
"""`potl.deterministic` as a block of Python: how it nests and ends, and what it refuses."""

import subprocess
import threading
from collections.abc import Callable
from typing import Any

import programs
import pytest
import torch
from places import ROOT
from torch import Tensor, nn

import potl

pytest.importorskip("potl._torch", reason="potl was built without torch")

from potl._arithmetic import _arithmetic, _library

A = torch.linspace(-1, 1, 21).view(3, 7)
B = torch.linspace(-3, 2, 28).view(7, 4)
# Has no reproducible form, and does without any of the block's kernels.
UNKNOWN: Callable[[], Tensor] = lambda: torch.geqrf(A)[0]  # noqa: E731


def is_on() -> bool:
    return bool(_library.module().is_on())


def in_thread(function: Callable[[], Any]) -> Any:
    """What a function gives, or raises, in a thread of its own."""
    got: list[Any] = []

    def run() -> None:
        try:
            got.append(function())
        except Exception as error:
            got.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return got[0]


# ---------------------------------------------------------------------- entering and leaving


def test_a_lenient_block_within_another_leaves_it_lenient() -> None:
    outer, inner = (_arithmetic._lenient("ord32") for _ in range(2))
    with outer:
        with inner:
            assert _library.module().lets_through()
        assert _library.module().lets_through()
        UNKNOWN()
    assert not _library.module().lets_through()


def test_the_block_ends_where_it_ends() -> None:
    assert not is_on()
    with potl.deterministic():
        assert is_on()
        with pytest.raises(potl.NotReproducible):
            UNKNOWN()
    assert not is_on()
    assert UNKNOWN().shape == A.shape


def test_blocks_nest() -> None:
    with potl.deterministic("cr32"):
        with potl.deterministic("cr32"):
            pass
        assert is_on()
    assert not is_on()


def test_another_mode_inside_is_a_usage_error_that_names_both() -> None:
    with potl.deterministic("cr32"):
        with pytest.raises(potl.UsageError, match="cr32, not in ord32"):
            potl.deterministic("ord32").__enter__()
        assert is_on()
    assert not is_on()


def test_other_bits_inside_are_a_usage_error() -> None:
    with (
        potl.deterministic("log64", bits=28),
        pytest.raises(potl.UsageError, match="28 bits, not in log64 of 32"),
    ):
        potl.deterministic("log64").__enter__()


def test_an_exception_leaves_the_block() -> None:
    with pytest.raises(ZeroDivisionError), potl.deterministic():
        raise ZeroDivisionError
    assert not is_on()


def test_a_refusal_leaves_the_block() -> None:
    with pytest.raises(potl.NotReproducible), potl.deterministic():
        UNKNOWN()
    assert not is_on()


@pytest.mark.parametrize(("mode", "text"), [("fp8", '"fp8"'), ("stock", '"stock"')])
def test_an_unknown_mode_is_a_usage_error_with_the_known_ones(mode: str, text: str) -> None:
    with pytest.raises(potl.UsageError, match=text) as raised, potl.deterministic(mode):
        pass
    assert "xint16" in raised.value.remedy


@pytest.mark.parametrize("bits", [22, 33])
def test_bits_outside_of_23_to_32_are_a_usage_error(bits: int) -> None:
    with pytest.raises(potl.UsageError, match="23 to 32"):
        potl.deterministic("log64", bits=bits).__enter__()


def test_bits_belong_to_log64() -> None:
    with pytest.raises(potl.UsageError, match="log64"):
        potl.deterministic("ord32", bits=28).__enter__()


def test_it_decorates_functions() -> None:
    @potl.deterministic("cr32")
    def product() -> Tensor:
        assert is_on()
        return A @ B

    assert torch.equal(product(), (A.double() @ B.double()).float())
    assert not is_on()


def test_a_block_cannot_be_left_by_another_thread() -> None:
    block = _library.module().Block("ord32")
    error = in_thread(block.leave)
    assert isinstance(error, potl.UsageError)
    assert "another thread" in str(error)
    assert is_on()
    block.leave()
    assert not is_on()


# ---------------------------------------------------------------------- operators


def test_an_operator_without_a_reproducible_form_is_named_with_a_remedy() -> None:
    with potl.deterministic(), pytest.raises(potl.NotReproducible) as raised:
        UNKNOWN()
    assert "aten::geqrf" in raised.value.message
    assert raised.value.remedy


def test_a_refused_operator_says_what_to_use_instead() -> None:
    with potl.deterministic(), pytest.raises(potl.NotReproducible) as raised:
        torch._addmm_activation(torch.zeros(3, 4), A, B)
    assert "aten::_addmm_activation" in raised.value.message
    assert "torch.nn.functional.linear" in raised.value.remedy


@pytest.mark.parametrize(
    ("refused", "remedy"),
    [
        (lambda x: torch.special.erfcx(x), "outside the block"),
        (lambda x: torch.special.zeta(x, x), "outside the block"),
        (lambda x: torch.linalg.eigvals(x), "outside the block"),
        (lambda x: torch.geqrf(x), "Cholesky"),
        (
            lambda x: torch.sparse_csr_tensor(
                [0, 1], [0], x[0, :1], (1, 3), check_invariants=False
            ),
            "to_dense",
        ),
        (lambda x: torch.histogram(x, 3), "bucketize"),
        (lambda x: torch.bincount(torch.arange(3), x[0]), "index_add"),
        (
            lambda x: torch._fake_quantize_learnable_per_tensor_affine(
                x, x[0, :1], torch.zeros(1), -128, 127
            ),
            "c = x.clamp(",
        ),
        (
            lambda x: torch.fused_moving_avg_obs_fake_quant(
                x, *(torch.ones(1) for _ in range(5)), torch.zeros(1), 0.01, 0, 255, 0
            ),
            "version=0",
        ),
    ],
)
def test_the_remedy_says_what_to_write(refused: Callable[[Any], Any], remedy: str) -> None:
    with potl.deterministic(), pytest.raises(potl.NotReproducible) as raised:
        refused(torch.eye(3) + 0.25)
    assert remedy in raised.value.remedy


def test_an_operator_of_somebody_else_is_refused() -> None:
    library = torch.library.Library("potl_test_operators", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x + x, "CPU")
    assert torch.equal(torch.ops.potl_test_operators.twice(A), 2 * A)
    with potl.deterministic(), pytest.raises(potl.NotReproducible) as raised:
        torch.ops.potl_test_operators.twice(A)
    assert "potl_test_operators::twice" in raised.value.message
    with potl.deterministic():
        whole = torch.ops.potl_test_operators.twice(torch.arange(3))
    assert whole.tolist() == [0, 2, 4]


def test_inference_mode_and_no_grad_are_no_way_around() -> None:
    for way in (torch.inference_mode, torch.no_grad):
        with potl.deterministic(), way(), pytest.raises(potl.NotReproducible):
            UNKNOWN()


def test_a_function_of_complex_numbers_without_a_form_is_refused() -> None:
    z = torch.complex(A, A)
    with potl.deterministic(), pytest.raises(potl.NotReproducible, match="view_as_real"):
        z.tanh()


def test_other_devices_are_refused() -> None:
    with potl.deterministic(), pytest.raises((potl.NotReproducible, NotImplementedError)):
        A.to_sparse() @ B
    assert not is_on()


def test_integers_are_exact_whatever_the_operator() -> None:
    with potl.deterministic():
        assert (torch.arange(6) @ torch.arange(6)).item() == 55
        assert torch.arange(6).sum().item() == 15


def test_the_page_of_operators_is_up_to_date() -> None:
    script = ROOT / "scripts" / "operator_table.py"
    done = subprocess.run([programs.python(), str(script), "--check"], timeout=600, check=False)
    assert done.returncode == 0, "run scripts/operator_table.py"


# ---------------------------------------------------------------------- graphs


def model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(7, 5), nn.Tanh(), nn.Linear(5, 2))


def test_a_backward_pass_outside_of_the_graphs_block_is_refused() -> None:
    net = model()
    with potl.deterministic():
        loss = net(A).sum()
    with pytest.raises(potl.NotReproducible, match="outside the block") as raised:
        loss.backward()
    assert "before the block ends" in raised.value.remedy
    with pytest.raises(potl.NotReproducible):
        torch.autograd.grad((loss * 2).exp(), list(net.parameters()))
    edge = torch.autograd.graph.get_gradient_edge(loss)
    with pytest.raises(potl.NotReproducible):
        torch.autograd.backward([edge], [torch.ones(())])
    assert all(p.grad is None for p in net.parameters())
    loss.detach().mul(2)


def test_a_backward_pass_inside_over_a_graph_from_outside_is_refused() -> None:
    net = model()
    loss = net(A).sum()
    with potl.deterministic(), pytest.raises(potl.NotReproducible, match="computed outside"):
        loss.backward()
    loss.backward()
    assert all(p.grad is not None for p in net.parameters())


def test_graphs_of_two_blocks_may_be_joined_in_a_third() -> None:
    net = model()
    with potl.deterministic():
        first = net(A).sum()
    with potl.deterministic():
        second = net(2 * A).sum()
    with potl.deterministic():
        (first + second).backward()
    assert all(p.grad is not None for p in net.parameters())


def test_stock_training_after_a_block_is_left_alone() -> None:
    net = model()
    with potl.deterministic():
        net(A).sum().backward()
    net(A).sum().backward()


def test_a_graph_of_a_stock_part_counts_as_outside() -> None:
    net = model()
    with potl.deterministic():
        stock = _library.module().StockBlock()
        loss = net(A).sum()
        stock.leave()
        with pytest.raises(potl.NotReproducible, match="computed outside"):
            loss.backward()
    loss.backward()


def test_checkpointed_graphs_are_recomputed_inside() -> None:
    from torch.utils.checkpoint import checkpoint

    for reentrant in (False, True):
        x = A.clone().requires_grad_()
        net = model()
        with potl.deterministic():
            checkpoint(net, x, use_reentrant=reentrant).sum().backward()
        assert x.grad is not None
