# SPDX-License-Identifier: Apache-2.0
"""Where an operator that only moves elements took one of them from.

It follows from the operator's attributes and the forms of its operands. A liar chooses about which
operator he lies, so nothing may be as large as an operand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ._operators import Operator

# Which operand, and the index in it.
Source = tuple[int, list[int]]


def source(operator: Operator, index: Sequence[int]) -> tuple[int, int] | None:
    """Which operand an element was moved from, and its place there; None where it was filled in.

    Args:
        operator: One that copies, and has one result.
        index: Of the element, by dimension.
    """
    packet = operator.name.removeprefix("aten.").partition(".")[0]
    found = _RULES[packet](operator, list(index))
    if found is None:
        return None
    number, inner = found
    return number, raveled(inner, operator.inputs[number].shape)


def raveled(index: Sequence[int], shape: Sequence[int]) -> int:
    """The place of an element in row-major order."""
    place = 0
    for one, size in zip(index, shape, strict=True):
        place = place * size + one
    return place


def unraveled(element: int, shape: Sequence[int]) -> list[int]:
    """The index of an element by dimension."""
    out = []
    for size in reversed(shape):
        element, index = divmod(element, size)
        out.append(index)
    return out[::-1]


def _cat(operator: Operator, index: list[int]) -> Source:
    dim = operator.arguments["dim"] % len(index)
    for number, one in enumerate(operator.inputs):
        if len(one.shape) != len(index):  # torch lets an empty vector be joined with anything
            continue
        if index[dim] < one.shape[dim]:
            return number, index
        index[dim] -= one.shape[dim]
    raise AssertionError("an element of a result comes from an operand")


def _stack(operator: Operator, index: list[int]) -> Source:
    number = index.pop(operator.arguments["dim"] % len(index))
    return number, index


def _flip(operator: Operator, index: list[int]) -> Source:
    shape = operator.inputs[0].shape
    for dim in operator.arguments["dims"]:
        index[dim] = shape[dim] - 1 - index[dim]
    return 0, index


def _roll(operator: Operator, index: list[int]) -> Source:
    shape, shifts = operator.inputs[0].shape, operator.arguments["shifts"]
    dims = operator.arguments["dims"]
    if not dims:  # all elements in one row
        moved = raveled(index, shape) - shifts[0]
        return 0, unraveled(moved % math.prod(shape), shape)
    for dim, shift in zip(dims, shifts, strict=True):
        index[dim] = (index[dim] - shift) % shape[dim]
    return 0, index


def _repeat(operator: Operator, index: list[int]) -> Source:
    shape = operator.inputs[0].shape
    own = index[len(index) - len(shape) :]
    return 0, [one % size for one, size in zip(own, shape, strict=True)]


def _pad(operator: Operator, index: list[int]) -> Source | None:
    pad = operator.arguments["pad"]
    for at in range(len(pad) // 2):  # the last dimension comes first
        index[-1 - at] -= pad[2 * at]
    return _inside(operator, index)


def _slice_backward(operator: Operator, index: list[int]) -> Source | None:
    arguments = operator.arguments
    dim, step = arguments["dim"], arguments["step"]
    part = slice(arguments["start"], arguments["end"], step)
    first, _, _ = part.indices(arguments["input_sizes"][dim])
    index[dim], between = divmod(index[dim] - first, step)
    return None if between else _inside(operator, index)


def _select_backward(operator: Operator, index: list[int]) -> Source | None:
    arguments = operator.arguments
    size = arguments["input_sizes"][arguments["dim"]]
    own = index.pop(arguments["dim"])
    return (0, index) if own == arguments["index"] % size else None


def _inside(operator: Operator, index: list[int]) -> Source | None:
    shape = operator.inputs[0].shape
    fits = all(0 <= one < size for one, size in zip(index, shape, strict=True))
    return (0, index) if fits else None


_RULES: dict[str, Callable[[Operator, list[int]], Source | None]] = {
    "cat": _cat,
    "stack": _stack,
    "flip": _flip,
    "roll": _roll,
    "repeat": _repeat,
    "constant_pad_nd": _pad,
    "slice_backward": _slice_backward,
    "select_backward": _select_backward,
}
