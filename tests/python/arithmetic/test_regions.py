# SPDX-License-Identifier: Apache-2.0
"""Boxes and regions of torchvision."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

pytest.importorskip("potl._torch")

import torchvision_operators
from torchvision_operators import call

import potl

RANDOM = torch.Generator().manual_seed(5)
IMAGE = torch.randn(2, 3, 7, 9, generator=RANDOM)


@pytest.fixture(autouse=True)
def declared() -> Iterator[None]:
    RANDOM.manual_seed(5)
    with torchvision_operators.declared():
        yield


def boxes(count: int) -> Tensor:
    first = torch.rand(count, 2, generator=RANDOM) * 8 - 1
    return torch.cat([first, first + torch.rand(count, 2, generator=RANDOM) * 6], 1)


def regions(count: int) -> Tensor:
    return torch.cat([torch.arange(count)[:, None] % 2, boxes(count)], 1)


def overlap(a: list[float], b: list[float]) -> float:
    wide = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    high = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    areas = [(x[2] - x[0]) * (x[3] - x[1]) for x in (a, b)]
    return wide * high / (sum(areas) - wide * high)


@pytest.mark.parametrize("threshold", [0.1, 0.5, 0.9])
def test_boxes_that_overlap_a_better_one_are_dropped(threshold: float) -> None:
    all_boxes, scores = boxes(40), torch.rand(40, generator=RANDOM)
    kept: list[int] = []
    rows = all_boxes.double().tolist()
    for i in scores.argsort(descending=True).tolist():
        if all(overlap(rows[i], rows[j]) <= threshold for j in kept):
            kept.append(i)
    assert call("nms", all_boxes, scores, threshold).tolist() == kept
    assert call("nms", all_boxes[:0], scores[:0], threshold).tolist() == []


def value(plane: list[list[float]], y: float, x: float) -> float:
    """Between the elements of a plane; 0 more than one place outside of it."""
    height, width = len(plane), len(plane[0])
    if not (-1 <= y <= height and -1 <= x <= width):
        return 0.0
    y, x = (min(max(v, 0.0), n - 1.0) for v, n in ((y, height), (x, width)))
    top, left = int(y), int(x)
    return sum(
        plane[min(top + i, height - 1)][min(left + j, width - 1)]
        * (y - top if i else 1 - y + top)
        * (x - left if j else 1 - x + left)
        for i, j in itertools.product((0, 1), (0, 1))
    )


def aligned(image: Tensor, rois: Tensor, scale: float, samples: int, half: bool) -> list[float]:
    """Bins of 2 by 3, in float64."""
    out = []
    for number, *box in rois.tolist():
        left, top, right, bottom = (v * scale - 0.5 * half for v in box)
        sizes = [bottom - top, right - left]
        sizes = sizes if half else [max(size, 1.0) for size in sizes]
        high, wide = sizes[0] / 2, sizes[1] / 3
        rows, columns = (samples if samples > 0 else math.ceil(size) for size in (high, wide))
        for plane, i, j in itertools.product(image[int(number)].tolist(), range(2), range(3)):
            found = [
                value(
                    plane,
                    top + i * high + (k + 0.5) * high / rows,
                    left + j * wide + (m + 0.5) * wide / columns,
                )
                for k, m in itertools.product(range(rows), range(columns))
            ]
            out.append(sum(found) / max(1, len(found)))
    return out


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("samples", [2, -1])
@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_regions_and_their_gradients_are_means_of_samples(
    scale: float, samples: int, half: bool
) -> None:
    rois = regions(5)
    found = call("roi_align", IMAGE, rois, scale, 2, 3, samples, half)
    expected = aligned(IMAGE.double(), rois.double(), scale, samples, half)
    assert found.shape == (5, 3, 2, 3)
    torch.testing.assert_close(found.flatten(), torch.tensor(expected))
    slope = torch.randn(found.shape, generator=RANDOM)
    size = IMAGE.shape
    back = call("_roi_align_backward", slope, rois, scale, 2, 3, *size, samples, half)
    # The map is linear: the gradient is its transpose.
    other = torch.randn(size, generator=RANDOM)
    there = call("roi_align", other, rois, scale, 2, 3, samples, half)
    torch.testing.assert_close((there * slope).sum(), (other * back).sum())


def test_the_bits_do_not_depend_on_threads(set_threads: Callable[[int], None]) -> None:
    rois, size = regions(20), IMAGE.shape
    slope = torch.randn(20, 3, 2, 3, generator=RANDOM)
    found = []
    for count in (1, 2):
        set_threads(count)
        there = call("roi_align", IMAGE, rois, 1.0, 2, 3, -1, True)
        back = call("_roi_align_backward", slope, rois, 1.0, 2, 3, *size, -1, True)
        found.append((there, back))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize(
    "roi", [(2.0, 0, 0, 1, 1), (-1.0, 0, 0, 1, 1), (math.nan, 0, 0, 1, 1), (0, 0, 0, math.inf, 1)]
)
def test_regions_that_no_image_has_are_an_error(roi: tuple[float, ...]) -> None:
    with pytest.raises(RuntimeError, match=r"torchvision\.roi_align"):
        call("roi_align", IMAGE, torch.tensor([roi]), 1.0, 2, 3, -1, False)


@pytest.mark.parametrize("half", [False, True])
def test_a_region_of_more_samples_than_memory_holds_is_an_error(half: bool) -> None:
    rois = torch.tensor([[0.0, 0, 0, 12_000, 8_000]])
    with pytest.raises(RuntimeError, match="8000 by 12000 samples of a region"):
        call("roi_align", IMAGE, rois, 1.0, 2, 3, -1, half)


def test_a_region_that_ends_before_it_begins_is_empty() -> None:
    for end in (-5.0, -1e30, -math.inf):
        rois = torch.tensor([[0, 0, 0, end, end]])
        assert not call("roi_align", IMAGE, rois, 1.0, 2, 3, -1, True).any()


def test_a_place_that_is_no_number_is_outside() -> None:
    rois = torch.tensor([[0, math.nan, 0, 1, 1]])
    assert not call("roi_align", IMAGE, rois, 1.0, 2, 3, 2, True).any()


def test_another_pooling_of_regions_names_the_one_that_is_exact() -> None:
    with pytest.raises(potl.NotReproducible) as raised:
        call("roi_pool", IMAGE, regions(2), 1.0, 2, 3)
    assert "roi_align" in raised.value.remedy
