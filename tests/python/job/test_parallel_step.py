# SPDX-License-Identifier: Apache-2.0
"""When a shared step is compared with that of one process, and what may be rounding."""

from __future__ import annotations

import math

import torch

from potl._job._parallel_step import SameStep, is_compared

NOTHING, LOSS, GRADIENTS = [], ["the loss"], ["the gradients"]


def computed(loss: float, *gradient: float) -> tuple[torch.Tensor, list[torch.Tensor | None]]:
    return torch.tensor(loss), [torch.tensor(gradient) if gradient else None]


def test_rounding_is_measured_by_the_largest_gradients_so_far() -> None:
    same = SameStep(1e-4)
    assert same.other(computed(2.0, 3.0, 4.0), computed(2.0, 3.0, 4.0)) == NOTHING
    assert same.other(computed(2.0, 3.0, 4.001), computed(2.0, 3.0, 4.0)) == GRADIENTS
    # At the end of a training all of it may be rounding.
    assert same.other(computed(1e-7, 1e-7, 0.0), computed(3e-7, 0.0, 1e-7)) == NOTHING
    assert same.other(computed(0.1, 0.0, 0.0), computed(0.0, 0.1, 0.0)) == LOSS + GRADIENTS


def test_where_a_converged_training_goes_on_micro_batches_tell_what_is_rounding() -> None:
    same = SameStep(1e-4)
    same.see([torch.tensor([3.0, 4.0]), None])
    same.see([torch.tensor([math.inf, 0.0]), None])
    assert same.other(computed(0.1, 1e-7, 0.0), computed(0.1, 0.0, 1e-7)) == NOTHING
    assert same.other(computed(0.1, 1e-3, 0.0), computed(0.1, 0.0, 0.0)) == GRADIENTS


def test_a_step_that_overflows_is_not_compared_and_loosens_nothing() -> None:
    same = SameStep(1e-4)
    assert same.other(computed(math.inf, math.inf), computed(math.inf, 1.0)) == NOTHING
    assert same.other(computed(2.0, 1.1), computed(2.0, 1.0)) == GRADIENTS


def test_in_exact_arithmetic_a_bit_is_a_difference_and_so_is_no_gradient() -> None:
    same = SameStep(0.0)
    assert same.other(computed(2.0, 1.0), computed(2.0, 1.0)) == NOTHING
    assert same.other(computed(2.0, 1.0000001), computed(2.0, 1.0)) == GRADIENTS
    assert same.other(computed(2.0), computed(2.0, 0.0)) == GRADIENTS
    assert same.other(computed(2.0000002, 1.0), computed(2.0, 1.0)) == LOSS


def test_complex_gradients_may_be_marked_as_conjugate() -> None:
    loss, gradient = torch.ones(()), torch.tensor([1 + 2j])
    same = SameStep(0.0)
    assert same.other((loss, [gradient.conj()]), (loss, [gradient])) == GRADIENTS
    assert same.other((loss, [gradient.conj()]), (loss, [gradient.conj()])) == NOTHING


def test_steps_are_compared_early_and_cost_few_percent_of_a_training() -> None:
    assert [step for step in range(1, 1000) if is_compared(step, 3)] == [1, 192, 384, 768]
    for processes in (2, 8, 64):
        compared = 0
        for step in range(2, 64 * processes * 20):
            compared += is_compared(step, processes)
            assert compared * processes <= 0.016 * step
