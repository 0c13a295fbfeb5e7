# SPDX-License-Identifier: Apache-2.0
"""Neural-network operators in a mode: near torch in float64, and of one set of bits."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

import programs
import pytest
import torch
from places import HELPERS
from torch import Tensor

pytest.importorskip("potl._torch")

from neural_case import Case
from neural_cases import cases, run

import potl


def _distance(computed: list[Tensor], exact: list[Tensor]) -> float:
    """The largest difference, in units of the largest finite value of its tensor (at least 1)."""
    assert [c.shape for c in computed] == [e.shape for e in exact]
    worst = 0.0
    for one, other in zip(computed, exact, strict=True):
        one, other = one.double(), other.double()
        finite = other.isfinite()
        assert torch.equal(one[~finite].nan_to_num(), other[~finite].nan_to_num())
        if finite.any():
            unit = max(1.0, float(other[finite].abs().max()))
            worst = max(worst, float((one[finite] - other[finite]).abs().max()) / unit)
    return worst


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_an_operator_and_its_gradients_are_those_of_torch_in_float64(case: Case) -> None:
    exact = run(case, torch.float64)
    with potl.deterministic("ord32"):
        single, double = run(case, torch.float32), run(case, torch.float64)
    assert {t.dtype for t in single if t.is_floating_point()} == {torch.float32}
    assert _distance(single, exact) <= case.tolerance
    assert _distance(double, exact) <= case.tolerance * 1e-7


@pytest.mark.parametrize(
    "case", [case for case in cases() if case.narrow], ids=lambda case: case.name
)
def test_operands_of_bfloat16_are_computed_wider_and_rounded(case: Case) -> None:
    exact = run(case, torch.float64)
    with potl.deterministic("ord32"):
        narrow = run(case, torch.bfloat16)
    assert {t.dtype for t in narrow if t.is_floating_point()} <= {torch.bfloat16, torch.float32}
    assert len(narrow) == len(exact)


def _digest(mode: str, threads: int, isa: str) -> str:
    environment = {**os.environ, "POTL_ISA": isa}
    command = [programs.python(), str(HELPERS / "neural_cases.py"), str(threads), mode]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_bits_do_not_depend_on_threads_or_instruction_sets() -> None:
    digests = {
        (threads, isa): _digest("ord32", threads, isa)
        for threads, isa in ((1, "portable"), (2, "avx2"), (1, "avx512"), (2, "avx512"))
    }
    assert len(set(digests.values())) == 1, digests


def test_a_volume_of_equal_planes_is_sampled_cubically_as_a_plane() -> None:
    """By the operator: before torch 2.15, grid_sample refuses volumes itself."""
    drawn = torch.Generator().manual_seed(3)
    plane = torch.randn(2, 3, 5, 7, generator=drawn, dtype=torch.float64, requires_grad=True)
    places = torch.rand(2, 1, 4, 6, 3, generator=drawn, dtype=torch.float64) * 2.6 - 1.3
    places.requires_grad_()
    cubic, border = 2, 1
    with potl.deterministic("ord32"):
        volume = plane.unsqueeze(2).expand(-1, -1, 6, -1, -1)
        found = torch.ops.aten.grid_sampler_3d(volume, places, cubic, border, False)
        expected = torch.nn.functional.grid_sample(
            plane, places[:, 0, ..., :2], "bicubic", "border", align_corners=False
        )
        torch.testing.assert_close(found[:, :, 0], expected)
        gradients = [
            torch.autograd.grad(one.square().sum(), (plane, places)) for one in (found, expected)
        ]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("shape", [(1, 3, 2, 2), (2, 2, 2, 2)])
def test_a_gradient_of_maxima_in_fewer_planes_than_the_input_has_is_an_error(
    shape: tuple[int, ...],
) -> None:
    image, slope, where = torch.ones(2, 3, 4, 4), torch.ones(shape), torch.zeros(shape).long()
    aten, options = torch.ops.aten, ([2, 2], [2, 2], [0, 0], [1, 1], False)
    with potl.deterministic("ord32"):
        with pytest.raises(RuntimeError, match="shape of the output"):
            aten.max_pool2d_with_indices_backward(slope, image, *options, where)
        with pytest.raises(RuntimeError, match="shape of the output"):
            aten.adaptive_max_pool2d_backward(slope, image, where)


@pytest.mark.parametrize("threads", [1, 2])
def test_maxima_are_those_of_torch_and_where_it_finds_them(
    threads: int, set_threads: Callable[[int], None]
) -> None:
    """Also among equal values and NaNs: a gradient goes where the maximum was."""
    drawn = torch.Generator().manual_seed(3)
    bits = torch.randint(-(2**31), 2**31, (3, 40, 9, 14), generator=drawn).int()
    few = torch.tensor([0.0, -0.0, 1.0, -1.0, torch.inf, -torch.inf])
    same = few[torch.randint(6, bits.shape, generator=drawn)]
    image = torch.where(bits % 3 == 0, bits.view(torch.float32), same)
    set_threads(threads)
    for options in (
        (2,),
        (3, 2, 1),
        (3, 2, 1, 1, True),
        ((2, 3), 1, (0, 1), (3, 2)),
        (4, 3, 2),
    ):
        want = torch.nn.functional.max_pool2d(image, *options, return_indices=True)
        with potl.deterministic("ord32"):
            found = torch.nn.functional.max_pool2d(image, *options, return_indices=True)
        assert torch.equal(found[0].view(torch.int32), want[0].view(torch.int32)), options
        assert torch.equal(found[1], want[1]), options


@pytest.mark.parametrize("options", [(0,), (3, 1, 2), (20,), (2, 0), (2, 1, -1), (2, 1, 0, 0)])
def test_what_torch_refuses_of_maxima_is_refused_in_its_words(options: tuple[int, ...]) -> None:
    image = torch.ones(2, 8, 9, 9)
    with pytest.raises(RuntimeError) as theirs:
        torch.nn.functional.max_pool2d(image, *options)
    with pytest.raises(RuntimeError) as ours, potl.deterministic("ord32"):
        torch.nn.functional.max_pool2d(image, *options)
    assert str(ours.value).partition("\n")[0] == str(theirs.value).partition("\n")[0]
