# SPDX-License-Identifier: Apache-2.0
"""Where input and label lie in an item, of which types they are, and how that is found out."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._base._errors import UsageError
from ._values import Array, Floats, as_array, carried, carrier_of, dtype_of

_INPUTS = ("input", "inputs", "x", "image", "images", "pixel_values", "input_ids", "text", "data")
_LABELS = ("label", "labels", "y", "target", "targets", "class")
_MASKS = {"attention_mask": "ones", "token_type_ids": "zeros"}


@dataclass(frozen=True)
class Items:
    """How an item holds an input and a label.

    Attributes:
        container: "tuple", "list", "dict" or "bare".
        input_key, label_key: Where they are; label_key None: there is none.
        label: "int", "array", "tensor", "str", "same" (the input again), "next" (its next words) or
            "".
        dtype: Of a label that is an array or a tensor.
        names: Labels that are strings, by class.
        values: Labels that are numbers, by class; none: the number of a class is its label.
            Where there are no classes, `names` or `values` hold typical labels, in proportion to
            how often they occur.
        masks: What lies beside the input of a text: (key, "ones" where it has words or "zeros",
            kind of object, dtype) each. The key is a place in tuples.
    """

    container: str
    input_key: Any = None
    label_key: Any = None
    label: str = ""
    dtype: str = ""
    names: Sequence[str] = ()
    masks: Sequence[Sequence[Any]] = ()
    values: Sequence[int] = ()

    def input_of(self, item: Any) -> Any:
        """The input."""
        return item if self.container == "bare" else item[self.input_key]

    def class_of(self, item: Any) -> int:
        """The class of an item, from 0 on.

        Raises:
            UsageError: The data have no such label.
        """
        label = self.plain_label(item[self.label_key])
        if not self._places and self.label != "str" and label >= 0:
            return int(label)
        if label not in self._places:
            raise UsageError(f"the data have no label {label!r}", "")
        return self._places[label]

    @functools.cached_property
    def _places(self) -> dict[Any, int]:
        return {label: place for place, label in enumerate(self.names or self.values)}

    def numbers_of(self, places: Floats, scores: int) -> Floats:
        """Class numbers, or labels that are numbers, of the `places` of the largest of scores.

        Where the labels of the data are not 0, 1, ..., as in 1 to 10, rows with one score for each
        class have them in the order of the labels; longer ones have one for every number from 0 to
        the largest label, as a loss in torch needs them.

        Raises:
            UsageError: Neither reading fits so many scores.
        """
        if not self.values:
            return places
        if scores == len(self.values):
            known = np.asarray(self.values, np.float64)
            return np.where(np.isnan(places), np.nan, known[np.nan_to_num(places).astype(int)])
        largest = self.values[-1]
        if scores <= largest:
            raise UsageError(
                f"the model answers with {scores} scores, and the data have {len(self.values)} "
                f"different labels up to {largest}",
                f"return {len(self.values)} scores, in the order of the labels, or "
                f"{largest + 1}, one for each number from 0 on",
            )
        return places

    def classes_of(self, numbers: Floats) -> Floats:
        """Classes from 0 on of class numbers, or labels that are numbers; where the data have no
        such label, a number that is not a class, of which `number_of` is the label.
        """
        if not self.values:
            return numbers
        known = np.asarray(self.values, np.float64)
        places = np.searchsorted(known, numbers).clip(max=len(known) - 1)
        other = np.where(numbers >= 0, numbers + len(known), numbers)
        return np.where(known[places] == numbers, places, other)

    def number_of(self, answer: float) -> float:
        """What `classes_of` was given that is not a class."""
        return answer - len(self.values) if self.values and answer >= 0 else answer

    @property
    def is_labelled(self) -> bool:
        """Whether items have labels that are not made of their inputs."""
        return self.label in ("int", "array", "tensor", "str")

    def plain_label(self, label: Any) -> Any:
        """The label as a whole number or string.

        Raises:
            UsageError: It is of another type than that of the first item.
        """
        if isinstance(label, str) and self.label == "str":
            return str(label)
        number = label.item() if getattr(label, "ndim", None) == 0 else label
        if isinstance(label, str) or self.label == "str":
            raise UsageError(
                f"some labels are strings, and one is {number!r}",
                "make all of them strings, or class numbers",
            )
        if not isinstance(number, int) and not (isinstance(number, float) and number.is_integer()):
            raise UsageError(f"the label {number!r} is not a class", "number classes from 0 on")
        return int(number)

    @property
    def named_masks(self) -> list[tuple[str, str]]:
        """By which name a model takes each mask, and its kind."""
        return [
            (key if isinstance(key, str) else "attention_mask", kind)
            for key, kind, _, _ in self.masks
        ]

    def with_labels(self, labels: Sequence[Any]) -> Items:
        """These with `names` or `values`."""
        if self.label == "str":
            return replace(self, names=list(labels))
        return replace(self, values=list(labels))

    def label_of(self, index: int) -> Any:
        """The label of a class, or a typical one where there are no classes."""
        return (self.names or self.values or range(index + 1))[index]

    def item(self, value: Any, label: int, mask: Array | None = None) -> Any:
        """An item of an input and a class; `mask` says where a text has words."""
        if self.container == "bare":
            return value
        parts: dict[Any, Any] = {self.input_key: value}
        if self.label_key is not None:
            parts[self.label_key] = self._label(value, label)
        for key, kind, carrier, dtype in self.masks:
            ones = np.ones(len(value), np.int64) if mask is None else mask
            parts[key] = carried(ones if kind == "ones" else ones * 0, carrier, dtype)
        if self.container == "dict":
            return parts
        ordered = [parts[index] for index in sorted(parts)]
        return tuple(ordered) if self.container == "tuple" else ordered

    def _label(self, value: Any, label: int) -> Any:
        if self.label == "same":
            return value
        own = self.label_of(label)
        if self.label == "array":
            return np.asarray(own, self.dtype)[()]
        if self.label == "tensor":
            import torch

            return torch.tensor(own, dtype=getattr(torch, self.dtype))
        return own


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
