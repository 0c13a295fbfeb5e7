# SPDX-License-Identifier: Apache-2.0
"""Canonical bytes of a sample: what a leaf of the data root hashes (docs/reference/task.md).

Every value is a tag byte, then its content; lengths and dims are 64-bit little-endian. Nothing is
left out and nothing is ambiguous: different samples have different bytes, and the same sample has
the same bytes on every machine.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch

from .._base._elements import bytes_of_elements
from .._base._errors import NotReplayable, Problem
from ._records import contents_of

# Deeper nesting than this is not data.
_MAX_DEPTH = 64


def sample_bytes(sample: Any, name: str = "sample") -> bytes:
    """The canonical bytes of what a data set returned for one index, or of a batch.

    Args:
        sample: Tensors, NumPy arrays, PIL images, numbers, texts, and containers, data
            classes or graphs of them.
        name: Of it, in messages.

    Raises:
        NotReplayable: The sample holds a value of a type without canonical bytes; the path and type
            are named.
    """
    parts: list[bytes] = []
    _write(sample, parts, name, 0)
    return b"".join(parts)


def first_difference(one: Any, other: Any, name: str = "sample") -> str | None:
    """Where two samples first have different bytes, for a message; None if they are the same."""
    if sample_bytes(one, name) == sample_bytes(other, name):
        return None
    if type(one) is type(other):
        keys: Iterable[Any] = ()
        if isinstance(one, (list, tuple)) and len(one) == len(other):
            keys = range(len(one))
        elif isinstance(one, dict) and one.keys() == other.keys():
            keys = one
        for key in keys:
            if found := first_difference(one[key], other[key], f"{name}[{key!r}]"):
                return found
    kinds = described(one), described(other)
    if kinds[0] == kinds[1]:
        return f"{name}: {kinds[0]}, of other content"
    return f"{name}: {kinds[0]}, and {kinds[1]}"


def described(value: Any) -> str:
    """Type, dtype and shape of a part of a sample, for a message."""
    parts = [type(value).__name__]
    if hasattr(value, "dtype"):
        parts.append(str(value.dtype))
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):  # and no member that is called so
        parts.append(str(list(shape)))
    elif isinstance(value, (list, tuple)):
        parts.append(f"of {len(value)}")
    return " ".join(parts)


def tensor_header(dtype: torch.dtype, shape: tuple[int, ...]) -> bytes:
    """What precedes a tensor's bytes."""
    return b"t" + _header(str(dtype).removeprefix("torch."), shape)


def tuple_header(count: int) -> bytes:
    """What precedes the values of a tuple."""
    return b"(" + _u64(count)


def raw_bytes(tensor: torch.Tensor) -> bytes:
    """A tensor's elements in row-major order, little-endian."""
    return bytes_of_elements(tensor).numpy().tobytes()


def _write(value: Any, parts: list[bytes], path: str, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise _refusal(value, path)
    kind = type(value)
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided or value.is_quantized or value.is_meta:
            raise _refusal(value, path)
        parts += (tensor_header(value.dtype, tuple(value.shape)), raw_bytes(value))
    elif isinstance(value, (np.ndarray, np.generic)):
        _write_array(np.asarray(value), parts, path)
    elif value is None:
        parts.append(b"N")
    elif kind is bool:
        parts.append(b"T" if value else b"F")
    elif isinstance(value, int):
        _write_sized(b"i", str(int(value)).encode(), parts)
    elif isinstance(value, float):
        parts += (b"f", struct.pack("<d", value))
    elif isinstance(value, str):
        _write_sized(b"s", value.encode("utf-8", "surrogatepass"), parts)
    elif isinstance(value, (bytes, bytearray)):
        _write_sized(b"b", bytes(value), parts)
    elif isinstance(value, (list, tuple)):
        parts.append((b"[" if isinstance(value, list) else b"(") + _u64(len(value)))
        for index, item in enumerate(value):
            _write(item, parts, f"{path}[{index}]", depth + 1)
    elif (contents := contents_of(value)) is not None:
        _write_mapping(contents, parts, path, depth)
    elif _is_image(value):
        _write_sized(b"p", value.mode.encode(), parts)
        parts.append(struct.pack("<QQ", *value.size))
        _write_sized(b"b", value.tobytes(), parts)
        if value.mode == "P":
            _write_sized(b"b", bytes(value.getpalette() or ()), parts)
    else:
        raise _refusal(value, path)


def _write_array(array: np.ndarray[Any, Any], parts: list[bytes], path: str) -> None:
    if array.dtype.hasobject or array.dtype.names is not None or array.dtype.kind in "mMV":
        raise _refusal(array, path, f"NumPy array of dtype {array.dtype}")
    little = array.dtype.newbyteorder("<")
    parts.append(b"a" + _header(little.str, array.shape))
    parts.append(np.ascontiguousarray(array, dtype=little).tobytes())


def _write_mapping(value: Mapping[Any, Any], parts: list[bytes], path: str, depth: int) -> None:
    entries = []
    for key, item in value.items():
        entry: list[bytes] = []
        _write(key, entry, f"{path} key", depth + 1)
        name = b"".join(entry)
        content: list[bytes] = []
        _write(item, content, f"{path}[{key!r}]", depth + 1)
        entries.append((name, b"".join(content)))
    parts.append(b"{" + _u64(len(entries)))
    for name, data in sorted(entries):
        parts += (name, data)


def _write_sized(tag: bytes, content: bytes, parts: list[bytes]) -> None:
    parts += (tag + _u64(len(content)), content)


def _header(dtype: str, shape: tuple[int, ...]) -> bytes:
    name = dtype.encode()
    return _u64(len(name)) + name + _u64(len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)


def _u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def _is_image(value: Any) -> bool:
    pillow = sys.modules.get("PIL.Image")
    return pillow is not None and isinstance(value, pillow.Image)


def _refusal(value: Any, path: str, name: str = "") -> NotReplayable:
    name = name or f"{type(value).__module__}.{type(value).__qualname__}"
    return NotReplayable(
        Problem(
            what=f"{path} is a {name}, which has no canonical bytes to hash",
            where="dataset",
            remedy="return tensors, NumPy arrays, PIL images, numbers, strings, bytes, tuples, "
            "lists, dicts or data classes",
        )
    )
