# SPDX-License-Identifier: Apache-2.0
"""The parts of a long sum, as parties show them and a referee computes one of them again."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch

from .._base._elements import bytes_of_elements
from .._task._values import DTYPE_OF
from ._folds import ORD32, count_of
from ._long_sums import LongSum, Places, Values, forms_of, long_sum
from ._operators import CAPTURE, Operator
from ._recompute import Need, Opened, bytes_of, chunks_of, element_of, in_arithmetic, needs

# So many chunks are opened at once rather than in two questions.
FEW = 32
Read = Callable[[int, torch.Tensor], torch.Tensor]


def sum_to_open(
    operator: Operator, result: int, chunk: int, element: int, *, arithmetic: str
) -> LongSum | None:
    """The element as a long sum, where all that it is made of is too much to open at once.

    Args:
        operator: Of a derived trace.
        result: Which of its results.
        chunk: Of the result's content.
        element: In the chunk.
        arithmetic: Of the job.
    """
    if operator.name == CAPTURE:
        return None
    if sum(len(one.chunks) for one in needs(operator, result, chunk, element)) <= FEW:
        return None
    place = element_of(operator.results[result], chunk, element)
    return long_sum(operator, result, place, arithmetic)


def needs_of(operator: Operator, places: Places) -> list[Need]:
    """The chunks of operands, and of own results, that hold what stands at these places."""
    forms = forms_of(operator)
    found = [Need(one, chunks_of(forms[one], where)) for one, where in sorted(places.items())]
    return [one for one in found if one.chunks]


def most_bytes(one: LongSum) -> int:
    """What the parts take at most."""
    return count_of(one.fold, one.most) * size_of(one)


def size_of(one: LongSum) -> int:
    """Bytes of a part."""
    return one.fold.width * one.dtype.itemsize


def read_opened(
    operator: Operator, opened: Mapping[int, Opened], places: Places
) -> dict[int, torch.Tensor]:
    """What was opened at these places.

    Raises:
        MissingError: Something was not opened.
    """
    forms = forms_of(operator)
    out = {}
    for number, where in places.items():
        if number in opened:
            out[number] = opened[number].gather(where)
        else:  # nothing of it has to be opened
            out[number] = Opened(forms[number]).gather(where)
    return out


def reader(operator: Operator, content: Callable[[int], bytes]) -> Read:
    """Reads at places of whole contents."""
    forms = forms_of(operator)
    held: dict[int, torch.Tensor] = {}

    def read(number: int, where: torch.Tensor) -> torch.Tensor:
        if number not in held:
            dtype = DTYPE_OF[forms[number].dtype]
            held[number] = torch.frombuffer(bytearray(content(number)), dtype=dtype)
        found = held[number][where.clamp(min=0)]
        return torch.where(where < 0, torch.zeros_like(found), found)

    return read


def parts_of(one: LongSum, read: Read) -> bytes:
    """All parts, one after the other."""
    settled = _read(one.settled, read)
    rows = _read(one.rows(settled), read)
    if not rows or not one.count(settled):
        return b""
    with in_arithmetic(ORD32):
        return _bytes(one.fold.parts(one.terms(settled, rows)))


def finished(one: LongSum, parts: bytes, settled: Values) -> bytes:
    """The element that these parts make. `parts` has as many as there are."""
    with in_arithmetic(ORD32):
        total = one.fold.total(_parts(one, parts))
        return bytes_of(one.finish(total, settled).reshape(1), 0)


def part_again(one: LongSum, number: int, parts: bytes, settled: Values, rows: Values) -> bytes:
    """A part, from the one before it and the terms between the two."""
    held = _parts(one, parts)
    before = None if one.fold.is_first(number) else held[number - 1]
    with in_arithmetic(ORD32):
        return _bytes(one.fold.part(before, one.terms(settled, rows)))


def first_difference(one: LongSum, parts: bytes, others: bytes) -> int | None:
    """The first part that is not the same."""
    size = size_of(one)
    for at in range(0, len(parts), size):
        if parts[at : at + size] != others[at : at + size]:
            return at // size
    return None


def cost_of(one: LongSum) -> int:
    """Multiply-adds of computing one part, and the element from all of them."""
    return one.fold.block if one.most else 0


def _read(places: Places, read: Read) -> dict[int, torch.Tensor]:
    return {number: read(number, where) for number, where in places.items()}


def _parts(one: LongSum, parts: bytes) -> torch.Tensor:
    if not parts:
        return torch.zeros(0, one.fold.width, dtype=one.dtype)
    return torch.frombuffer(bytearray(parts), dtype=one.dtype).reshape(-1, one.fold.width)


def _bytes(tensor: torch.Tensor) -> bytes:
    return bytes(bytes_of_elements(tensor).numpy())


def count_bytes(one: LongSum, settled: Values) -> int:
    """What the parts take, once it is known how many terms there are."""
    return math.prod((count_of(one.fold, one.count(settled)), size_of(one)))
