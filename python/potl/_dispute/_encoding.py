# SPDX-License-Identifier: Apache-2.0
"""The bytes of values, as docs/format/transcript.md has them for a state and
docs/format/operator_trace.md for an operator.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .. import _core
from .._base._errors import UsageError
from .._record._run import safetensors_dtype
from .._task._values import Tree


@dataclass(frozen=True)
class Reference:
    """Where an operand comes from.

    Attributes:
        path: "operator/12/0" (a result of an earlier operator), "state/model/parameters/w" (of the
            state before the step), "batch/0" or "constant/" and the content root in hexadecimal.
    """

    path: str


@dataclass(frozen=True)
class TensorOutline:
    """A tensor without its elements.

    Attributes:
        dtype: As torch calls it, such as "float32".
        shape: Of the tensor.
        root: Content root; None where nobody knows it.
        memory_format: As a state records it.
        data: The bytes of a tensor with one element, where they are known.
    """

    dtype: str
    shape: tuple[int, ...]
    root: bytes | None
    memory_format: str = "contiguous"
    data: bytes | None = None


@dataclass(frozen=True)
class AliasOutline:
    """A tensor of a state that shares the memory of the one at `path`."""

    path: str


def encode(value: Any) -> bytes:
    """The bytes of a value: None, bool, int, float, text, bytes, lists, tuples, maps, tensors,
    aliases, references.

    Raises:
        UsageError: A value of another kind.
    """
    out = bytearray()
    _put(value, out)
    return bytes(out)


def _put(value: Any, out: bytearray) -> None:
    kind = type(value)
    if value is None:
        out.append(0)
    elif kind is bool:
        out.append(2 if value else 1)
    elif kind is int:
        out.append(3)
        out += struct.pack("<q", value)
    elif isinstance(value, float):
        out.append(4)
        out += struct.pack("<d", value)
    elif kind is str:
        _put_bytes(5, value.encode(), out)
    elif kind is bytes:
        _put_bytes(6, value, out)
    elif kind is list or kind is tuple:
        out.append(7 if kind is list else 8)
        out += struct.pack("<Q", len(value))
        for item in value:
            _put(item, out)
    elif kind is dict:
        out.append(9)
        out += struct.pack("<Q", len(value))
        for key in ordered(value):
            _put(key, out)
            _put(value[key], out)
    elif kind is TensorOutline:
        _put_tensor(value, out)
    elif kind is AliasOutline:
        _put_bytes(11, value.path.encode(), out)
    elif kind is Reference:
        _put_bytes(12, value.path.encode(), out)
    else:
        raise UsageError(f"a {kind.__name__} has no encoding")


def _put_bytes(tag: int, data: bytes, out: bytearray) -> None:
    out.append(tag)
    out += struct.pack("<Q", len(data))
    out += data


def _put_tensor(tensor: TensorOutline, out: bytearray) -> None:
    dtype, memory_format = safetensors_dtype(tensor.dtype).encode(), tensor.memory_format.encode()
    out.append(10)
    out += bytes([len(dtype)]) + dtype + bytes([len(memory_format)]) + memory_format
    out.append(len(tensor.shape))
    out += struct.pack(f"<{len(tensor.shape)}Q", *tensor.shape)
    root = bytes(32) if tensor.root is None else tensor.root
    # A longer one would be read as what follows: two states with one digest.
    if len(root) != 32:
        raise UsageError("a content root has 32 bytes")
    out += root


def ordered(tree: dict[Any, Any]) -> list[Any]:
    """The keys of a map in the order of its encoding."""
    return sorted(
        tree, key=lambda key: (type(key) is str, key.encode() if type(key) is str else key)
    )


def joined(path: str, key: int | str) -> str:
    """The path of a map's value, or of a list's."""
    if type(key) is int:
        part = f"#{key}"
    else:
        part = str(key).replace("~", "~0").replace("/", "~1")
        part = "~2" + part[1:] if part.startswith("#") else part
    return f"{path}/{part}" if path else part


def leaves(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """What is neither list, tuple nor map in a state, in the order of the encoding, by path."""
    if type(tree) is dict:
        for key in ordered(tree):
            yield from leaves(tree[key], joined(path, key))
    elif type(tree) in (list, tuple):
        for index, item in enumerate(tree):
            yield from leaves(item, f"{path}/{index}" if path else str(index))
    else:
        yield path, tree


def mapped(tree: Any, function: Any, path: str = "") -> Any:
    """The tree with function(path, leaf) in place of each leaf, called in the same order."""
    if type(tree) is dict:
        return {key: mapped(tree[key], function, joined(path, key)) for key in ordered(tree)}
    if type(tree) in (list, tuple):
        return type(tree)(
            mapped(item, function, f"{path}/{index}" if path else str(index))
            for index, item in enumerate(tree)
        )
    return function(path, tree)


def state_digest(tree: Tree) -> bytes:
    """The digest of a state whose tensors are outlines."""
    return _core.sha256(b"potl.state.v1\0" + encode(tree))
