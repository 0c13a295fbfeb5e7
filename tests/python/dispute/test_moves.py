# SPDX-License-Identifier: Apache-2.0
"""Where an operator that moves elements took one of them from, to the last element."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from potl._dispute import _moves, _recompute, _regions
from potl._dispute._call import call
from potl._dispute._encoding import Reference, TensorOutline
from potl._dispute._operators import Operator

pytest.importorskip("potl._torch", reason="potl was built without torch")

HERE = Reference("batch/0")
SHAPE = (2, 3, 5)
Case = tuple[str, dict[str, Any], tuple[tuple[int, ...], ...]]
LAST = (1 << 63) - 1
CASES: list[Case] = [
    ("cat", {"tensors": [HERE] * 3, "dim": -2}, (SHAPE, (2, 1, 5), (2, 4, 5))),
    ("cat", {"tensors": [HERE] * 2, "dim": 1}, ((0,), SHAPE)),
    ("stack", {"tensors": [HERE] * 3, "dim": -1}, ((2, 3),) * 3),
    ("stack", {"tensors": [HERE] * 3, "dim": 1}, ((2, 3),) * 3),
    ("flip", {"self": HERE, "dims": [0, -1]}, (SHAPE,)),
    ("roll", {"self": HERE, "shifts": [2, -1], "dims": [1, -1]}, (SHAPE,)),
    ("roll", {"self": HERE, "shifts": [1, 1], "dims": [1, 1]}, (SHAPE,)),
    ("roll", {"self": HERE, "shifts": [7], "dims": []}, (SHAPE,)),
    ("repeat", {"self": HERE, "repeats": [2, 1, 3, 2]}, (SHAPE,)),
    ("constant_pad_nd", {"self": HERE, "pad": [1, 2, -1, 1], "value": 3.5}, (SHAPE,)),
]
GRADIENTS: list[Case] = [
    ("slice_backward", {"dim": 1, "start": 1, "end": LAST, "step": 2}, (SHAPE,)),
    ("slice_backward", {"dim": -2, "start": -4, "end": -1, "step": 1}, (SHAPE,)),
    ("select_backward", {"dim": -2, "index": -3}, ((2, 5),)),
    ("select_backward", {"dim": 0, "index": 1}, ((7, 5),)),
]
CASES += [
    (name, {"grad_output": HERE, "input_sizes": [2, 7, 5], **rest}, forms)
    for name, rest, forms in GRADIENTS
]


def operator_of(name: str, arguments: dict[str, Any], forms: Any, result: Any) -> Operator:
    outlines = tuple(TensorOutline("float32", one, None) for one in forms)
    made = TensorOutline("float32", tuple(result), None)
    return Operator(f"aten.{name}.default", arguments, (made,), inputs=outlines)


@pytest.mark.parametrize(("name", "arguments", "forms"), CASES)
def test_every_element_is_found_where_it_was(
    name: str, arguments: dict[str, Any], forms: tuple[tuple[int, ...], ...]
) -> None:
    sizes = [math.prod(one) for one in forms]
    numbers = torch.arange(1, sum(sizes) + 1).split(sizes)
    operands = [one.reshape(form) for one, form in zip(numbers, forms, strict=True)]
    filled = {"value": 0} if "value" in arguments else {}
    operator = operator_of(name, arguments, forms, ())
    (moved,) = call(operator, operands, filled)
    seen = []
    for element in range(moved.numel()):
        found = _moves.source(operator, _moves.unraveled(element, tuple(moved.shape)))
        seen.append(0 if found is None else int(numbers[found[0]][found[1]]))
    assert seen == moved.reshape(-1).tolist()


@pytest.mark.parametrize(("name", "arguments", "forms"), CASES)
def test_what_was_filled_in_is_recomputed_without_an_operand(
    name: str, arguments: dict[str, Any], forms: tuple[tuple[int, ...], ...]
) -> None:
    operator = operator_of(name, arguments, forms, ())
    (moved,) = call(operator, [torch.ones(one) for one in forms], {})
    operator = operator_of(name, arguments, forms, moved.shape)
    for element, value in enumerate(moved.reshape(-1).tolist()):
        if value != 1:
            assert _recompute.needs(operator, 0, 0, element) == []
            found = _recompute.recompute(operator, 0, 0, element, {}, arithmetic="ord32")
            assert found.element == torch.tensor(value).numpy().tobytes()


def test_an_element_of_a_large_operand_takes_no_memory() -> None:
    """The liar chooses the operator."""
    side = 1 << 20
    joined = {"tensors": [HERE, HERE], "dim": 0}
    one = operator_of("cat", joined, ((side, side),) * 2, (2 * side, side))
    places = _regions.plan(one, 0, (side + 3) * side + 7).places
    assert [None if at is None else at.tolist() for at in places] == [[], [3 * side + 7]]
    form, arguments = one.inputs[0], {"self": HERE}
    drawn = Operator("aten.normal_.default", arguments, (form,), bytes(16), inputs=(form,))
    (unread,) = _regions.plan(drawn, 0, 5).places
    assert unread is not None and unread.untyped_storage().nbytes() == 8
