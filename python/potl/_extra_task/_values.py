# SPDX-License-Identifier: Apache-2.0
"""Values of inputs and labels, whatever holds them: tensors, arrays, Pillow images, lists, text."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._base._errors import UsageError

Array = np.ndarray[Any, Any]
Floats = np.ndarray[Any, np.dtype[np.float64]]
Ints = np.ndarray[Any, np.dtype[np.int64]]


def is_tensor(value: Any) -> bool:
    """Whether this is a torch tensor, without importing torch."""
    return type(value).__module__.startswith("torch") and hasattr(value, "detach")


def carrier_of(value: Any) -> str:
    """What kind of object an input is: "tensor", "array", "list", "tuple", "str" or "pil".

    Raises:
        UsageError: None of these.
    """
    if isinstance(value, str):
        return "str"
    if isinstance(value, (np.ndarray, np.generic)):
        return "array"
    if is_tensor(value):
        return "tensor"
    if hasattr(value, "getbands") and hasattr(value, "convert"):
        return "pil"
    if isinstance(value, (list, tuple)):
        return "list" if isinstance(value, list) else "tuple"
    raise UsageError(
        f"an input of type {type(value).__name__} cannot be imitated by extra samples",
        "use tensors, NumPy arrays, Pillow images, lists of token ids or strings",
    )


def as_array(value: Any) -> Array:
    """The values of an input."""
    if carrier_of(value) == "tensor":
        tensor = value.detach().cpu()
        return np.asarray(tensor.float() if "bfloat16" in str(tensor.dtype) else tensor)
    return np.asarray(value)


def dtype_of(value: Any) -> str:
    """ "float32", "int64", ...; of a list the type of its numbers, or one for each of its columns,
    as in "int,float"; "" of an empty list and of what holds no numbers.
    """
    kind = carrier_of(value)
    if kind in ("tensor", "array"):
        return str(value.dtype).removeprefix("torch.")
    return _types_in(value) if kind in ("list", "tuple") else ""


def _types_in(values: Any) -> str:
    kinds = list(set(map(type, values)))
    if len(kinds) == 1 and not issubclass(kinds[0], (list, tuple)):
        return _name_of(kinds[0])
    names = [
        _types_in(one) if isinstance(one, (list, tuple)) else _name_of(type(one)) for one in values
    ]
    if len(set(names)) == 1:
        return names[0]
    # Columns of columns, which are no numbers of a type.
    nested = next((kind for kind in kinds if issubclass(kind, (list, tuple))), None)
    return ",".join(names) if nested is None else nested.__name__


def _name_of(kind: type) -> str:
    return "bool_" if issubclass(kind, np.bool_) else kind.__name__  # NumPy has renamed it


def type_named(name: str) -> Any:
    """The type of a number as `dtype_of` names it; None: it is of no such type."""
    found = {"int": int, "float": float, "bool": bool}.get(name) or np.sctypeDict.get(name)
    is_number = isinstance(found, type) and issubclass(found, (int, float, np.generic))
    return found if is_number else None


def carried(values: Array, carrier: str, dtype: str) -> Any:
    """Values in the container of the data: one array or tensor for all, or a list of lists, with
    numbers of the types of the data's.
    """
    if carrier == "tensor":
        import torch

        return torch.from_numpy(np.ascontiguousarray(values)).to(getattr(torch, dtype))
    if carrier == "array":
        return np.ascontiguousarray(values, dtype)
    rows = values.tolist()
    if dtype:
        types = [type_named(one) for one in dtype.split(",")]
        rows = [_of_types(row, types) for row in rows]
    return [tuple(row) for row in rows] if carrier == "tuple" else rows


def _of_types(values: list[Any], types: list[Any]) -> list[Any]:
    return [
        _of_types(one, types) if isinstance(one, list) else types[place % len(types)](one)
        for place, one in enumerate(values)
    ]


def same(one: Any, other: Any) -> bool:
    """Whether two reads of one item gave the same values."""
    if isinstance(one, dict):
        return all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, (str, int, float)):
        return bool(one == other)
    first, second = as_array(one), as_array(other)
    return np.array_equal(first, second, equal_nan=first.dtype.kind == "f" == second.dtype.kind)


def in_own_memory(value: Any) -> Any:
    """The value in its own memory, one way for all: a pickled view would carry all of its base, the
    order of its axes, or the name of its file, and show that an item is real or extra.
    """
    if isinstance(value, tuple):
        parts = [in_own_memory(one) for one in value]
        return tuple(parts) if type(value) is tuple else type(value)(*parts)
    if isinstance(value, list):
        plain = all(isinstance(one, (int, float, str)) for one in value)
        return list(value) if plain else [in_own_memory(one) for one in value]
    if isinstance(value, dict):
        return {key: in_own_memory(one) for key, one in value.items()}
    if isinstance(value, np.ndarray):
        return value.copy()
    if is_tensor(value):
        import torch

        return value.detach().clone(memory_format=torch.contiguous_format)
    if hasattr(value, "getbands") and hasattr(value, "tobytes"):
        from PIL import Image

        plain = value.mode in ("L", "RGB", "RGBA")
        return Image.frombytes(value.mode, value.size, value.tobytes()) if plain else value.copy()
    if isinstance(value, str):  # NumPy's strings are some, too, and members of an enum
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    return value
