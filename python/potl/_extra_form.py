# SPDX-License-Identifier: Apache-2.0
"""The form of a data set's items: where input and label lie in them, and of which types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from ._errors import UsageError
from ._extra_content import Content, Images, Tables, Texts, as_array, carrier_of, content_of

KINDS = ("image", "text", "table", "autoencoder", "language")
# Items that are looked at; vocabularies are taken from more.
_LOOKED_AT, _LOOKED_AT_BYTES, _READ = 2048, 1 << 27, 50_000
_INPUTS = ("input", "inputs", "x", "image", "images", "pixel_values", "input_ids", "text", "data")
_LABELS = ("label", "labels", "y", "target", "targets", "class")


@dataclass(frozen=True)
class Items:
    """How an item holds an input and a label.

    Attributes:
        container: "tuple", "list", "dict" or "bare".
        input_key, label_key: Where they are; label_key None: there is none.
        label: "int", "array", "tensor", "str", "same" (the input again), "next" (its next words) or
            "".
        dtype: Of a label that is an array or a tensor.
        names: Labels that are strings, by class; class numbers otherwise are themselves.
        masks: Keys of attention masks.
    """

    container: str
    input_key: Any = None
    label_key: Any = None
    label: str = ""
    dtype: str = ""
    names: Sequence[str] = ()
    masks: Sequence[str] = ()

    def input_of(self, item: Any) -> Any:
        """The input."""
        return item if self.container == "bare" else item[self.input_key]

    def class_of(self, item: Any) -> int:
        """The class.

        Raises:
            UsageError: The label is no class.
        """
        label = item[self.label_key]
        if self.label == "str":
            return self.names.index(label)
        number = label.item() if hasattr(label, "item") else label
        if int(number) != number or number < 0:
            raise UsageError(f"the label {number!r} is no class", "number classes from 0 on")
        return int(number)

    def item(self, value: Any, label: int) -> Any:
        """An item of an input and a class."""
        if self.container == "bare":
            return value
        parts: dict[Any, Any] = {self.input_key: value}
        if self.label_key is not None:
            parts[self.label_key] = self._label(value, label)
        for mask in self.masks:
            parts[mask] = _mask(value)
        if self.container == "dict":
            return parts
        ordered = [parts[index] for index in sorted(parts)]
        return tuple(ordered) if self.container == "tuple" else ordered

    def _label(self, value: Any, label: int) -> Any:
        if self.label == "same":
            return value
        if self.label == "str":
            return self.names[label]
        if self.label == "array":
            return np.asarray(label, self.dtype)[()]
        if self.label == "tensor":
            import torch

            return torch.tensor(label, dtype=getattr(torch, self.dtype))
        return label


@dataclass(frozen=True)
class Form:
    """Items and their inputs.

    Attributes:
        classes: 0: no labels.
        objective: "classes", "reconstruction" or "language".
        pairs: Items hold a text and the same text one word further.
    """

    items: Items
    content: Content
    classes: int
    objective: str
    pairs: bool = False

    @staticmethod
    def learn(
        data: Sequence[Any],
        *,
        classes: int | None = None,
        kind: str | None = None,
        length: int | None = None,
        padding: int | None = None,
        axes: str | None = None,
    ) -> Form:
        """The form of the items of a data set.

        Raises:
            UsageError: They have no form that extra samples can take; the message names a remedy.
        """
        if kind is not None and kind not in KINDS:
            raise UsageError(f"there is no kind {kind!r}", f"use one of {', '.join(KINDS)}")
        if len(data) == 0:
            raise UsageError("the training data are empty", "")
        first = data[0]
        _require_fixed(data, first)
        items = _items(first)
        inputs = _some(data, items, _looked_at(items.input_of(first)))
        kind = kind or _kind(first, items, inputs[0], classes)
        pairs = items.label == "next"
        content: Content
        if kind in ("text", "language"):
            read = _some(data, items, _READ)
            content = Texts.learn(read, length=length, padding=padding)
            if pairs:
                plain = content.plain() | {"length": content.length + 1}
                content = content_of(plain)
        elif kind == "table" or (kind == "autoencoder" and _is_row(inputs[0])):
            content = Tables.learn(inputs)
        else:
            content = Images.learn(inputs, axes)
        if kind in ("autoencoder", "language") or classes == 0:
            objective = "language" if kind in ("text", "language") else "reconstruction"
            return Form(items, content, 0, objective, pairs)
        if items.label not in ("int", "array", "tensor", "str"):
            raise UsageError(
                "the items have no labels",
                'pass kind="autoencoder" or kind="language" where there are none',
            )
        items, counted = _labelled(data, items, classes)
        return Form(items, content, counted, "classes")

    def plain(self) -> dict[str, Any]:
        """JSON values from which `Form.of` makes this again."""
        return {
            "items": asdict(self.items),
            "content": self.content.plain(),
            "classes": self.classes,
            "objective": self.objective,
            "pairs": self.pairs,
        }

    @staticmethod
    def of(plain: dict[str, Any]) -> Form:
        """What `plain` gave."""
        return Form(
            Items(**plain["items"]),
            content_of(plain["content"]),
            int(plain["classes"]),
            str(plain["objective"]),
            bool(plain["pairs"]),
        )

    def made(self, raw: np.ndarray[Any, Any], labels: Sequence[int]) -> list[Any]:
        """Items from generated values."""
        whole = self.content.inputs(raw)
        if self.pairs:
            return [(one[:-1], one[1:]) for one in whole]
        return [self.items.item(one, label) for one, label in zip(whole, labels, strict=True)]


@dataclass
class _Labels:
    seen: set[int] = field(default_factory=set)
    names: set[str] = field(default_factory=set)


def _labelled(data: Sequence[Any], items: Items, classes: int | None) -> tuple[Items, int]:
    found = _Labels()
    if items.label == "str":
        known = getattr(data, "label_names", None)  # reading every image would take long
        found.names = set(known or (data[index][items.label_key] for index in range(len(data))))
        items = Items(**{**asdict(items), "names": sorted(found.names)})
        counted = len(found.names)
        if classes not in (None, counted):
            raise UsageError(f"the data have {counted} different labels, not {classes}", "")
        return items, counted
    stride = max(1, len(data) // (_READ if classes is None else _LOOKED_AT))
    for index in range(0, len(data), stride):
        found.seen.add(items.class_of(data[index]))
    counted = max(found.seen) + 1
    if classes is None:
        return items, counted
    if counted > classes:
        raise UsageError(
            f"the data have a label {counted - 1}, but there are {classes} classes",
            "pass the right number of classes",
        )
    return items, classes


def _items(item: Any) -> Items:
    if isinstance(item, dict):
        inputs = [key for key in _INPUTS if key in item]
        labels = [key for key in _LABELS if key in item]
        masks = [key for key in item if key == "attention_mask"]
        unknown = set(item) - set(inputs[:1]) - set(labels[:1]) - set(masks)
        if not inputs or unknown:
            raise UsageError(
                f"items have the keys {', '.join(map(str, item))}",
                f"use one of {', '.join(_INPUTS)} and one of {', '.join(_LABELS)}",
            )
        label = labels[0] if labels else None
        kind, dtype = ("", "") if label is None else _label(item[inputs[0]], item[label])
        return Items("dict", inputs[0], label, kind, dtype, masks=masks)
    is_row = isinstance(item, (list, tuple)) and (
        len(item) > 2 or all(isinstance(one, (int, float)) for one in item)
    )
    if is_row or not isinstance(item, (list, tuple)):
        return Items("bare")
    container = "list" if isinstance(item, list) else "tuple"
    if len(item) == 1:
        return Items(container, 0)
    return Items(container, 0, 1, *_label(item[0], item[1]))


def _label(value: Any, label: Any) -> tuple[str, str]:
    if isinstance(label, bool) or label is None:
        raise UsageError(f"a label is {label!r}", "number classes from 0 on")
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
    raise UsageError(
        f"a label of type {type(label).__name__} and shape {list(values.shape)} is no class",
        "give class numbers, or the input again (autoencoder), or its next words (language)",
    )


def _kind(item: Any, items: Items, value: Any, classes: int | None) -> str:
    carrier = carrier_of(value)
    if items.label == "next":
        return "language"
    if carrier == "str":
        kind = "text"
    elif carrier == "pil":
        kind = "image"
    else:
        values = as_array(value)
        integers = values.dtype.kind in "iu" and values.dtype != np.uint8
        kind = "image" if values.ndim > 1 else "text" if integers else "table"
    if not items.label or items.label == "same" or classes == 0:
        return "language" if kind == "text" else "autoencoder"
    return kind


def _is_row(value: Any) -> bool:
    return carrier_of(value) != "pil" and as_array(value).ndim == 1


def _mask(value: Any) -> Any:
    values = as_array(value)
    kind = carrier_of(value)
    if kind == "tensor":
        import torch

        return torch.ones(values.shape, dtype=torch.int64)
    return np.ones(values.shape, np.int64) if kind == "array" else [1] * len(value)


def _looked_at(value: Any) -> int:
    if carrier_of(value) in ("str", "list", "tuple"):
        return _LOOKED_AT
    size = as_array(value).nbytes
    return max(64, min(_LOOKED_AT, _LOOKED_AT_BYTES // max(1, size)))


def _some(data: Sequence[Any], items: Items, most: int) -> list[Any]:
    stride = -(-len(data) // most)
    return [items.input_of(data[index]) for index in range(0, len(data), stride)]


def _require_fixed(data: Sequence[Any], first: Any) -> None:
    if not _same(first, data[0]):
        raise UsageError(
            "reading an item twice gives different values",
            "mix the data without augmentation, and augment the mixed data",
        )


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return all(_same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, (str, int, float)):
        return bool(one == other)
    first, second = as_array(one), as_array(other)
    return np.array_equal(first, second, equal_nan=first.dtype.kind == "f" == second.dtype.kind)
