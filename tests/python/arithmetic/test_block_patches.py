# SPDX-License-Identifier: Apache-2.0
"""What a `deterministic` block does with Python around operators: threads, loaders, compilers."""

import _thread
import concurrent.futures
import math
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, Dataset, IterableDataset, dataloader

import potl

pytest.importorskip("potl._torch", reason="potl was built without torch")

from potl._arithmetic import _arithmetic, _block_patches, _library
from potl._arithmetic._block_patches import patches

A = torch.linspace(-1, 1, 21).view(3, 7)


def is_on() -> bool:
    return bool(_library.module().is_on())


# ---------------------------------------------------------------------- restoring


def replaced() -> list[Any]:
    return [
        dataloader.DataLoader.__iter__,
        dataloader._BaseDataLoaderIter.__next__,
        threading.Thread.start,
        concurrent.futures.ThreadPoolExecutor.submit,
        torch.compile,
        sys.modules["torch.optim.adam"]._get_value,
        torch.optim.SparseAdam.step,
        torch.optim._adafactor.adafactor,
        lr_scheduler.math,
        torch.backends.opt_einsum,
        torch.are_deterministic_algorithms_enabled,
        _thread.start_new_thread,
        torch.cuda.CUDAGraph.capture_begin,
        torch.cuda.CUDAGraph.replay,
        torch._C.ScriptFunction.__call__,
        torch._C.ScriptMethod.__call__,
    ]


def test_everything_is_put_back_after_the_last_block() -> None:
    before = replaced()
    with potl.deterministic():
        assert not any(a is b for a, b in zip(before, replaced(), strict=True))
        with potl.deterministic():
            pass
        assert not any(a is b for a, b in zip(before, replaced(), strict=True))
    assert all(a is b for a, b in zip(before, replaced(), strict=True))


def test_a_block_of_another_thread_keeps_what_it_needs() -> None:
    entered, go_on = threading.Event(), threading.Event()

    def other() -> None:
        with potl.deterministic("cr32"):
            entered.set()
            go_on.wait(30)

    thread = threading.Thread(target=other)
    with potl.deterministic():
        pass
    thread.start()
    entered.wait(30)
    with potl.deterministic():  # begins and ends while the other is open
        pass
    assert patches._open == 1
    assert not is_on()
    go_on.set()
    thread.join()
    assert patches._open == 0


# ---------------------------------------------------------------------- threads


def product() -> Any:
    return A @ A.T


def outcome(function: Callable[[], Any]) -> Callable[[list[Any]], None]:
    def run(into: list[Any]) -> None:
        try:
            into.append(function())
        except Exception as error:
            into.append(error)

    return run


@pytest.mark.parametrize("function", [product, lambda: torch.geqrf(A), lambda: torch.randn(3)])
def test_a_thread_started_inside_is_refused_what_needs_the_block(
    function: Callable[[], Any],
) -> None:
    got: list[Any] = []
    thread = threading.Thread(target=outcome(function), args=(got,))
    with potl.deterministic():
        thread.start()
        thread.join()
    assert isinstance(got[0], potl.NotReproducible)


def test_a_bare_thread_started_inside_is_refused_too() -> None:
    got: list[Any] = []
    done = threading.Event()

    def run() -> None:
        outcome(product)(got)
        done.set()

    with potl.deterministic():
        _thread.start_new_thread(run, ())
        assert done.wait(60)
    assert isinstance(got[0], potl.NotReproducible)


def test_a_thread_may_enter_a_block_of_its_own() -> None:
    got: list[Any] = []

    def own() -> Any:
        with potl.deterministic():
            return A @ A.T

    thread = threading.Thread(target=outcome(own), args=(got,))
    with potl.deterministic():
        want = product()
        thread.start()
        thread.join()
    assert torch.equal(got[0], want)


def test_a_pools_worker_refuses_the_blocks_work_and_no_other() -> None:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        with potl.deterministic():
            task = pool.submit(product)
            with pytest.raises(potl.NotReproducible, match="another thread") as raised:
                task.result()
        assert "enter a block in this thread" in raised.value.remedy
        assert torch.equal(pool.submit(product).result(), product())


def test_threads_from_before_the_block_compute_as_torch_does() -> None:
    got: list[Any] = []
    go = threading.Event()

    def run() -> None:
        go.wait(30)
        outcome(lambda: torch.geqrf(A).tau)(got)

    thread = threading.Thread(target=run)
    thread.start()
    with potl.deterministic():
        go.set()
        thread.join()
    assert got[0].shape == (3,)


# ---------------------------------------------------------------------- loaders


class Decomposed(Dataset[Any]):
    """Uses what no block allows, and says whether it was in one."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        assert torch.geqrf(A * index).tau.shape == (3,)
        return torch.tensor(is_on())


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        yield from (torch.tensor(is_on()) for _ in range(6))


def collate(items: Any) -> Any:
    assert torch.geqrf(A).tau.shape == (3,)
    return torch.stack([*items, torch.tensor(is_on())])


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("data", [Decomposed, Stream])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_loaders_run_outside_of_the_block(workers: int, data: Any) -> None:
    loader = DataLoader(
        data(), batch_size=3, num_workers=workers, collate_fn=collate, timeout=60 * workers
    )
    with potl.deterministic():
        seen = 0
        for batch in loader:
            assert is_on()
            assert batch.tolist() == [False] * 4
            seen += 1
    assert seen == 2


def test_an_exception_in_a_loader_returns_into_the_block() -> None:
    class Broken(Decomposed):
        def __getitem__(self, index: int) -> Any:
            raise LookupError(index)

    with potl.deterministic():
        with pytest.raises(LookupError):
            next(iter(DataLoader(Broken())))
        assert is_on()


def test_shuffling_inside_gives_the_order_of_outside() -> None:
    def order() -> list[int]:
        torch.manual_seed(5)
        return [int(i) for i in DataLoader(range(20), shuffle=True)]  # type: ignore[arg-type]

    want = order()
    with potl.deterministic():
        assert order() == want


# ---------------------------------------------------------------------- compilers


@pytest.fixture(autouse=True)
def untold() -> None:
    """No test of this process has seen the warning."""
    _block_patches._tell_eager.cache_clear()


def test_a_compiled_callable_that_is_used_again_warns_once() -> None:
    compiled = torch.compile(lambda x: x + 1, backend="eager")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(3):
            with potl.deterministic():
                compiled(A)
    assert ["eager" in str(one.message) for one in seen] == [True]


def test_a_compiled_callable_runs_as_eager_code_with_a_warning() -> None:
    def decomposed(x: Any) -> Any:
        return torch.geqrf(x).tau

    compiled = torch.compile(decomposed, backend="eager")
    with (
        potl.deterministic(),
        pytest.warns(RuntimeWarning, match="eager"),
        pytest.raises(potl.NotReproducible, match="geqrf"),
    ):
        compiled(A)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compiled(A).shape == (3,)


@pytest.mark.parametrize("kind", ["function", "module"])
def test_fullgraph_runs_as_eager_code_with_a_warning_too(kind: str) -> None:
    def product(x: Any) -> Any:
        return x @ x.T

    used: list[Any] = []

    def backend(graph: Any, _example: Any) -> Any:
        used.append(graph)
        return graph.forward

    plain: Any = product if kind == "function" else torch.nn.Linear(7, 2)
    compiled = torch.compile(plain, backend=backend, fullgraph=True)
    with potl.deterministic():
        want = plain(A)
        with pytest.warns(RuntimeWarning, match="eager"):
            assert torch.equal(compiled(A), want)
    assert not used
    assert compiled(A).shape == want.shape
    assert used


def test_what_is_compiled_inside_runs_as_eager_code_too() -> None:
    used: list[Any] = []

    def backend(graph: Any, _example: Any) -> Any:
        used.append(graph)
        return graph.forward

    with potl.deterministic(), pytest.warns(RuntimeWarning, match="eager"):
        torch.compile(lambda x: x @ x.T, backend=backend)(A)
    assert not used


def test_compilers_in_other_threads_are_left_alone() -> None:
    got: list[Any] = []
    used: list[Any] = []
    go = threading.Event()

    def backend(graph: Any, _example: Any) -> Any:
        used.append(graph)
        return graph.forward

    compiled = torch.compile(lambda x: x + 1, backend=backend)

    def run() -> None:
        go.wait(30)
        outcome(lambda: compiled(A))(got)

    thread = threading.Thread(target=run)
    thread.start()
    with potl.deterministic():
        go.set()
        thread.join()
    assert torch.equal(got[0], A + 1)
    assert used


@pytest.mark.parametrize("method", ["capture_begin", "replay"])
def test_a_graph_of_cuda_is_refused_inside(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph: Any = torch.cuda.CUDAGraph
    called: list[object] = []
    monkeypatch.setattr(graph, method, called.append)
    with potl.deterministic(), pytest.raises(potl.NotReproducible, match="CUDA graph"):
        getattr(graph, method)("one")
    assert called == []
    getattr(graph, method)("another")
    assert called == ["another"]


# ---------------------------------------------------------------------- TorchScript


def curve(x: torch.Tensor) -> torch.Tensor:
    return x * 0.5 * (1.0 + torch.tanh(0.8 * x * (1 + 0.045 * x * x)))


class Curve(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return curve(x)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("kind", ["function", "module", "traced"])
def test_torchscript_is_refused_inside(kind: str) -> None:
    script: Any = torch.jit.trace(curve, A) if kind == "traced" else None
    script = script or torch.jit.script(curve if kind == "function" else Curve())
    with (
        potl.deterministic(),
        pytest.raises(potl.NotReproducible, match=r"TorchScript .* without torch.jit.script"),
    ):
        script(A)
    assert torch.allclose(script(A), curve(A))
    # Where potl measures noise, it may run.
    with _arithmetic.block("ord32", lenient=True):
        assert torch.allclose(script(A), curve(A))


# ---------------------------------------------------------------------- contractions


class FromTheRight:
    """Stands for torch's settings with the package opt_einsum installed."""

    enabled = True
    strategy = "auto"

    def is_available(self) -> bool:
        return True

    def get_opt_einsum(self) -> Any:
        return self

    def contract_path(self, *_: Any, **__: Any) -> Any:
        return [(1, 2), (0, 1)], None


def test_contractions_go_from_left_to_right(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(3)
    a, b, c = (torch.randn(n, m, generator=generator) for n, m in ((30, 40), (40, 50), (50, 2)))

    def chain() -> Any:
        return torch.einsum("ij,jk,kl->il", a, b, c)

    with potl.deterministic():
        want = chain()
        assert torch.equal(want, (a @ b) @ c)
    settings = FromTheRight()
    monkeypatch.setattr(torch.backends, "opt_einsum", settings)
    outside = chain()
    with potl.deterministic():
        assert torch.equal(chain(), want)
        assert not torch.backends.opt_einsum.enabled
        torch.backends.opt_einsum.strategy = "greedy"
    assert settings.enabled
    assert settings.strategy == "greedy"
    assert torch.equal(chain(), outside)


# ---------------------------------------------------------------------- numbers


def test_the_cosine_of_schedules_is_potls_inside() -> None:
    exact = _library.module().exact_cos
    angles = [0.1 * k for k in range(200)]
    assert [lr_scheduler.math.cos(x) for x in angles] == [math.cos(x) for x in angles]
    with potl.deterministic():
        assert [lr_scheduler.math.cos(x) for x in angles] == [exact(x) for x in angles]
        assert lr_scheduler.math.pi == math.pi
    assert all(abs(exact(x) - math.cos(x)) <= math.ulp(math.cos(x)) for x in angles)


def test_an_optimizer_with_powers_out_of_reach_is_refused() -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SparseAdam([weight])
    with potl.deterministic():
        (weight * 2).sum().backward()
        with pytest.raises(potl.NotReproducible, match="SparseAdam"):
            optimizer.step()
    assert weight.tolist() == [1, 1, 1]


@pytest.mark.skipif(not hasattr(torch.nn, "LinearCrossEntropyOptions"), reason="an older torch")
def test_a_loss_whose_parts_torch_chooses_by_device_and_version_is_refused() -> None:
    """torch 2.14 adds up other parts than 2.13."""
    x, w = torch.randn(6, 4), torch.randn(10, 4)
    target = torch.arange(6)
    stock = torch.nn.functional.linear_cross_entropy
    options = torch.nn.LinearCrossEntropyOptions()
    with potl.deterministic():
        with pytest.raises(potl.NotReproducible, match="without options"):
            stock(x, w, target, options=options)
        with pytest.raises(potl.NotReproducible, match="without options"):
            torch.nn.LinearCrossEntropyLoss(4, 10, options=options)(x, target)
        expected = torch.nn.functional.cross_entropy(torch.nn.functional.linear(x, w), target)
        assert torch.equal(stock(x, w, target), expected)
    stock(x, w, target, options=options)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_of_three_dimensions_is_composed_under_every_torch(causal: bool) -> None:
    """torch 2.14 fuses it, which has other bits."""
    x = torch.randn(3, 9, 8, generator=torch.Generator().manual_seed(1), requires_grad=True)
    composed: Any = torch.ops.aten._scaled_dot_product_attention_math
    with potl.deterministic():
        found = torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=causal)
        expected = composed(x, x, x, is_causal=causal)[0]
        assert torch.equal(found, expected)
        gradients = [torch.autograd.grad(one.square().sum(), x)[0] for one in (found, expected)]
    assert torch.equal(*gradients)
    stock = torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=causal)
    assert torch.allclose(found, stock, atol=1e-5)
