# SPDX-License-Identifier: Apache-2.0
"""The bytes of values, as docs/format/transcript.md has them for a state and
docs/format/operator_trace.md for an operator.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .. import _core
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
        TypeError: A value of another kind.
    """
    return _core.encode_tree(mapped(value, _known))


def _known(_path: str, leaf: Any) -> Any:
    """What the core calls it."""
    if isinstance(leaf, TensorOutline):
        root = bytes(32) if leaf.root is None else leaf.root
        return _core.Outline(leaf.dtype, leaf.shape, leaf.memory_format, root)
    if isinstance(leaf, AliasOutline):
        return _core.Alias(leaf.path)
    if isinstance(leaf, Reference):
        return _core.Reference(leaf.path)
    return float(leaf) if isinstance(leaf, float) else leaf  # of NumPy's there are subclasses


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
    return _core.digest_of_encoding(encode(tree))
