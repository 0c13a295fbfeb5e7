# SPDX-License-Identifier: Apache-2.0
"""Trees of states as plain values: every node can be looked at, replaced and written to a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pure_format as pure

Path = tuple[Any, ...]
Tree = Any

# Names of a live state to those of a file, and to NumPy's.
_NAMES = {
    "float32": ("F32", "<f4"),
    "float64": ("F64", "<f8"),
    "float16": ("F16", "<f2"),
    "int64": ("I64", "<i8"),
    "int32": ("I32", "<i4"),
    "uint8": ("U8", "u1"),
    "bool": ("BOOL", "?"),
}
_NUMPY = dict(_NAMES.values())
_OF_NUMPY = {np.dtype(own).str: name for name, own in _NUMPY.items()}


@dataclass(frozen=True)
class Leaf(pure.TensorValue):
    """A tensor with its bytes."""

    data: bytes = b""

    @staticmethod
    def of(array: Any, layout: str = "contiguous") -> Leaf:
        array = np.asarray(array)
        data = np.ascontiguousarray(array).tobytes()
        name = _OF_NUMPY[array.dtype.str]
        return Leaf(name, layout, array.shape, pure.content_root(data), data)

    def array(self) -> Any:
        """A copy."""
        return np.frombuffer(self.data, _NUMPY[self.dtype]).reshape(self.dims).copy()


def plain(value: Any) -> Tree:
    """The tree of a live `State`, or of a part of it."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(plain(item) for item in value)
    if hasattr(value, "memory_format"):
        data = bytes(value.data)
        name = _NAMES[value.dtype][0]
        return Leaf(name, value.memory_format, tuple(value.shape), pure.content_root(data), data)
    if hasattr(value, "path"):
        return pure.AliasValue(value.path)
    return value


def digest(tree: Tree) -> bytes:
    return pure.state_digest(pure.encode_tree(tree))


def file_of(tree: Tree) -> bytes:
    contents = {path: leaf.data for path, leaf in pure.tensors_of(tree).items()}
    return pure.format_checkpoint(tree, contents)


def nodes(tree: Tree, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every node with its path, containers before what they hold."""
    yield path, tree
    if isinstance(tree, dict):
        for key, item in tree.items():
            yield from nodes(item, (*path, key))
    elif isinstance(tree, list | tuple):
        for index, item in enumerate(tree):
            yield from nodes(item, (*path, index))


def at(tree: Tree, path: Path) -> Any:
    """The node there; KeyError where there is none."""
    for key in path:
        try:
            tree = tree[key]
        except (IndexError, TypeError) as error:
            raise KeyError(path) from error
    return tree


def replaced(tree: Tree, path: Path, change: Callable[[Any], Any]) -> Tree:
    """A copy in which `change` was applied to the node at `path`."""
    if not path:
        return change(tree)
    key, rest = path[0], path[1:]
    at(tree, (key,))
    new = replaced(tree[key], rest, change)
    if isinstance(tree, dict):
        return {**tree, key: new}
    items = list(tree)
    items[key] = new
    return type(tree)(items)


def text(path: Path) -> str:
    return "/".join(map(str, path))
