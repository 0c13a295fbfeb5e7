# SPDX-License-Identifier: Apache-2.0
"""The form of a data set's items: what they hold, and how extra ones are made.

The generator (`ExtraSamples` in C++) draws bytes, indices of words and places in columns. A content
makes of these what the training data hold: the same container, dtype, shape, range and vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol, cast

import numpy as np

from .. import _core
from .._base._errors import UsageError
from ._data import View, is_fixed
from ._images import Images
from ._items import Items, items_of
from ._key import FormDocument, ItemsDocument
from ._tables import Tables
from ._texts import Texts
from ._values import Array, as_array, carrier_of, dtype_of, type_named

KINDS = ("image", "text", "table", "autoencoder", "language")
# Items that are looked at, no more of large ones than so many bytes; vocabularies are taken from
# more, and labels of data sets that are read one by one, unless the classes are given.
_LOOKED_AT, _LOOKED_AT_BYTES, _READ, _COUNTED = 2048, 1 << 27, 50_000, 100_000
# Labels that are kept where they are not classes, as often as they occur.
_KEPT = 1024


class Content(Protocol):
    """How inputs look, and how they are made from generated values."""

    kind: ClassVar[str]

    @property
    def carrier(self) -> str:
        """As `carrier_of` names what holds an input."""

    def hints(self) -> dict[str, object]:
        """Those of `Hints` that say something of these inputs, and what they are."""

    def description(self) -> _core.ExtraContent:
        """As ExtraSamples takes it."""

    def empty(self, count: int) -> Array:
        """An array that ExtraSamples fills."""

    def inputs(self, raw: Array) -> Any:
        """The inputs of a filled array: one array or tensor over all of them, or a list."""

    def plain(self) -> dict[str, object]:
        """JSON values from which `content_of` makes this again."""


_CONTENTS: dict[str, Callable[..., Content]] = {one.kind: one for one in (Images, Texts, Tables)}


def content_of(plain: Mapping[str, object]) -> Content:
    """The content that `plain` describes."""
    fields = dict(plain)
    return _CONTENTS[str(fields.pop("kind"))](**fields)


@dataclass(frozen=True, kw_only=True)
class Hints:
    """What the data may not say of themselves, as `ExtraTask` takes it; None: found out."""

    classes: int | None = None
    kind: str | None = None
    length: int | None = None
    padding: int | None = None
    axes: str | None = None

    def given(self) -> dict[str, object]:
        """Those that are not None."""
        return {name: value for name, value in asdict(self).items() if value is not None}


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
    def learn(data: View, hints: Hints) -> Form:
        """The form of the items of a data set.

        Raises:
            UsageError: They have no form that extra samples can take; the message names a remedy.
        """
        kind, classes = hints.kind, hints.classes
        if kind is not None and kind not in KINDS:
            raise UsageError(f"there is no kind {kind!r}", f"use one of {', '.join(KINDS)}")
        if len(data) == 0:
            raise UsageError("the training data are empty", "")
        if not is_fixed(data):
            raise UsageError(
                "reading an item twice gives different values",
                "mix the data without augmentation, and augment the mixed data",
            )
        first = data[0]
        items = items_of(first)
        inputs = _some(data, items, _looked_at(items.input_of(first)))
        kind = kind or _kind(items, inputs[0], classes)
        pairs = items.label == "next"
        content: Content
        if kind in ("text", "language"):
            read = _some(data, items, _READ)
            content = Texts.learn(read, length=hints.length, padding=hints.padding)
            if pairs:
                content = content_of({**content.plain(), "length": content.length + 1})
        elif kind == "table" or (kind == "autoencoder" and _is_row(inputs[0])):
            content = Tables.learn(inputs)
        else:
            content = Images.learn(inputs, hints.axes)
        for name in hints.given():
            if name not in ("classes", "kind", *content.hints()):
                raise UsageError(
                    f"{name}= says nothing of these inputs: {content.kind}, held as "
                    f"{content.carrier}",
                    "leave it out, or pass kind= where they were taken for something else",
                )
        if kind in ("autoencoder", "language") or classes == 0:
            objective = "language" if kind in ("text", "language") else "reconstruction"
            if items.is_labelled:
                items = items.with_labels(_typical(data.labels(items, _LOOKED_AT)[0]))
            return Form(items, content, 0, objective, pairs)
        if not items.is_labelled:
            raise UsageError(
                "the items have no labels",
                'pass kind="autoencoder" or kind="language" where there are none',
            )
        items, number, absent = _labelled(data, items, classes)
        return Form(items, content, number, "classes", absent=absent)

    def plain(self) -> FormDocument:
        """JSON values from which `Form.of` makes this again."""
        return {
            "items": cast(ItemsDocument, asdict(self.items)),
            "content": self.content.plain(),
            "classes": self.classes,
            "objective": self.objective,
            "pairs": self.pairs,
            "absent": list(self.absent),
        }

    @staticmethod
    def of(plain: FormDocument) -> Form:
        """What `plain` gave."""
        return Form(
            Items(**plain["items"]),
            content_of(plain["content"]),
            int(plain["classes"]),
            str(plain["objective"]),
            bool(plain["pairs"]),
            plain.get("absent", ()),
        )

    def hints(self) -> dict[str, object]:
        """What each of `Hints` is here; without those that say nothing."""
        unlabelled = {"reconstruction": "autoencoder", "language": "language"}
        own = self.content.hints()
        if isinstance(self.content, Texts):
            # The text of a pair holds the target of its last word too.
            own["length"] = self.content.length - self.pairs
        return {
            "classes": self.classes,
            "kind": unlabelled.get(self.objective, self.content.kind),
            **own,
        }

    def warnings(self, samples: int, jittered: bool, noise: int) -> list[str]:
        """What speaks against so many extra samples of this form."""
        found = []
        if self.absent:
            some = ", ".join(map(str, self.absent[:5])) + ("..." if len(self.absent) > 5 else "")
            found.append(
                f"there are classes that no training sample has: {some}; their extra samples show "
                "by it: leave classes= out to use the labels that occur"
            )
        if isinstance(self.content, Images) and jittered:
            window, pairs = self.content.equal_regions(samples, noise)
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

    def made(self, raw: Array, labels: Sequence[int]) -> list[Any]:
        """Items from generated values, and for each a class or the place of a typical label."""
        whole = self.content.inputs(raw)
        if self.pairs:
            return [(one[:-1], one[1:]) for one in whole]
        mask = self.mask
        return [self.items.item(one, label, mask) for one, label in zip(whole, labels, strict=True)]

    @property
    def mask(self) -> Array | None:
        """Where an extra text has words; None: there are no masks."""
        return self.content.mask() if isinstance(self.content, Texts) else None


def _kind(items: Items, value: Any, classes: int | None) -> str:
    carrier = carrier_of(value)
    if items.label == "next":
        return "language"
    if carrier == "str":
        kind = "text"
    elif carrier == "pil":
        kind = "image"
    else:
        values = as_array(value)
        integers = values.dtype.kind in "iu" and values.dtype != "uint8"
        kind = "image" if values.ndim > 1 else "text" if integers else "table"
    if not items.label or items.label == "same" or classes == 0:
        return "language" if kind == "text" else "autoencoder"
    return kind


def _is_row(value: Any) -> bool:
    return carrier_of(value) != "pil" and as_array(value).ndim == 1


def _looked_at(value: Any) -> int:
    if carrier_of(value) in ("str", "list", "tuple"):
        return _LOOKED_AT
    size = as_array(value).nbytes
    return max(64, min(_LOOKED_AT, _LOOKED_AT_BYTES // max(1, size)))


def _some(data: View, items: Items, most: int) -> list[Any]:
    stride = -(-len(data) // most)
    some = [items.input_of(data[index]) for index in range(0, len(data), stride)]
    carrier = carrier_of(some[0])
    odd = next((one for one in some if carrier_of(one) != carrier), None)
    if odd is not None:
        raise UsageError(
            f"inputs are of different types: {type(some[0]).__name__}, {type(odd).__name__}",
            "make them all of one type",
        )
    if carrier in ("list", "tuple"):
        _require_one_form({dtype_of(one) for one in some if len(one)})
    return some


def _require_one_form(types: Collection[str]) -> None:
    """Refuses lists of numbers whose types would tell extra inputs from real ones.

    Raises:
        UsageError: They are not the same in all, or no types of numbers.
    """
    known = sorted(types)
    if len(known) > 1:
        raise UsageError(
            f"the numbers of some inputs are of types {known[0]:.60}, of others {known[1]:.60}",
            "write all numbers of a column alike, as in 5.0 and 0.5, or pass arrays",
        )
    odd = [one for one in ",".join(known).split(",") if one and type_named(one) is None]
    if odd and "str" not in odd:
        raise UsageError(f"inputs are lists of a {odd[0]}", "pass arrays, or lists of numbers")


def _labelled(data: View, items: Items, classes: int | None) -> tuple[Items, int, Sequence[int]]:
    """Items that know the labels of classes, how many classes there are, and which do not occur."""
    if items.label == "str":
        # Reading every image would take long where their names are known.
        names = data.label_names or data.labels(items, len(data))[0]
        items = items.with_labels(sorted(map(str, names)))
        if classes not in (None, len(names)):
            raise UsageError(f"the data have {len(names)} different labels, not {classes}", "")
        return items, len(names), ()
    found, whole = data.labels(items, _COUNTED if classes is None else _LOOKED_AT)
    labels = sorted(found)
    if labels[0] < 0:
        raise UsageError(f"the label {labels[0]} is not a class", "number classes from 0 on")
    if classes is None:
        is_plain = labels == list(range(len(labels)))
        return items if is_plain else items.with_labels(labels), len(labels), ()
    if labels[-1] >= classes:
        raise UsageError(
            f"the data have a label {labels[-1]}, but there are {classes} classes",
            "pass the right number of classes, or none: then classes are the labels that occur",
        )
    return items, classes, sorted(set(range(classes)) - set(labels)) if whole else ()


def _typical(counts: Mapping[Any, int]) -> list[Any]:
    """Labels in proportion to how often they occur, sorted."""
    labels = sorted(counts)
    ends = np.cumsum([counts[one] for one in labels])
    total = int(ends[-1])
    places = np.linspace(0, total - 1, min(total, _KEPT)).astype(np.int64)
    return [labels[index] for index in np.searchsorted(ends, places, side="right")]
