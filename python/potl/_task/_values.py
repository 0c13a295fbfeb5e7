# SPDX-License-Identifier: Apache-2.0
"""Python values in and out of a state: typed, exact, and refused by name when they have no typed
form.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

import torch

from .. import _core
from .._base._errors import MismatchError, NotReplayable, Problem

_NAMES = """
    bool uint8 int8 int16 uint16 int32 uint32 int64 uint64 float16 bfloat16 float32 float64
    float8_e4m3fn float8_e5m2 complex64
"""
DTYPES: dict[torch.dtype, str] = {getattr(torch, name): name for name in _NAMES.split()}
DTYPE_OF: dict[str, torch.dtype] = {name: dtype for dtype, name in DTYPES.items()}

_BY_NAME = {str(dtype): dtype for dtype in DTYPES}

# A state as it is captured or read: maps by name, down to descriptions or views of tensors and to
# whatever the user's own optimizers, schedulers and modules keep. Readers ask a value for its type.
Tree = dict[str, Any]

_PLAIN = frozenset((bool, int, float, str, bytes, type(None)))


def to_tree(value: Any, tensor: Callable[[torch.Tensor, str], Any], path: str) -> Any:
    """The state value of a Python value; `tensor` makes the leaf of a tensor.

    Raises:
        NotReplayable: A value of another type, named by its path.
    """
    kind = type(value)
    if kind in _PLAIN:
        if kind is int and not -(2**63) <= value < 2**63:
            raise _refusal("an int beyond 64 bits cannot be part of", path, "keep it as a str")
        return value
    if isinstance(value, torch.Tensor):
        return tensor(value, path)
    if isinstance(value, float):  # numpy.float64
        return float(value)
    if isinstance(value, (list, deque)):
        return [to_tree(item, tensor, f"{path}/{i}") for i, item in enumerate(value)]
    if isinstance(value, tuple):
        return tuple(to_tree(item, tensor, f"{path}/{i}") for i, item in enumerate(value))
    if isinstance(value, Mapping):
        out = {}
        for key, item in value.items():
            if type(key) not in (int, str):
                raise _refusal(f"a {_name(key)} cannot be a key in", path, "use int or str keys")
            out[key] = to_tree(item, tensor, f"{path}/{key}")
        return out
    raise refusal(value, path)


def refusal(value: Any, path: str) -> NotReplayable:
    """The error for a value without a typed form."""
    return _refusal(
        f"a {_name(value)} cannot be part of",
        path,
        "keep state in tensors, int, float, bool, str, bytes, None, lists, tuples and dicts",
    )


def _refusal(what: str, path: str, remedy: str) -> NotReplayable:
    return NotReplayable(Problem(what=f"{what} a training state", where=path, remedy=remedy))


def _name(value: Any) -> str:
    kind = type(value)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return module + kind.__qualname__


class Placed(dict[str, torch.Tensor]):
    """Live tensors by their path in the state, for aliases, and which memory has been written
    already.
    """

    def __init__(self) -> None:
        super().__init__()
        self._written: set[tuple[Any, ...]] = set()

    def claim(self, live: torch.Tensor) -> bool:
        """Whether nothing has been restored to this tensor's place yet; from now on something
        has.
        """
        place = (live.device, live.data_ptr(), live.dtype, live.shape)
        if live.numel() and place in self._written:
            return False
        self._written.add(place)
        return True


def tensor_of(view: _core.TensorView) -> torch.Tensor:
    """A tensor over the state's own memory: read only, so copy it."""
    dtype = DTYPE_OF[view.dtype]
    data = view.data
    if len(data) == 0:
        return torch.empty(view.shape, dtype=dtype)
    return torch.frombuffer(data, dtype=dtype).view(view.shape)


def copy_into(live: torch.Tensor, view: _core.TensorView, path: str) -> None:
    """Copies a recorded tensor over a live one, bit for bit.

    Raises:
        MismatchError: The dtypes or shapes differ; nothing is ever cast.
    """
    if DTYPES.get(live.dtype) != view.dtype or tuple(live.shape) != tuple(view.shape):
        raise MismatchError(
            f"{path}: the state holds {view.dtype}{list(view.shape)}, "
            f"the task {DTYPES.get(live.dtype, live.dtype)}{list(live.shape)}"
        )
    live.detach().copy_(tensor_of(view))


def from_tree(value: Any, live: Any, placed: Placed, path: str) -> Any:
    """The Python value of a state value.

    Args:
        value: A value of `State.tree()`.
        live: What the task holds at the same place: its container types are kept, and its tensor,
            when dtype and shape fit, is overwritten and returned.
        placed: Tensors by their path in the state, for aliases; extended.
        path: For errors.
    """
    if isinstance(value, _core.TensorView):
        placed[value.path] = tensor = _tensor_like(value, live, placed, path)
        return tensor
    if isinstance(value, _core.Alias):
        if value.path not in placed:
            raise MismatchError(f"{path}: an alias of {value.path}, which is not restored yet")
        return placed[value.path]
    if isinstance(value, list):
        items = live if isinstance(live, (list, tuple, deque)) else ()
        made = [from_tree(v, _at(items, i), placed, f"{path}/{i}") for i, v in enumerate(value)]
        return deque(made, live.maxlen) if isinstance(live, deque) else made
    if isinstance(value, tuple):
        items = live if isinstance(live, (list, tuple)) else ()
        made = [from_tree(v, _at(items, i), placed, f"{path}/{i}") for i, v in enumerate(value)]
        return type(live)(*made) if hasattr(live, "_fields") else tuple(made)
    if isinstance(value, dict):
        known = live if isinstance(live, Mapping) else {}
        out = {k: from_tree(v, known.get(k), placed, f"{path}/{k}") for k, v in value.items()}
        if isinstance(live, dict) and type(live) is not dict:
            kept = live.copy()
            kept.clear()
            kept.update(out)
            return kept
        return out
    return value


def option_to_tree(value: Any, tensor: Callable[[torch.Tensor, str], Any], path: str) -> Any:
    """As `to_tree`, of an option of an optimizer: a dtype and a member of an enum are their names,
    because the task has them in the same place.
    """
    if isinstance(value, Enum) and value.name in type(value).__members__:  # no union of flags
        return value.name
    if isinstance(value, torch.dtype) and value in DTYPES:
        return str(value)
    return to_tree(value, tensor, path)


def option_from_tree(value: Any, live: Any, placed: Placed, path: str) -> Any:
    """As `from_tree`, of an option of an optimizer.

    Raises:
        MismatchError: There is no such dtype or member.
    """
    if not isinstance(live, (Enum, torch.dtype)):
        return from_tree(value, live, placed, path)
    known: Mapping[str, object] = type(live).__members__ if isinstance(live, Enum) else _BY_NAME
    if not isinstance(value, str) or value not in known:
        own = live.name if isinstance(live, Enum) else str(live)  # str(): 1 of an IntEnum's member
        raise MismatchError(f"{path}: the state holds {value!r}, the task {own!r}")
    return known[value]


def _tensor_like(view: _core.TensorView, live: Any, placed: Placed, path: str) -> torch.Tensor:
    fits = (
        isinstance(live, torch.Tensor)
        and DTYPES.get(live.dtype) == view.dtype
        and tuple(live.shape) == tuple(view.shape)
    )
    if fits and placed.claim(live):
        copy_into(live, view, path)
        return live  # type: ignore[no-any-return]
    made = tensor_of(view).clone()
    return made.to(live.device) if isinstance(live, torch.Tensor) else made


def _at(items: Any, index: int) -> Any:
    return items[index] if index < len(items) else None
