# SPDX-License-Identifier: Apache-2.0
"""Transposed convolutions of every geometry that torch takes, and those that it does not take."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

pytest.importorskip("potl._torch", reason="potl was built without torch")

import potl

KERNELS, STRIDES, PADDINGS, DILATIONS, GROUPS = (1, 3), (1, 2, 3), (0, 1), (1, 2, 4), (1, 2)


def drawn(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def geometries() -> list[tuple[int, ...]]:
    """kernel, stride, padding, dilation, output padding and groups."""
    return [
        (kernel, stride, padding, dilation, output, groups)
        for kernel, stride, padding, dilation, groups in itertools.product(
            KERNELS, STRIDES, PADDINGS, DILATIONS, GROUPS
        )
        for output in range(max(stride, dilation))
    ]


def with_gradients(x: Tensor, w: Tensor, b: Tensor, geometry: tuple[int, ...]) -> list[Tensor]:
    _, stride, padding, dilation, output, groups = geometry
    x, w, b = (one.clone().requires_grad_() for one in (x, w, b))
    y = F.conv_transpose2d(x, w, b, stride, padding, output, groups, dilation)
    dy = (torch.arange(y.numel()) % 7 - 3).reshape(y.shape).to(y.dtype)
    return [y.detach(), *torch.autograd.grad(y, (x, w, b), dy)]


@pytest.mark.parametrize(
    ("mode", "dtype", "tolerance"),
    [
        ("ord32", torch.float32, 1e-4),
        ("log64", torch.float32, 1e-4),
        ("ord32", torch.float64, 1e-12),
    ],
)
def test_values_and_gradients_are_those_of_torch(
    mode: str, dtype: torch.dtype, tolerance: float
) -> None:
    for geometry in geometries():
        kernel, groups = geometry[0], geometry[-1]
        x, w, b = drawn(2, 4, 4, 5), drawn(4, 3, kernel, kernel), drawn(3 * groups)
        try:
            exact = with_gradients(x, w, b, geometry)
        except RuntimeError:  # there is no result
            continue
        with potl.deterministic(mode):
            got = with_gradients(x.to(dtype), w.to(dtype), b.to(dtype), geometry)
        for one, other in zip(got, exact, strict=True):
            assert one.shape == other.shape, geometry
            torch.testing.assert_close(
                one.double(), other, rtol=tolerance, atol=10 * tolerance, msg=str(geometry)
            )


def test_output_padding_beyond_the_stride_in_one_and_three_dimensions() -> None:
    x, w = drawn(2, 3, 5), drawn(3, 4, 3)
    y, v = drawn(1, 2, 3, 4, 3), drawn(2, 2, 2, 2, 2)
    options = {"stride": (3, 2, 1), "output_padding": (2, 3, 1), "dilation": 4}
    want = (
        F.conv_transpose1d(x, w, None, 2, 0, 3, 1, 4),
        F.conv_transpose3d(y, v, **options),  # type: ignore[arg-type]
    )
    with potl.deterministic("ord32"):
        got = (
            F.conv_transpose1d(x.float(), w.float(), None, 2, 0, 3, 1, 4),
            F.conv_transpose3d(y.float(), v.float(), **options),  # type: ignore[arg-type]
        )
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-5)


X, W = drawn(2, 4, 5, 6), drawn(4, 4, 3, 3)
REFUSED: dict[str, Callable[[], Tensor]] = {
    "output_padding": lambda: F.conv_transpose2d(X, W, None, 2, 0, 2),
    "negative output_padding": lambda: F.conv_transpose2d(X, W, None, 2, 0, -1),
    "stride": lambda: F.conv2d(X, W, None, 0),
    "padding": lambda: F.conv2d(X, W, None, 1, -1),
    "bias": lambda: F.conv2d(X, W, torch.ones(4, 1, dtype=torch.float64)),
    "groups": lambda: F.conv2d(X, drawn(3, 2, 3, 3), None, groups=2),
    "gradient": lambda: torch.ops.aten.convolution_backward(
        drawn(2, 4, 9, 9), X, W, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1,
        [True, True, False],
    )[0],
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("inside", [False, True])
def test_geometries_that_do_not_fit_are_refused(name: str, inside: bool) -> None:
    if not inside:
        with pytest.raises(RuntimeError):  # by torch
            REFUSED[name]()
        return
    with potl.deterministic("ord32"), pytest.raises(RuntimeError, match="convolution"):
        REFUSED[name]()
