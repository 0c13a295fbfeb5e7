# SPDX-License-Identifier: Apache-2.0
"""Secret samples in the form of a data set's own inputs: images, texts, rows of tables.

The generator (ExtraSamples in C++) draws bytes, indices of words and places in columns. Here they
become what the training data hold: the same container, dtype, shape, range and vocabulary.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from .._base._errors import UsageError


class Content(Protocol):
    """How inputs look, and how they are made from generated values."""

    def description(self) -> dict[str, Any]:
        """As ExtraSamples takes it."""

    def empty(self, count: int) -> np.ndarray[Any, Any]:
        """An array that ExtraSamples.fill fills."""

    def inputs(self, raw: np.ndarray[Any, Any]) -> Any:
        """The inputs of a filled array: one array or tensor over all of them, or a list."""

    def plain(self) -> dict[str, Any]:
        """JSON values from which `content_of` of `_kinds` makes this again."""


def carrier_of(value: Any) -> str:
    """What kind of object an input is: "tensor", "array", "list", "tuple", "str" or "pil".

    Raises:
        UsageError: None of these.
    """
    kind = type(value)
    if isinstance(value, str):
        return "str"
    if isinstance(value, (np.ndarray, np.generic)):
        return "array"
    if kind.__module__.startswith("torch") and hasattr(value, "detach"):
        return "tensor"
    if hasattr(value, "getbands") and hasattr(value, "convert"):
        return "pil"
    if isinstance(value, (list, tuple)):
        return "list" if isinstance(value, list) else "tuple"
    raise UsageError(
        f"an input of type {kind.__name__} cannot be imitated by extra samples",
        "use tensors, NumPy arrays, Pillow images, lists of token ids or strings",
    )


def as_array(value: Any) -> np.ndarray[Any, Any]:
    """The values of an input."""
    if carrier_of(value) == "tensor":
        tensor = value.detach().cpu()
        return np.asarray(tensor.float() if "bfloat16" in str(tensor.dtype) else tensor)
    return np.asarray(value)


def dtype_of(value: Any) -> str:
    """ "float32", "int64", ..."""
    kind = carrier_of(value)
    return str(value.dtype).removeprefix("torch.") if kind in ("tensor", "array") else ""


def carried(values: np.ndarray[Any, Any], carrier: str, dtype: str) -> Any:
    """Values in the container of the data: one array or tensor for all, or a list of lists."""
    if carrier == "tensor":
        import torch

        return torch.from_numpy(np.ascontiguousarray(values)).to(getattr(torch, dtype))
    if carrier == "array":
        return np.ascontiguousarray(values, dtype)
    rows = values.tolist()
    return [tuple(row) for row in rows] if carrier == "tuple" else rows
