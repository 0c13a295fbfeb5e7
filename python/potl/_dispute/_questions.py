# SPDX-License-Identifier: Apache-2.0
"""What a referee asks, and how long an answer may be. An honest one that is too long would be taken
for a fault of its party's, so what would take more is not asked, and decided by nobody.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from .. import _core
from .._arithmetic import _rounded_steps
from .._base._errors import LimitError
from .._task._values import DTYPE_OF
from . import _answers
from ._encoding import TensorOutline
from ._long_sums import LongSum
from ._operators import CAPTURE, Operator
from ._parts import most_bytes, needs_of, sum_to_open
from ._recompute import CHUNK, Need, nbytes_of, needs

# What JSON and base64 add to the bytes of an answer, and its proofs.
_SLACK, _PROOF = 1 << 16, 64 * 66
# A record of a log, with its proof.
_RECORD, _RESUME = (64 << 10) * 4 // 3 + _PROOF, 1024 + _PROOF
_CHUNK = CHUNK * 4 // 3 + 200 + _PROOF
# Of a state beside its tensors. Any opening may have as much.
_STATE_SLACK = 1 << 20
MOST = 16 << 20


def question(asked: dict[str, object], size: int) -> _core.DisputeQuestion:
    """A question whose answer takes at most so many bytes.

    Raises:
        LimitError: An honest answer may have more than can be asked for.
    """
    if size > MOST:
        raise LimitError(f"an answer would take {size} bytes, more than {MOST}")
    return _core.DisputeQuestion(_answers.to_json(asked), size)


def bytes_of_state(outline: int, arithmetic: str, resumes: int, *, shows_end: bool) -> int:
    """For a state of a job whose first one has an outline of so many bytes."""
    log = 3 * _CHUNK if shows_end else 0
    if arithmetic == _rounded_steps.LOG64:
        log += (_core.MAX_ROUNDING_LOG_BYTES * 4) // 3 + _RECORD + resumes * _RESUME
    # Optimizers add several tensors for each of the model's.
    return max(min(_STATE_SLACK + 16 * outline, MOST - log), 6 * outline) + log


def bytes_of_leaves(operators: Mapping[int, Operator], wanted: Sequence[int], size: int) -> int:
    """For these leaves of a tree of so many."""
    proof = 66 * size.bit_length()
    return _SLACK + sum(2 * (200 + 32 * len(operators[one].tensors)) + proof for one in wanted)


def bytes_of_chunks(wanted: Sequence[Need]) -> int:
    """For these chunks."""
    count = sum(len(one.chunks) for one in wanted)
    return _SLACK + count * _CHUNK


def bytes_of_parts(long: LongSum, wanted: Sequence[Need]) -> int:
    """For the parts of a sum, and what is opened with them."""
    return bytes_of_chunks(wanted) + most_bytes(long) * 4 // 3


def operators_of(operator: Operator) -> list[int]:
    """Those whose results it reads."""
    found = (one.path.partition("/") for one in operator.operands)
    return sorted({int(rest.split("/")[0]) for kind, _, rest in found if kind == "operator"})


def too_large(operators: Sequence[Operator], arithmetic: str) -> tuple[int, int] | None:
    """The first operator of a step that nobody could decide about, since its answers are too long,
    and the bytes that one takes.
    """
    numbered = dict(enumerate(operators))
    for number, one in numbered.items():
        sizes = [bytes_of_leaves(numbered, operators_of(one), number)]
        if sum(map(nbytes_of, one.inputs)) > MOST // 2 and not _core.returns_unset(one.name):
            sizes += _of_elements(one, arithmetic)
        if max(sizes) > MOST:
            return number, max(sizes)
    return None


def _of_elements(operator: Operator, arithmetic: str) -> Iterator[int]:
    """For the first and the last element of each result."""
    if operator.name == CAPTURE:
        return
    for result, form in enumerate(operator.results):
        if not isinstance(form, TensorOutline) or not math.prod(form.shape):
            continue
        each = CHUNK // DTYPE_OF[form.dtype].itemsize
        for place in {0, math.prod(form.shape) - 1}:
            at = (operator, result, place // each, place % each)
            long = sum_to_open(*at, arithmetic=arithmetic)
            if long is None:
                yield bytes_of_chunks(needs(*at))
            else:
                yield bytes_of_parts(long, needs_of(operator, long.settled))
