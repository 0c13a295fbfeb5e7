# SPDX-License-Identifier: Apache-2.0
"""The form of a data set's items: what they hold, and how extra ones are made."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from .._base._errors import UsageError
from ._content import Content, as_array, carrier_of
from ._images import Images
from ._items import Items
from ._kinds import content_of, require_useful
from ._labels import LOOKED_AT, counted, labelled, typical
from ._reading import items_of
from ._tables import Tables
from ._texts import Texts

KINDS = ("image", "text", "table", "autoencoder", "language")
# Items that are read twice: of an augmentation that flips a coin all are equal with 2^-32.
READ_TWICE = 32
# Items that are looked at; vocabularies are taken from more.
_LOOKED_AT_BYTES, _READ = 1 << 27, 50_000


@dataclass(frozen=True)
class Form:
    """Items and their inputs.

    Attributes:
        classes: 0: no labels.
        objective: "classes", "reconstruction" or "language".
        pairs: Items hold a text and the same text one word further.
        absent: Classes that no item has.
    """

    items: Items
    content: Content
    classes: int
    objective: str
    pairs: bool = False
    absent: Sequence[int] = ()

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
        _require_fixed(data)
        first = data[0]
        items = items_of(first)
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
        require_useful(content, length=length, padding=padding, axes=axes)
        if kind in ("autoencoder", "language") or classes == 0:
            objective = "language" if kind in ("text", "language") else "reconstruction"
            if items.is_labelled:
                items = items.with_labels(typical(counted(data, items, LOOKED_AT)[0]))
            return Form(items, content, 0, objective, pairs)
        if not items.is_labelled:
            raise UsageError(
                "the items have no labels",
                'pass kind="autoencoder" or kind="language" where there are none',
            )
        items, number, absent = labelled(data, items, classes)
        return Form(items, content, number, "classes", absent=absent)

    def plain(self) -> dict[str, Any]:
        """JSON values from which `Form.of` makes this again."""
        return {
            "items": asdict(self.items),
            "content": self.content.plain(),
            "classes": self.classes,
            "objective": self.objective,
            "pairs": self.pairs,
            "absent": list(self.absent),
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
            plain.get("absent", ()),
        )

    def warnings(self, samples: int, options: Mapping[str, Any]) -> list[str]:
        """What speaks against so many extra samples of this form."""
        found = []
        if self.absent:
            some = ", ".join(map(str, self.absent[:5])) + ("..." if len(self.absent) > 5 else "")
            found.append(
                f"there are classes that no training sample has: {some}; their extra samples show "
                "by it: leave classes= out to use the labels that occur"
            )
        if isinstance(self.content, Images) and options["layout"] == "jittered":
            window, pairs = self.content.equal_regions(samples, options["noise"])
            if pairs >= 1:
                levels = min(map(len, map(set, self.content.levels)), default=256)
                found.append(
                    f"images of this size with {levels} levels: by chance several extra samples "
                    f"have equal values in {window} x {window} pixels somewhere, and a search for "
                    "repeated regions finds these"
                )
        return found

    @property
    def labels(self) -> Sequence[Any]:
        """The label of each class."""
        return self.items.names or self.items.values or range(self.classes)

    def made(self, raw: np.ndarray[Any, Any], labels: Sequence[int]) -> list[Any]:
        """Items from generated values, and for each a class or the place of a typical label."""
        whole = self.content.inputs(raw)
        if self.pairs:
            return [(one[:-1], one[1:]) for one in whole]
        mask = self.mask
        return [self.items.item(one, label, mask) for one, label in zip(whole, labels, strict=True)]

    @property
    def mask(self) -> np.ndarray[Any, Any] | None:
        """Where an extra text has words; None: there are no masks."""
        return self.content.mask() if isinstance(self.content, Texts) else None


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


def _looked_at(value: Any) -> int:
    if carrier_of(value) in ("str", "list", "tuple"):
        return LOOKED_AT
    size = as_array(value).nbytes
    return max(64, min(LOOKED_AT, _LOOKED_AT_BYTES // max(1, size)))


def _some(data: Sequence[Any], items: Items, most: int) -> list[Any]:
    stride = -(-len(data) // most)
    some = [items.input_of(data[index]) for index in range(0, len(data), stride)]
    carrier = carrier_of(some[0])
    odd = next((one for one in some if carrier_of(one) != carrier), None)
    if odd is not None:
        raise UsageError(
            f"inputs are of different types: {type(some[0]).__name__}, {type(odd).__name__}",
            "make them all of one type",
        )
    return some


def _require_fixed(data: Sequence[Any]) -> None:
    places = sorted({len(data) * part // READ_TWICE for part in range(READ_TWICE)})
    # Between the two reads of an item others are read, so that a cache of the last does not hide.
    before = [data[place] for place in places]
    if not all(_same(one, data[place]) for one, place in zip(before, places, strict=True)):
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


def plain_record(document: Mapping[str, Any]) -> dict[str, Any]:
    """A record as it is read from a file."""
    record: dict[str, Any] = json.loads(json.dumps(document))
    return record
