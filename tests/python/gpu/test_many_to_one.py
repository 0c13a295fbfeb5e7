# SPDX-License-Identifier: Apache-2.0
"""Operators of many elements for one have the CPU's bits on a device: products, bags, windows."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from device_bits import DEVICE, both, hostile, leaf, same, simulated
from torch import Tensor

import potl
from potl import NotReproducible
from potl._arithmetic._library import module

F = torch.nn.functional


@pytest.fixture(autouse=True)
def _no_simulation_stays() -> Iterator[None]:
    module()
    yield
    simulated(False)


@pytest.mark.parametrize("zeros", [0, 1, 2])
@pytest.mark.parametrize("sizes", [(2, 9000), (9000, 2)])
def test_a_product_of_many_has_the_bits_of_the_cpu(sizes: tuple[int, int], zeros: int) -> None:
    """Several levels of chunks, and torch's compositions of the gradient, by the zeros."""
    start = 1 + 0.01 * torch.randn(sizes, generator=torch.Generator().manual_seed(0))
    for i in range(zeros):
        start[i, 1] = 0

    def compute(device: str) -> list[Tensor]:
        found = []
        for dim in (0, 1, None):
            x = leaf(start, device)
            y = x.prod() if dim is None else x.prod(dim)
            y.sum().backward()
            found += [y.detach(), x.grad]
        return found

    here, there = both(compute)
    assert there is not None and all(map(same, here, there))


BAGS: dict[str, dict[str, Any]] = {
    "sum": {"mode": "sum"},
    "mean": {"mode": "mean"},
    "padding": {"mode": "mean", "padding_idx": 2},
    "all_padding": {"mode": "sum", "padding_idx": 0},
    "last_offset": {"mode": "sum", "include_last_offset": True},
    "frequency": {"mode": "sum", "scale_grad_by_freq": True},
    "weights": {"mode": "sum", "per_sample_weights": True},
    "weights_padding": {"mode": "sum", "per_sample_weights": True, "padding_idx": 2},
}


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_values_in_one_place_have_the_sum_and_the_mean_of_the_cpu(
    reduce: str, include_self: bool
) -> None:
    generator = torch.Generator().manual_seed(8)
    start, values = (torch.randn(n, 5, generator=generator) for n in (4, 64))
    places = torch.randint(0, 4, (64, 5), generator=generator)

    def compute(device: str) -> list[Tensor]:
        x, y = leaf(start, device), leaf(values, device)
        index = places.to(device)
        found = x.scatter_reduce(0, index, y, reduce, include_self=include_self)
        found.square().sum().backward()
        assert x.grad is not None and y.grad is not None
        narrow = (x.detach().bfloat16(), 0, index[:, 0], y.detach().bfloat16())
        rows = torch.index_reduce(*narrow, "mean", include_self=include_self)
        return [found.detach(), rows, x.grad, y.grad]

    here, there = both(compute)
    assert there is not None and all(map(same, here, there))


def test_products_and_extremes_in_one_place_are_refused() -> None:
    simulated(True)
    x, places = torch.ones(2, 2, device=DEVICE), torch.zeros(2, 2, dtype=torch.int64, device=DEVICE)
    with potl.deterministic():
        for reduce in ("prod", "amax", "amin"):
            with pytest.raises(NotReproducible, match="scatter_reduce on"):
                x.scatter_reduce(0, places, x, reduce)


def bags(indices: Tensor, offsets: Tensor, options: dict[str, Any], device: str) -> list[Tensor]:
    def drawn(seed: int, *sizes: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        return leaf(torch.randn(sizes, generator=generator), device)

    leaves = [drawn(0, 9, 5)]
    options = dict(options)
    if "per_sample_weights" in options:
        leaves.append(drawn(1, *indices.shape))
        options["per_sample_weights"] = leaves[1]
    index, first = indices.to(device), offsets.to(device)
    y = F.embedding_bag(index, leaves[0], first, **options)
    y.backward(drawn(2, *y.shape).detach())
    with torch.no_grad():
        alone = F.embedding_bag(index, leaves[0], first, **options)
    return [y.detach(), alone, *(one.grad for one in leaves if one.grad is not None)]


@pytest.mark.parametrize("name", BAGS)
@pytest.mark.parametrize("kind", [torch.int64, torch.int32])
@pytest.mark.parametrize("offsets", [[0], [0, 0, 3, 3, 7, 20, 20], [0, 2, 20]])
def test_bags_of_embeddings_have_the_bits_of_the_cpu(
    name: str, kind: torch.dtype, offsets: list[int]
) -> None:
    indices = torch.randint(0, 9, (20,), generator=torch.Generator().manual_seed(4)).to(kind)
    if name == "all_padding":
        indices = torch.zeros_like(indices)
    if name == "last_offset" and offsets[-1] != 20:
        offsets = [*offsets, 20]
    first = torch.tensor(offsets, dtype=kind)
    here, there = both(functools.partial(bags, indices, first, BAGS[name]))
    assert there is not None and len(here) == len(there) == (4 if "weights" in name else 3)
    assert all(map(same, here, there))
    empty = torch.empty(0, dtype=kind)
    here, there = both(functools.partial(bags, empty, torch.zeros_like(first), BAGS[name]))
    assert there is not None and all(map(same, here, there))


@pytest.mark.parametrize("offsets", [[1, 2], [0, 5, 2], [0, 21]])
def test_bags_that_do_not_fit_are_refused(offsets: list[int]) -> None:
    indices = torch.zeros(20, dtype=torch.int64)
    simulated(True)
    with potl.deterministic(), pytest.raises(RuntimeError, match="offsets must ascend"):
        bags(indices, torch.tensor(offsets), BAGS["sum"], DEVICE)


def test_the_maximum_of_a_bag_is_refused() -> None:
    simulated(True)
    with potl.deterministic(), pytest.raises(NotReproducible, match="embedding_bag of mode max"):
        bags(torch.zeros(3, dtype=torch.int64), torch.tensor([0]), {"mode": "max"}, DEVICE)


RESAMPLED: dict[str, Callable[[Tensor], Tensor]] = {
    "nearest": lambda x: F.interpolate(x, size=(13, 4)),
    "nearest_exact": lambda x: F.interpolate(x, scale_factor=(0.6, 2.5), mode="nearest-exact"),
    "nearest_of_lines": lambda x: F.interpolate(x[:, 0], scale_factor=3),
    "nearest_of_volumes": lambda x: F.interpolate(x.unsqueeze(2), size=(3, 5, 9)),
    "linear": lambda x: F.interpolate(x[:, 0], size=20, mode="linear"),
    "linear_corners": lambda x: F.interpolate(x[0], 5, mode="linear", align_corners=True),
    "bilinear": lambda x: F.interpolate(x, size=(3, 17), mode="bilinear"),
    "bilinear_corners": lambda x: F.interpolate(x, (20, 1), mode="bilinear", align_corners=True),
    "bilinear_scaled": lambda x: F.interpolate(x, scale_factor=(1.7, 0.3), mode="bilinear"),
    "bilinear_smooth": lambda x: F.interpolate(x, (4, 3), mode="bilinear", antialias=True),
    "bilinear_last": lambda x: F.interpolate(
        x.contiguous(memory_format=torch.channels_last), scale_factor=2, mode="bilinear"
    ),
    "bilinear_narrow": lambda x: F.interpolate(x.bfloat16(), size=(5, 12), mode="bilinear"),
    "bicubic": lambda x: F.interpolate(x, size=(4, 15), mode="bicubic"),
    "bicubic_corners": lambda x: F.interpolate(x, size=(20, 5), mode="bicubic", align_corners=True),
    "bicubic_smooth": lambda x: F.interpolate(x, size=(4, 15), mode="bicubic", antialias=True),
    "trilinear": lambda x: F.interpolate(x[None], size=(5, 4, 9), mode="trilinear"),
    "of_nothing": lambda x: F.interpolate(x[:0], size=(4, 15), mode="bicubic"),
    "pad_reflect": lambda x: F.pad(x, (3, 2, 1, 4), mode="reflect"),
    "pad_reflect_lines": lambda x: F.pad(x[:, 0], (6, 0), mode="reflect"),
    "pad_replicate": lambda x: F.pad(x, (3, -2, -1, 9), mode="replicate"),
    "pad_replicate_volumes": lambda x: F.pad(x[None], (1, 2, 3, 4, 5, 6), mode="replicate"),
    "windows": lambda x: F.unfold(x, (3, 2), dilation=2, padding=(2, 1), stride=(1, 2)),
    "folded": lambda x: F.fold(
        F.unfold(x, 3, padding=1, stride=2) * 1.1, (9, 7), 3, padding=1, stride=2
    ),
    "unfolded": lambda x: x.unfold(2, 4, 1).unfold(3, 3, 2),
    "unfolded_apart": lambda x: x.unfold(-1, 2, 3),
}


@pytest.mark.parametrize("values", ["numbers", "hostile"])
@pytest.mark.parametrize("name", RESAMPLED)
def test_resampling_has_the_bits_of_the_cpu(name: str, values: str) -> None:
    start = torch.randn(2, 3, 9, 7, generator=torch.Generator().manual_seed(2))
    if values == "hostile":
        start = hostile()[: start.numel()].view(start.shape)

    def compute(device: str) -> list[Tensor]:
        x = leaf(start, device)
        y = RESAMPLED[name](x)
        generator = torch.Generator().manual_seed(5)
        y.backward(torch.randn(y.shape, generator=generator).to(y))
        assert x.grad is not None
        return [y.detach(), x.grad]

    here, there = both(compute)
    assert there is not None and all(map(same, here, there))
    assert here[0].is_contiguous() == there[0].is_contiguous()


@pytest.mark.parametrize("name", ["bilinear", "trilinear", "pad_replicate"])
def test_compositions_that_torch_calls_deterministic_are_left_out(name: str) -> None:
    start = torch.randn(2, 3, 9, 7, generator=torch.Generator().manual_seed(2))

    def compute(device: str) -> list[Tensor]:
        x = leaf(start, device)
        y = RESAMPLED[name](x)
        y.sum().backward()
        assert x.grad is not None
        return [y.detach(), x.grad]

    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        here, there = both(compute)
        with potl.deterministic():
            assert not torch.are_deterministic_algorithms_enabled()
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(before)
    assert there is not None and all(map(same, here, there))


ASSIGNED: dict[str, Callable[[Tensor, Tensor, Tensor], object]] = {
    "index": lambda x, at, y: operator.setitem(x, at, y),
    "mask": lambda x, at, y: operator.setitem(x, x[:, 0] > 0, y[: int((x[:, 0] > 0).sum())]),
    "index_copy_": lambda x, at, y: x.index_copy_(0, at, y),
    "put_": lambda x, at, y: x.put_(at, y[:, 0]),
    "scatter_": lambda x, at, y: x.scatter_(0, at.unsqueeze(1).expand_as(y), y),
}


@pytest.mark.parametrize("is_flagged", [False, True])
@pytest.mark.parametrize("name", ASSIGNED)
def test_assignments_end_whatever_torch_makes_of_them(name: str, is_flagged: bool) -> None:
    """Where torch is to use deterministic algorithms, its kernels call one another."""
    generator = torch.Generator().manual_seed(3)
    start, values = (torch.randn(9, 7, generator=generator) for _ in range(2))
    places = torch.randperm(9, generator=generator)

    def compute(device: str) -> list[Tensor]:
        x = start.to(device, copy=True)
        ASSIGNED[name](x, places.to(device), values.to(device))
        return [x]

    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(is_flagged)
    try:
        here, there = both(compute)
    finally:
        torch.use_deterministic_algorithms(before)
    assert there is not None and all(map(same, here, there))
