# SPDX-License-Identifier: Apache-2.0
"""Which elements operators round in log64, and where in the step's rounding log they stand.

An operator's elements stand together in the log, in the order in which its kernels round them
(src/libtorch/arithmetic). What an executed operator rounds is counted, and compared with what is
derived here, so that a rule that is missing or wrong leaves a dispute undecided.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from .. import _core
from .._arithmetic import _rounded_steps
from .._base._errors import LimitError, MalformedError, MismatchError, UnsupportedError
from ._answers import from_json, rounding_from_json
from ._encoding import TensorOutline
from ._operators import Operator
from ._regions import Plan

_PRODUCTS = frozenset(("mm", "bmm", "addmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "vdot"))
_CONVOLUTIONS = frozenset(("convolution", "_convolution", "convolution_overrideable"))
_BACKWARD = frozenset(("convolution_backward", "convolution_backward_overrideable"))
_ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"
_ROUNDED = frozenset(("float32", "float16"))


def values_of(operator: Operator) -> int:
    """How many elements an operator rounds; recurrent layers are counted otherwise."""
    return sum(count for _, count in _parts(operator))


def _parts(operator: Operator) -> Iterator[tuple[int, int]]:
    """What an operator rounds, in order: of which result, and how many elements."""
    if not operator.inputs or operator.inputs[0].dtype not in _ROUNDED:
        return
    name = operator.name.removeprefix("aten.").partition(".")[0].rstrip("_")
    shapes = [one.shape for one in operator.inputs]
    if name in _PRODUCTS or name in _CONVOLUTIONS:
        yield 0, _size(operator, 0)
    elif name in _BACKWARD:
        wanted, arguments = operator.arguments["output_mask"], operator.arguments
        if wanted[0]:
            shape = list(shapes[1])
            if arguments["transposed"]:
                more = zip(arguments["output_padding"], arguments["stride"], strict=True)
                for at, (padding, stride) in enumerate(more, start=2):
                    shape[at] += padding // stride
            yield 0, math.prod(shape)
        if wanted[1]:
            yield 1, _size(operator, 1)
    elif name.startswith(_ATTENTION):
        backward = name.endswith("backward")
        query, keys, value = shapes[1:4] if backward else shapes[:3]
        heads, scores = query[0] * query[1], query[2] * keys[2]
        if backward:
            yield -1, heads * (2 * scores + (query[2] + keys[2]) * query[3] + value[2] * value[3])
        else:
            yield -1, heads * (scores + query[2] * value[3])


def _size(operator: Operator, result: int) -> int:
    outline = operator.results[result]
    assert isinstance(outline, TensorOutline)
    return math.prod(outline.shape)


def needs_all(operator: Operator) -> bool:
    """Whether an element is made of several rounded ones, whose places in the log a part of the
    operator would not have.
    """
    simple = _PRODUCTS | _CONVOLUTIONS | _BACKWARD
    name = operator.name.removeprefix("aten.").partition(".")[0].rstrip("_")
    return operator.rounded is not None and name not in simple


@dataclass(frozen=True)
class Entries:
    """A rounding log. Bytes that are not a log count as one without entries. Whoever wrote it chose
    how many there are, so they become no objects here.
    """

    log: bytes = b""

    def part(self, first: int, count: int, place: int, values: int) -> bytes:
        """A log of `values`, with the entries of so many elements from `place` on."""
        return _core.part_of_rounding_log(
            self.log,
            bits=_rounded_steps.BITS,
            first=first,
            count=count,
            place=place,
            values=values,
        )


@dataclass(frozen=True)
class Excerpt:
    """The log of a part of an operator that makes one element.

    Attributes:
        log: Its bytes.
        values: How many elements the part rounds.
        watched: The one that is the element; None where several are in it, or none.
    """

    log: bytes
    values: int
    watched: int | None


def excerpt(
    operator: Operator, result: int, element: int, plan: Plan, entries: Entries
) -> Excerpt | None:
    """What the log says of one element of a result; None where the operator rounds nothing."""
    if operator.rounded is None:
        return None
    first, count = operator.rounded
    before, watched = 0, None
    for number, size in _parts(operator):
        if number == result and size == _size(operator, result):
            watched = before + element
        before += size
    if all(places is None for places in plan.places):
        return Excerpt(entries.part(first, count, 0, count), count, watched)
    if watched is None:  # a sum beside the products
        return Excerpt(Entries().part(0, 0, 0, 0), 0, None)
    values = _made(operator, result, plan)
    return Excerpt(entries.part(first + watched, 1, plan.element, values), values, plan.element)


def _made(operator: Operator, result: int, plan: Plan) -> int:
    """How many elements the part of an operator rounds that a plan executes."""
    name = operator.name.removeprefix("aten.").partition(".")[0]
    if name not in _BACKWARD:
        return 1
    places = plan.places[1 if result == 0 else 2]
    assert places is not None
    return places.numel()


def shown_entries(now: _core.DisputeProceedings, resumes: int) -> Entries | None:
    """The rounding log of the disputed step, out of the trainer's answer: that which the last
    record of the step binds. None where the answer does not show it.

    Args:
        now: Both have answered.
        resumes: How often the job allows a run to be resumed.
    """
    try:
        records, log = rounding_from_json(from_json(now.answers[0]))
        if len(records) > 1 + resumes:
            return None
        bound = now.trainers_rounding(records)
    except (MalformedError, MismatchError, LimitError, UnsupportedError):
        return None
    if bound is None:  # whatever comes now is late
        return Entries()
    digest, _ = bound
    if log is None or _core.rounding_log_digest(log) != digest:
        return None
    return Entries(log)


def facts_of_rounding(found: _core.WatchedElement) -> dict[str, object]:
    """What a ruling says of an element's entry; distances in steps of the grid."""
    step = found["step"] or 1.0
    return {
        "fault": found["fault"],
        "distance": (found["distance"] / step).hex(),
        "window": (found["window"] / step).hex(),
    }
