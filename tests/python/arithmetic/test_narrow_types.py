# SPDX-License-Identifier: Apache-2.0
"""bfloat16 and float16 are widened in memory that a thread keeps: what was computed before stays,
and sizes, layouts and threads do not matter.
"""

import threading

import pytest
import torch
import torch.nn.functional as F

import potl

NARROW = [torch.bfloat16, torch.float16]


def operand(rows: int, columns: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("dtype", [*NARROW, torch.float32])
def test_results_stay_when_others_are_computed(dtype: torch.dtype) -> None:
    a, b = operand(60, 70, dtype, 1), operand(70, 50, dtype, 2)
    gapped = operand(60, 140, dtype, 3)[:, ::2]
    with potl.deterministic("ord32"):
        results = [a @ b, F.gelu(a), F.gelu(gapped), torch.addcmul(gapped, gapped, a)]
        before = [one.clone() for one in results]
        for size in (3, 70, 200):
            x = operand(size, size, dtype, size)
            F.gelu((x @ x)[:, ::2])
            F.gelu(x @ x)
    assert all(map(torch.equal, results, before))


@pytest.mark.parametrize("dtype", NARROW)
def test_operands_of_any_layout_give_the_same_bits(dtype: torch.dtype) -> None:
    a, b = operand(60, 70, dtype, 1), operand(70, 50, dtype, 2)
    gapped = torch.zeros(60, 140, dtype=dtype)[:, ::2].copy_(a)
    with potl.deterministic("ord32"):
        product, scaled = a @ b, torch.sigmoid(a)
        assert torch.equal(gapped @ b, product)
        assert torch.equal(a @ b.t().contiguous().t(), product)
        assert torch.equal(torch.sigmoid(gapped), scaled)
        assert torch.equal(torch.sigmoid(a.t().contiguous().t()), scaled)


@pytest.mark.parametrize("dtype", [*NARROW, torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(5, 6, 7, 8), (64, 3, 16, 16), (3, 7, 9)])
def test_a_sum_around_channels_is_that_of_each_channel(
    dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    dims = [0, *range(2, len(shape))]
    with potl.deterministic("ord32"):
        apart = x.transpose(0, 1).reshape(shape[1], -1).sum(1)
        assert torch.equal(x.sum(dims), apart)
        assert torch.equal(x.sum(dims, keepdim=True).flatten(), apart)


@pytest.mark.parametrize("dtype", NARROW)
def test_a_function_of_several_operands_widens_each_to_its_own_place(dtype: torch.dtype) -> None:
    a, b, c = (operand(40, 30, dtype, seed) for seed in (1, 2, 3))
    wide = [x.float() for x in (a, b, c)]
    with potl.deterministic("ord32"):
        assert torch.equal(torch.addcmul(a, b, c), torch.addcmul(*wide).to(dtype))
        assert torch.equal(torch.lerp(a, b, c), torch.lerp(*wide).to(dtype))


def test_slices_are_written_in_place() -> None:
    whole, second, third = (operand(40, 60, torch.float32, seed) for seed in (1, 2, 3))
    copy = whole.clone()
    a, b, c = (x[:, ::2].contiguous() for x in (whole, second, third))
    with potl.deterministic("ord32"):
        whole[:, ::2].addcmul_(second[:, ::2], third[:, ::2])
        assert torch.equal(whole[:, ::2], torch.addcmul(a, b, c))
    assert torch.equal(whole[:, 1::2], copy[:, 1::2])


def test_threads_do_not_share_the_memory() -> None:
    a, b = operand(200, 300, torch.bfloat16, 1), operand(300, 100, torch.bfloat16, 2)
    with potl.deterministic("ord32"):
        expected = a @ b
    wrong: list[int] = []

    def work(seed: int) -> None:
        x = operand(300, 200, torch.bfloat16, seed)
        with potl.deterministic("ord32"):
            for _ in range(20):
                x @ a
                if not torch.equal(a @ b, expected):
                    wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
