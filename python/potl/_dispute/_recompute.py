# SPDX-License-Identifier: Apache-2.0
"""What a referee computes itself: one element of a result, from opened parts of the operands."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from .. import _core
from .._arithmetic import _arithmetic, _rounded_steps
from .._base._elements import bytes_of_elements
from .._base._errors import MissingError, UnsupportedError, UsageError
from .._task import _random
from .._task._values import DTYPE_OF
from . import _regions
from ._call import call
from ._encoding import TensorOutline
from ._operators import CAPTURE, Operator, captured_digest
from ._rounded import Entries, excerpt, needs_all

CHUNK = _core.CONTENT_CHUNK_BYTES


@dataclass(frozen=True)
class Need:
    """What has to be opened of one operand.

    Attributes:
        operand: Its place among `Operator.operands`.
        chunks: Of its content, ascending.
    """

    operand: int
    chunks: tuple[int, ...]


@dataclass
class Opened:
    """An operand as far as it was opened.

    Attributes:
        outline: With the content root that was agreed.
    """

    outline: TensorOutline
    _chunks: dict[int, bytes] = field(default_factory=dict)

    def add(self, index: int, chunk: bytes, proof: Sequence[bytes]) -> None:
        """Takes a chunk.

        Raises:
            MismatchError: The proof does not show that it is that chunk of the operand.
            MalformedError: There is no such chunk, or the proof cannot be one.
        """
        if self.outline.root is None:
            raise UsageError("the operand has no agreed content", "")
        _core.verify_chunk(self.outline.root, nbytes_of(self.outline), index, chunk, proof)
        self._chunks[index] = bytes(chunk)

    def gather(self, places: torch.Tensor | None) -> torch.Tensor:
        """The elements at these places, in their shape; +0 at -1. None: all of them.

        Raises:
            MissingError: A chunk was not opened.
        """
        dtype = DTYPE_OF[self.outline.dtype]
        if places is None:
            places = torch.arange(math.prod(self.outline.shape)).reshape(self.outline.shape)
        if not bool((places >= 0).any()):  # also of many that nobody reads
            return torch.zeros(places.shape, dtype=dtype)
        flat = places.reshape(-1)
        each = CHUNK // dtype.itemsize
        out = torch.zeros(flat.shape, dtype=dtype)
        numbers = torch.where(flat < 0, -1, flat // each)
        for number in sorted(set(numbers.tolist())):
            if number < 0:
                continue
            if number not in self._chunks:
                raise MissingError(f"chunk {number} of an operand was not opened", "open it")
            held = torch.frombuffer(bytearray(self._chunks[number]), dtype=dtype)
            mine = numbers == number
            out[mine] = held[flat[mine] - number * each]
        return out.reshape(places.shape)


@dataclass(frozen=True)
class Recomputed:
    """One element.

    Attributes:
        element: Its bytes.
        multiply_adds: What it cost.
        rounding: What the rounding log and the exact sum say, where the element is one (log64).
        dtype: Of the element, where it is a number that was computed, and not moved.
    """

    element: bytes
    multiply_adds: int
    rounding: _core.WatchedElement | None = None
    dtype: str = ""

    def is_shown_by(self, element: bytes) -> bool:
        """Whether these bytes are the element. What is not a number has whatever bits a processor
        gives it, which are others among many elements than alone.
        """
        if element == self.element:
            return True
        return self.dtype != "" and all(not_numbers(element + self.element, self.dtype))


def disputed_element(mine: bytes, theirs: bytes, dtype: str) -> int:
    """The first element of two chunks that differs; of those that do, one that is a number for
    somebody, if there is any.
    """
    width = DTYPE_OF[dtype].itemsize
    differ = [
        at // width
        for at in range(0, len(mine), width)
        if mine[at : at + width] != theirs[at : at + width]
    ]
    undefined = [not_numbers(one, dtype) for one in (mine, theirs)]
    numbers = (at for at in differ if not (undefined[0][at] and undefined[1][at]))
    return next(numbers, differ[0])


def not_numbers(data: bytes, dtype: str) -> list[bool]:
    """Which elements are NaN; of complex ones none, whose other part may be a number."""
    found: list[bool] = nan_of(torch.frombuffer(bytearray(data), dtype=DTYPE_OF[dtype])).tolist()
    return found


def nan_of(values: torch.Tensor) -> torch.Tensor:
    """The same of a tensor."""
    if not values.is_floating_point():
        return torch.zeros(values.shape, dtype=torch.bool)
    # float8 has no comparison of its own.
    return (values.float() if values.itemsize == 1 else values).isnan()


def nbytes_of(outline: TensorOutline) -> int:
    """Bytes of a tensor's content."""
    return math.prod(outline.shape) * DTYPE_OF[outline.dtype].itemsize


def element_of(outline: TensorOutline, chunk: int, element: int) -> int:
    """The place in a tensor of an element of a chunk."""
    return chunk * (CHUNK // DTYPE_OF[outline.dtype].itemsize) + element


def needs(operator: Operator, result: int, chunk: int, element: int) -> list[Need]:
    """What has to be opened so that an element can be recomputed.

    Args:
        operator: Of a derived trace.
        result: Which of its results.
        chunk: Of the result's content.
        element: In the chunk.
    """
    if operator.name == CAPTURE:
        return []
    place = element_of(_tensor_result(operator, result), chunk, element)
    plan = _plan(operator, result, place)
    out = []
    for number, (outline, places) in enumerate(zip(operator.inputs, plan.places, strict=True)):
        chunks = chunks_of(outline, places)
        if chunks:
            out.append(Need(number, chunks))
    return out


def chunks_of(outline: TensorOutline, places: torch.Tensor | None) -> tuple[int, ...]:
    """The chunks of a tensor that hold what stands at these places; None: all of them."""
    if places is None:
        return tuple(range(-(-nbytes_of(outline) // CHUNK)))
    inside = places[places >= 0]
    numbers: list[int] = (inside * DTYPE_OF[outline.dtype].itemsize // CHUNK).tolist()
    return tuple(sorted(set(numbers)))


def recompute(
    operator: Operator,
    result: int,
    chunk: int,
    element: int,
    opened: Mapping[int, Opened],
    *,
    arithmetic: str,
    entries: Entries | None = None,
) -> Recomputed:
    """The true element of a result.

    Args:
        operator: Of a derived trace.
        result: Which of its results.
        chunk: Of the result's content.
        element: In the chunk.
        opened: By their place among `Operator.operands`, with at least what `needs` says; for
            "capture" all, of which nothing but the content root is read.
        arithmetic: Of the job.
        entries: In log64 the step's rounding log.

    Raises:
        MissingError: Something was not opened.
        UnsupportedError: The result has no agreed content.
    """
    outline = _tensor_result(operator, result)
    place = element_of(outline, chunk, element)
    if operator.name == CAPTURE:
        forms = [_of(opened, number).outline for number in range(len(operator.operands))]
        return Recomputed(captured_digest(operator, forms)[place : place + 1], 0)
    if _core.returns_unset(operator.name):
        raise UnsupportedError(f"{operator.name} leaves memory as it is", "nothing to recompute")
    plan = _plan(operator, result, place)
    operands = [
        _of(opened, number).gather(places)
        if number in opened or chunks_of(one, places)
        else torch.zeros(one.shape if places is None else places.shape, dtype=DTYPE_OF[one.dtype])
        for number, (one, places) in enumerate(zip(operator.inputs, plan.places, strict=True))
    ]
    if plan.result == _regions.MOVED:
        moved = next(one for one in operands if one.numel())
        return Recomputed(bytes_of(moved, 0), 0)
    part = excerpt(operator, result, place, plan, entries or Entries())
    log = None if part is None else _rounded_steps.Excerpt(part.log, part.watched)
    with in_arithmetic(arithmetic), _rounded_steps.around(log, 0), _drawing(operator):
        out = call(operator, operands, plan.changed)
    made = out[result if plan.result is None else plan.result]
    element_bytes = bytes_of(made, plan.element)
    if not_numbers(element_bytes, outline.dtype)[0]:  # so that all who compute it say the same
        element_bytes = bytes_of(torch.full((1,), math.nan, dtype=DTYPE_OF[outline.dtype]), 0)
    if part is None or log is None:
        return Recomputed(element_bytes, plan.multiply_adds, dtype=outline.dtype)
    if log.values != part.values:
        raise UnsupportedError(f"{operator.name} rounds other elements than its part", "")
    return Recomputed(element_bytes, plan.multiply_adds, log.watched, outline.dtype)


def _plan(operator: Operator, result: int, place: int) -> _regions.Plan:
    if needs_all(operator):
        return _regions.whole(operator, result, place)
    return _regions.plan(operator, result, place)


def _tensor_result(operator: Operator, result: int) -> TensorOutline:
    outline = operator.results[result]
    if not isinstance(outline, TensorOutline):
        raise UsageError(f"result {result} of {operator.name} is not a tensor")
    return outline


def _of(opened: Mapping[int, Opened], number: int) -> Opened:
    if number not in opened:
        raise MissingError(f"operand {number} was not opened", "open it")
    return opened[number]


def bytes_of(tensor: torch.Tensor, element: int) -> bytes:
    """One element of a tensor."""
    size = tensor.element_size()
    return bytes(bytes_of_elements(tensor)[element * size : (element + 1) * size].numpy())


@contextlib.contextmanager
def in_arithmetic(name: str) -> Iterator[None]:
    """Computes as a job does."""
    with _random.scope(), torch.no_grad(), _arithmetic.block(name):
        yield


@contextlib.contextmanager
def _drawing(operator: Operator) -> Iterator[None]:
    """Draws what the operator drew."""
    if operator.generator is not None:
        state = torch.frombuffer(bytearray(operator.generator), dtype=torch.uint8)
        torch.default_generator.set_state(state)
    yield
