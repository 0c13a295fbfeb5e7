# SPDX-License-Identifier: Apache-2.0
"""Operators out of their encoding (docs/format/operator_trace.md), which somebody else wrote."""

from __future__ import annotations

import struct
from typing import Any

from .. import _core
from .._base._errors import MalformedError
from .._task._values import DTYPE_OF
from ._call import function_called
from ._encoding import Reference, TensorOutline
from ._operators import CAPTURE, Operator
from ._tracer import Tracer

_DTYPES = {_core.safetensors_dtype(name): name for name in DTYPE_OF}
_DEEPEST = 32


def decoded(data: bytes) -> Any:
    """The inverse of `encode`. What it returns is at most some fifty times as large as the bytes.

    Raises:
        MalformedError: It is not an encoding of a value.
    """
    reader = _Reader(data)
    try:
        value = reader.value(_DEEPEST)
    except (struct.error, UnicodeDecodeError, KeyError, TypeError) as error:
        raise MalformedError("this is not an encoding of a value") from error
    if reader.left():
        raise MalformedError("behind the encoding of a value is something else")
    return value


def described(description: bytes) -> Operator:
    """The operator with this description, without the forms of its operands. Which leaf it belongs
    to is not looked at: its structure says so.

    Raises:
        MalformedError: It is not a description.
    """
    value = decoded(description)
    if type(value) is not list or len(value) not in (4, 5):
        raise MalformedError("a description has four parts, or five")
    name, arguments, results, drawn, *more = value
    rounded = [_rounded(one) for one in more]
    fits = type(name) is str and type(arguments) is dict and type(results) is list
    if not fits or type(drawn) not in (bytes, type(None)):
        raise MalformedError("a description has other parts than those of an operator")
    if name == CAPTURE:
        order = ["state"]
    else:
        try:
            order = Tracer.form(function_called(name)).names
        except (AttributeError, ValueError, RuntimeError) as error:
            raise MalformedError("a description is of an operator that torch has not") from error
    if set(order) != set(arguments):
        raise MalformedError("a description has other arguments than the operator")
    ordered = {one: arguments[one] for one in order}
    return Operator(name, ordered, tuple(results), drawn=drawn, rounded=next(iter(rounded), None))


def _rounded(part: object) -> tuple[int, int]:
    """Where an operator's elements stand in the rounding log."""
    if not isinstance(part, list) or [type(one) for one in part] != [int, int] or min(part) < 0:
        raise MalformedError("a description has another place in the rounding log")
    return part[0], part[1]


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def left(self) -> int:
        return len(self._data) - self._at

    def value(self, depth: int) -> Any:
        tag = self._take(1)[0]
        if tag == 0:
            return None
        if tag in (1, 2):
            return tag == 2
        if tag == 3:
            return struct.unpack("<q", self._take(8))[0]
        if tag == 4:
            return struct.unpack("<d", self._take(8))[0]
        if tag in (5, 6, 12):
            data = self._take(self._count())
            if tag == 6:
                return data
            return data.decode() if tag == 5 else Reference(data.decode())
        if tag == 10:
            return self._tensor()
        if tag not in (7, 8, 9) or depth == 0:
            raise MalformedError("this is not an encoding of a value")
        count = self._count()
        if tag != 9:
            items = [self.value(depth - 1) for _ in range(count)]
            return items if tag == 7 else tuple(items)
        out: dict[int | str, Any] = {}
        for _ in range(count):
            key = self.value(0)
            if type(key) not in (int, str) or key in out:
                raise MalformedError("this is not an encoding of a map")
            out[key] = self.value(depth - 1)
        return out

    def _tensor(self) -> TensorOutline:
        dtype = _DTYPES[self._take(self._take(1)[0]).decode()]
        memory_format = self._take(self._take(1)[0]).decode()
        dims = self._take(1)[0]
        shape = struct.unpack(f"<{dims}Q", self._take(8 * dims))
        root = self._take(32)
        return TensorOutline(dtype, shape, root if any(root) else None, memory_format)

    def _count(self) -> int:
        """Of what follows, each at least a byte."""
        count = int(struct.unpack("<Q", self._take(8))[0])
        if count > self.left():
            raise MalformedError("an encoding ends too early")
        return count

    def _take(self, size: int) -> bytes:
        if size > self.left():
            raise MalformedError("an encoding ends too early")
        self._at += size
        return self._data[self._at - size : self._at]
