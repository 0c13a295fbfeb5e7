# SPDX-License-Identifier: Apache-2.0
"""Which labels occur in a data set, and how often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .._base._errors import UsageError
from ._content import as_array
from ._items import Items

# Items whose labels are read one by one: all of them where there are no more. LOOKED_AT where
# classes are given, or there are none.
_COUNTED, LOOKED_AT = 100_000, 2048
# Labels that are kept where they are not classes, as often as they occur.
_KEPT = 1024


def counted(data: Sequence[Any], items: Items, most: int) -> tuple[Counter[Any], bool]:
    """How often each label occurs, and whether every item was counted.

    Labels that lie in memory are all counted. Of other data sets, whose items may be slow to read,
    `most` are, in steps that no period in the order of the labels can hide from.

    Raises:
        UsageError: A label is of another type than the first, or no whole number.
    """
    column = getattr(data, "column", lambda _: None)(items.label_key)
    if column is None:
        in_memory = getattr(data, "in_memory", isinstance(data, list))
        places = range(len(data)) if in_memory or len(data) <= most else _spread(len(data), most)
        found = Counter(items.plain_label(data[place][items.label_key]) for place in places)
        return found, in_memory or len(data) <= most
    if isinstance(column, list):
        return Counter(map(items.plain_label, column)), True
    values, counts = np.unique(as_array(column), return_counts=True)
    plain = map(items.plain_label, values.tolist())
    return Counter(dict(zip(plain, counts.tolist(), strict=True))), True


def labelled(
    data: Sequence[Any], items: Items, classes: int | None
) -> tuple[Items, int, Sequence[int]]:
    """Items that know the labels of classes, how many classes there are, and which do not occur."""
    if items.label == "str":
        # Reading every image would take long where their names are known.
        names = getattr(data, "label_names", None) or counted(data, items, len(data))[0]
        items = items.with_labels(sorted(map(str, names)))
        if classes not in (None, len(names)):
            raise UsageError(f"the data have {len(names)} different labels, not {classes}", "")
        return items, len(names), ()
    found, whole = counted(data, items, _COUNTED if classes is None else LOOKED_AT)
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


def typical(counts: Mapping[Any, int]) -> list[Any]:
    """Labels in proportion to how often they occur, sorted."""
    labels = sorted(counts)
    ends = np.cumsum([counts[one] for one in labels])
    total = int(ends[-1])
    places = np.linspace(0, total - 1, min(total, _KEPT)).astype(np.int64)
    return [labels[index] for index in np.searchsorted(ends, places, side="right")]


def _spread(count: int, most: int) -> Iterator[int]:
    """`most` different places, each a golden section of the data from the one before."""
    step = int(count * 0.6180339887498949) | 1
    while np.gcd(step, count) != 1:
        step += 2
    return (index * step % count for index in range(most))
