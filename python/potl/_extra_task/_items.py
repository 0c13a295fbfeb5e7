# SPDX-License-Identifier: Apache-2.0
"""Where input and label lie in an item, and of which types they are."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._base._errors import UsageError
from ._content import carried

Floats = np.ndarray[Any, np.dtype[np.float64]]


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

    def item(self, value: Any, label: int, mask: np.ndarray[Any, Any] | None = None) -> Any:
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
