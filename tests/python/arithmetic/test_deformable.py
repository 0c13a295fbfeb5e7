# SPDX-License-Identifier: Apache-2.0
"""torchvision's deformable convolution: places that the offsets move, then a convolution."""

from __future__ import annotations

import dataclasses
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


@pytest.fixture(autouse=True)
def declared() -> Iterator[None]:
    RANDOM.manual_seed(5)
    with torchvision_operators.declared():
        yield


@dataclasses.dataclass
class Case:
    """Two images of 4 channels, 7 by 9; 8 outputs; a kernel of 3 by 2."""

    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    offset_groups: int = 1
    is_masked: bool = True

    def size(self, axis: int) -> int:
        reach = self.dilation[axis] * (3, 2)[axis] - self.dilation[axis] + 1
        return ((7, 9)[axis] + 2 * self.padding[axis] - reach) // self.stride[axis] + 1

    def operands(self) -> list[Tensor]:
        places = self.size(0), self.size(1)
        mask = (2, 6 * self.offset_groups, *places) if self.is_masked else (2, 1)
        sizes = [(2, 4, 7, 9), (8, 4 // self.groups, 3, 2), (2, 12 * self.offset_groups, *places)]
        return [torch.randn(size, generator=RANDOM) for size in [*sizes, mask, (8,)]]

    def options(self) -> tuple[int | bool, ...]:
        numbers = *self.stride, *self.padding, *self.dilation, self.groups, self.offset_groups
        return *numbers, self.is_masked

    def expected(self, *operands: Tensor) -> Tensor:
        """By torch's own sampling, whose positions are fractions of the image."""
        image, weight, offset, mask, bias = operands
        high, wide = self.size(0), self.size(1)
        groups, many = self.offset_groups, 2 * self.offset_groups
        moved = offset.reshape(2, groups, 3, 2, 2, high, wide)
        steps = [
            torch.arange(n) * self.stride[i] - self.padding[i] for i, n in enumerate((high, wide))
        ]
        inside = [torch.arange(n) * self.dilation[i] for i, n in enumerate((3, 2))]
        y = moved[:, :, :, :, 0] + inside[0].reshape(-1, 1, 1, 1) + steps[0].reshape(-1, 1)
        x = moved[:, :, :, :, 1] + inside[1].reshape(-1, 1, 1) + steps[1]
        grid = torch.stack([(2 * x + 1) / 9 - 1, (2 * y + 1) / 7 - 1], -1)
        found = torch.nn.functional.grid_sample(
            image.reshape(many, -1, 7, 9), grid.reshape(many, -1, 1, 2), align_corners=False
        )
        found = found.reshape(2, groups, 4 // groups, 6, high * wide)
        if self.is_masked:
            found = found * mask.reshape(2, groups, 1, 6, high * wide)
        rows = found.reshape(2, self.groups, -1, high * wide)
        out = weight.reshape(self.groups, 8 // self.groups, -1) @ rows
        return out.reshape(2, 8, high, wide) + bias.reshape(-1, 1, 1)


CASES = [
    Case(),
    Case((2, 1), (0, 2), (1, 2), groups=2, offset_groups=2),
    Case((1, 2), (1, 0), (2, 1), offset_groups=4, is_masked=False),
    Case(padding=(0, 0), groups=4, offset_groups=2),
]


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_it_is_a_convolution_over_moved_places(case: Case) -> None:
    operands = case.operands()
    precise = [operand.double().requires_grad_() for operand in operands]
    expected = case.expected(*precise)
    slope = torch.randn(expected.shape, generator=RANDOM)
    found = call("deform_conv2d", *operands, *case.options())
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)
    gradients = call("_deform_conv2d_backward", slope, *operands, *case.options())
    exact = torch.autograd.grad(expected, precise, slope.double(), allow_unused=True)
    for name, own, other in zip(
        ("image", "weight", "offset", "mask", "bias"), gradients, exact, strict=True
    ):
        other = torch.zeros(own.shape).double() if other is None else other
        torch.testing.assert_close(
            own.double(), other, rtol=1e-4, atol=1e-4, msg=lambda text, name=name: f"{name}: {text}"
        )


def test_without_offsets_it_has_the_bits_of_products_and_one_bias() -> None:
    case = Case(padding=(0, 0), is_masked=False)
    image, weight, offset, mask, bias = case.operands()
    found = call("deform_conv2d", image, weight, offset * 0, mask, bias, *case.options())
    with potl.deterministic():
        rows = torch.nn.functional.unfold(image, (3, 2))
        expected = weight.reshape(8, -1) @ rows + bias.reshape(-1, 1)
    assert torch.equal(found.flatten(2), expected)


def test_the_bits_depend_on_neither_threads_nor_strides(
    set_threads: Callable[[int], None],
) -> None:
    case, found = CASES[1], []
    operands = case.operands()
    turned = [operand.transpose(0, 1).contiguous().transpose(0, 1) for operand in operands[:-1]]
    slope = torch.randn(2, 8, case.size(0), case.size(1), generator=RANDOM)
    for count, given in ((1, operands), (2, [*turned, operands[-1]])):
        set_threads(count)
        there = call("deform_conv2d", *given, *case.options())
        found.append([there, *call("_deform_conv2d_backward", slope, *given, *case.options())])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_narrow_operands_are_widened_and_the_result_is_rounded_once() -> None:
    operands = [operand.bfloat16() for operand in Case().operands()]
    found = call("deform_conv2d", *operands, *Case().options())
    wide = call("deform_conv2d", *(o.float() for o in operands), *Case().options())
    assert torch.equal(found, wide.bfloat16())


def test_places_outside_of_the_image_count_for_nothing() -> None:
    image, weight, offset, mask, bias = Case().operands()
    far = torch.full_like(offset, 1e30)
    found = call("deform_conv2d", image, weight, far, mask, bias, *Case().options())
    assert torch.equal(found, bias.reshape(-1, 1, 1).expand(found.shape))


def test_a_place_that_is_no_number_gives_none() -> None:
    image, weight, offset, mask, bias = Case().operands()
    offset[0] = math.nan
    found = call("deform_conv2d", image, weight, offset, mask, bias, *Case().options())
    assert found[0].isnan().all() and not found[1].isnan().any()


@pytest.mark.parametrize(
    ("index", "value"), [(5, 0), (6, -1), (7, -1), (9, 0), (11, 0), (11, 3), (12, 0), (12, 3)]
)
def test_options_that_do_not_fit_are_an_error(index: int, value: int) -> None:
    arguments = [*Case().operands(), *Case().options()]
    arguments[index] = value
    with pytest.raises(RuntimeError, match=r"torchvision\.deform_conv2d"):
        call("deform_conv2d", *arguments)


@pytest.mark.parametrize(("index", "value"), [(5, 2**31), (8, 2**62), (10, 2**62)])
def test_options_with_which_sizes_would_overflow_are_an_error(index: int, value: int) -> None:
    arguments = [*Case().operands(), *Case().options()]
    arguments[index] = value
    with pytest.raises(RuntimeError, match=r"must be below 2\^31"):
        call("deform_conv2d", *arguments)


@pytest.mark.parametrize("index", range(5))
def test_operands_that_do_not_fit_are_an_error(index: int) -> None:
    operands, slope = Case().operands(), torch.zeros(2, 8, Case().size(0), Case().size(1))
    operands[index] = operands[index].flatten()[:1]
    for name, given in (("deform_conv2d", []), ("_deform_conv2d_backward", [slope])):
        with pytest.raises(RuntimeError, match=r"torchvision\.deform_conv2d"):
            call(name, *given, *operands, *Case().options())


def test_a_gradient_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="does not fit sizes"):
        call("_deform_conv2d_backward", torch.ones(1), *Case().operands(), *Case().options())
