# SPDX-License-Identifier: Apache-2.0
"""Finds out where input and label lie in an item, and of which types they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._base._errors import UsageError
from ._content import as_array, carrier_of, dtype_of
from ._items import Items

_INPUTS = ("input", "inputs", "x", "image", "images", "pixel_values", "input_ids", "text", "data")
_LABELS = ("label", "labels", "y", "target", "targets", "class")
_MASKS = {"attention_mask": "ones", "token_type_ids": "zeros"}


def items_of(item: Any) -> Items:
    """How this item, and all like it, hold an input and a label."""
    if isinstance(item, dict):
        inputs = [key for key in _INPUTS if key in item]
        labels = [key for key in _LABELS if key in item]
        masks = [_mask(key, item[key]) for key in _MASKS if key in item]
        unknown = set(item) - set(inputs[:1]) - set(labels[:1]) - {one[0] for one in masks}
        if not inputs or unknown:
            raise UsageError(
                f"items have the keys {', '.join(map(str, item))}",
                f"use one of {', '.join(_INPUTS)} and one of {', '.join(_LABELS)}",
            )
        label = labels[0] if labels else None
        kind, dtype = ("", "") if label is None else _label(item[inputs[0]], item[label])
        return Items("dict", inputs[0], label, kind, dtype, masks=masks)
    if not isinstance(item, (list, tuple)) or _is_row(item):
        return Items("bare")
    container = "list" if isinstance(item, list) else "tuple"
    if len(item) == 1:
        return Items(container, 0)
    if len(item) == 2:
        return Items(container, 0, 1, *_label(item[0], item[1]))
    if len(item) == 3 and _is_mask(item[0], item[1]):
        mask = [1, "ones", carrier_of(item[1]), dtype_of(item[1])]
        return Items(container, 0, 2, *_label(item[0], item[2]), masks=[mask])
    raise UsageError(
        f"an item has {len(item)} parts: {', '.join(type(one).__name__ for one in item[:5])}",
        "give pairs of an input and a label, or dictionaries with such keys as input_ids, "
        "attention_mask and label",
    )


def _is_row(item: Sequence[Any]) -> bool:
    """Whether these are an input's own numbers, or rows of them, and no parts of an item."""
    if len(item) < 3:
        return all(isinstance(one, (int, float)) for one in item)
    if all(isinstance(one, (list, tuple)) for one in item):
        return True
    return all(
        isinstance(one, (int, float, np.number)) or getattr(one, "ndim", None) == 0 for one in item
    )


def _is_mask(ids: Any, mask: Any) -> bool:
    """Whether a part says where a text has words: ones, with zeros at one end."""
    if not all(isinstance(one, (list, tuple)) or hasattr(one, "ndim") for one in (ids, mask)):
        return False
    values = as_array(mask)
    is_like = values.ndim == 1 and values.shape == as_array(ids).shape
    if not is_like or values.dtype.kind not in "iubf" or not set(values.tolist()) <= {0, 1}:
        return False
    steps = np.diff(values.astype(np.int8))
    return bool((steps >= 0).all() or (steps <= 0).all())


def _label(value: Any, label: Any) -> tuple[str, str]:
    if label is None or isinstance(label, (bool, float)):
        raise UsageError(f"a label is {label!r}", "give class numbers that are integers")
    if isinstance(label, (int, str)):
        return ("int" if isinstance(label, int) else "str"), ""
    kind = carrier_of(label)
    values = as_array(label)
    dtype = str(getattr(label, "dtype", "")).removeprefix("torch.")
    if values.ndim == 0 and values.dtype.kind in "iu":
        return kind, dtype
    if kind == carrier_of(value):
        given = as_array(value)
        if given.shape == values.shape and (given == values).all():
            return "same", ""
        if given.ndim == 1 == values.ndim and (given[1:] == values[:-1]).all():
            return "next", ""
    remedy = "give class numbers, or the input again (autoencoder), or its next words (language)"
    if values.size == 1 and values.ndim > 0:
        remedy = "give class numbers without an axis of their own, as of labels.reshape(-1)"
    elif values.ndim == 1 and set(values.tolist()) == {0, 1} and values.sum() == 1:
        remedy = "give class numbers, as of labels.argmax(1)"
    elif values.ndim == 0 and values.dtype.kind in "bf":
        remedy = "give class numbers that are integers"
    raise UsageError(
        f"a label of type {type(label).__name__} and shape {list(values.shape)} is not a class",
        remedy,
    )


def _mask(key: str, value: Any) -> tuple[str, str, str, str]:
    values = as_array(value)
    if values.dtype.kind not in "iubf" or not set(np.unique(values)) <= {0, 1}:
        raise UsageError(f"{key} holds more than zeros and ones", "remove it before mixing")
    if _MASKS[key] == "zeros" and values.any():
        raise UsageError(f"texts have parts that differ by {key}", "remove it before mixing")
    return key, _MASKS[key], carrier_of(value), dtype_of(value)
