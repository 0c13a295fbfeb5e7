# SPDX-License-Identifier: Apache-2.0
"""A training state without its large tensors: all that the digest binds, in a few kilobytes."""

from __future__ import annotations

import ctypes
import functools
import math
import mmap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from .. import _core
from .._base._errors import UnsupportedError
from .._task._values import DTYPE_OF, Tree
from ._encoding import AliasOutline, TensorOutline, leaves, mapped, state_digest


@dataclass(frozen=True)
class StateOutline:
    """A state whose tensors are known by dtype, shape and content root alone.

    Tensors with one element keep it: counters such as Adam's decide what a step computes.

    Attributes:
        tree: The state's tree with a `TensorOutline` or `AliasOutline` for each tensor.
    """

    tree: Tree

    @classmethod
    def of(cls, state: _core.State) -> StateOutline:
        """The outline of a whole state."""
        roots = state.roots(torch.get_num_threads())
        return cls(mapped(state.tree(), functools.partial(_outlined, roots)))

    def digest(self) -> bytes:
        """The digest of the state."""
        return self._digest

    @functools.cached_property
    def _digest(self) -> bytes:
        return state_digest(self.tree)

    def tensors(self) -> dict[str, TensorOutline | AliasOutline]:
        """The tensors by path."""
        kinds = (TensorOutline, AliasOutline)
        return {path: leaf for path, leaf in leaves(self.tree) if isinstance(leaf, kinds)}

    def zeros(self) -> _core.State:
        """A state of this form: zeros where the outline has no elements."""
        places = _Places(self.tensors().values())
        return _core.State.adopt(mapped(self.tree, places.filled), places.memory)


class _Places:
    """Memory for the tensors of a state, each at an address of its own. What is not written takes
    none: the system has one page of zeros for all who only read.
    """

    def __init__(self, tensors: Iterable[TensorOutline | AliasOutline]) -> None:
        self._kept: dict[str, _core.Tensor] = {}
        whole = sum(_room(one) for one in tensors if isinstance(one, TensorOutline))
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self.memory = (ctypes.c_char * max(whole, 1)).from_buffer(
            mmap.mmap(-1, max(whole, 1), flags=flags)
        )
        self._used = 0

    def filled(self, path: str, leaf: Any) -> Any:
        if isinstance(leaf, AliasOutline):
            return self._kept[leaf.path]
        if not isinstance(leaf, TensorOutline):
            return leaf
        size = _size(leaf)
        address = ctypes.addressof(self.memory) + self._used
        self._used += _room(leaf)
        if leaf.data is not None:
            ctypes.memmove(address, leaf.data, size)
        self._kept[path] = _core.Tensor(
            leaf.dtype, leaf.shape, leaf.memory_format, address, size, self.memory
        )
        return self._kept[path]


def _size(tensor: TensorOutline) -> int:
    return math.prod(tensor.shape) * DTYPE_OF[tensor.dtype].itemsize


def _room(tensor: TensorOutline) -> int:
    """So that the next one is aligned, and lies elsewhere."""
    return max(64, -(-_size(tensor) // 64) * 64)


def _outlined(roots: dict[str, bytes], path: str, leaf: Any) -> Any:
    if isinstance(leaf, _core.Alias):
        return AliasOutline(leaf.path)
    if not isinstance(leaf, _core.TensorView):
        return leaf
    if leaf.dtype not in DTYPE_OF:
        raise UnsupportedError(f"{path}: {leaf.dtype} is a dtype that this torch does not have")
    data = bytes(leaf.data) if math.prod(leaf.shape) == 1 else None
    return TensorOutline(leaf.dtype, tuple(leaf.shape), roots[path], leaf.memory_format, data)
