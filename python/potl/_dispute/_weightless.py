# SPDX-License-Identifier: Apache-2.0
"""Builds a task whose weights take no memory, for who wants its program and not its numbers.

A large parameter is given memory that nobody has written as soon as a module registers it: the
system has one page of zeros for all who only read. What would be written there, or be computed from
it and is as large, is left out. So the most that is in memory at once is one parameter.
"""

from __future__ import annotations

import contextlib
import mmap
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

# What is smaller is kept as it is made: it may decide something.
SMALLEST_BYTES = 1 << 16
# Who is first puts back what it found.
_ALONE = threading.RLock()


@contextlib.contextmanager
def weightless() -> Iterator[None]:
    """A block in which modules are made, and states restored, without their large tensors."""
    weights, here = _Weights(), threading.get_ident()

    def registered(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        registers(module, name, parameter)
        if parameter is not None and threading.get_ident() == here:
            weights.take(parameter)

    with _ALONE:
        registers = nn.Module.register_parameter
        nn.Module.register_parameter = registered  # type: ignore[assignment, method-assign]
        try:
            with weights:
                yield
        finally:
            nn.Module.register_parameter = registers  # type: ignore[method-assign]


class _Weights(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Knows the memory that has no elements, and keeps operators from writing there."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._empty: dict[int, torch.UntypedStorage] = {}

    def take(self, parameter: nn.Parameter) -> None:
        """Takes a parameter's elements away, if they are many and all that is in their memory."""
        if nn.parameter.is_lazy(parameter) or parameter.device.type != "cpu":
            return
        if parameter.layout != torch.strided or self._is_empty(parameter):
            return
        storage = parameter.untyped_storage()
        if parameter.nbytes >= SMALLEST_BYTES and storage.nbytes() == parameter.nbytes:
            with _disable_current_modes():
                parameter.data = self._made(parameter.shape, parameter.stride(), parameter.dtype)

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if not any(map(self._is_empty, tree_leaves((args, kwargs)))):
            return func(*args, **kwargs)
        given = dict(zip((one.name for one in func._schema.arguments), args, strict=False))
        given.update(kwargs)
        written = [
            given[one.name]
            for one in func._schema.arguments
            if one.name in given and one.alias_info is not None and one.alias_info.is_write
        ]
        if written:
            if not all(map(self._is_empty, tree_leaves(written))):
                return func(*args, **kwargs)
            count = len(func._schema.returns)
            return None if count == 0 else written[0] if count == 1 else tuple(written)
        if any(one.alias_info is not None for one in func._schema.returns):
            return func(*args, **kwargs)  # a view, which has the same memory
        return self._computed(func, args, kwargs)

    def _computed(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Any) -> Any:
        """Results without elements, where they are large and in the same memory."""
        if torch.device(kwargs.get("device") or "cpu").type != "cpu":
            return func(*args, **kwargs)
        try:
            forms = func(*tree_map(_form, args), **{**tree_map(_form, kwargs), **_on_meta(kwargs)})
        except Exception:  # of an operator whose result depends on its elements
            return func(*args, **kwargs)
        results = [one for one in tree_leaves(forms) if isinstance(one, torch.Tensor)]
        if not results or any(one.nbytes < SMALLEST_BYTES for one in results):
            return func(*args, **kwargs)
        return tree_map(
            lambda one: (
                self._made(one.shape, one.stride(), one.dtype)
                if isinstance(one, torch.Tensor)
                else one
            ),
            forms,
        )

    def _made(
        self, shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype
    ) -> torch.Tensor:
        extent = 1 + sum((n - 1) * by for n, by in zip(shape, stride, strict=True))
        memory = mmap.mmap(-1, extent * dtype.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        flat = torch.frombuffer(memory, dtype=dtype)
        storage = flat.untyped_storage()
        self._empty[storage._cdata] = storage  # whose address is no other's while it is here
        return flat.as_strided(shape, stride)

    def _is_empty(self, value: Any) -> bool:
        return isinstance(value, torch.Tensor) and (
            value.layout == torch.strided and value.untyped_storage()._cdata in self._empty
        )


def _form(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")


def _on_meta(kwargs: Mapping[str, object]) -> dict[str, torch.device]:
    return {"device": torch.device("meta")} if kwargs.get("device") is not None else {}
