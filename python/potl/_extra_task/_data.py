# SPDX-License-Identifier: Apache-2.0
"""Data sets in, mixed data sets out, in the same container: what a trainer gets has no mark of
where the extra samples are, and does not hold the key.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._base._errors import UsageError
from ._items import Items
from ._values import as_array, in_own_memory, is_tensor, same

# Items that are read twice: of an augmentation that flips a coin all are equal with 2^-32.
READ_TWICE = 32


class MixedDataset(Sequence[Any]):
    """Items in the order in which they were mixed. Map-style, picklable, and nothing else."""

    def __init__(self, items: list[Any]) -> None:
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: Any) -> Any:
        return self._items[index]


class View(Sequence[Any]):
    """The items of any kind of data set.

    Attributes:
        through_pillow: The stored images become Pillow images before `transform` sees them, as in
            torchvision.
        transform: Of the data set, for an image; None: there is none.
    """

    def __init__(self, data: Any) -> None:
        self._data = data
        self.through_pillow = False
        self.transform: Callable[[Any], Any] | None = None
        self._columns: tuple[Any, ...] | None = None
        _refuse(data)
        if _is_vision(data):
            targets = data.targets if hasattr(data, "targets") else data.labels
            self._columns = (data.data, targets)
            self.transform = data.transform
            self.through_pillow = True
        elif isinstance(data, tuple) and len(data) == 2 and all(map(_is_column, data)):
            self._columns = tuple(data)
        elif hasattr(data, "tensors") and type(data).__name__ == "TensorDataset":
            self._columns = tuple(data.tensors)
        elif not hasattr(data, "__getitem__") or not hasattr(data, "__len__"):
            raise UsageError(
                f"a {type(data).__name__} has no length or no items",
                "pass a map-style data set, arrays, or a list of items",
            )
        if self._columns is not None and len({len(one) for one in self._columns}) != 1:
            lengths = " and ".join(str(len(one)) for one in self._columns)
            raise UsageError(f"inputs and labels have different lengths: {lengths}", "")

    @property
    def label_names(self) -> Sequence[str] | None:
        """All labels, where the data set knows them without reading its items."""
        return getattr(self._data, "label_names", None)

    def labels(self, items: Items, most: int) -> tuple[Counter[Any], bool]:
        """How often each label occurs, and whether every item was counted.

        Labels that lie in memory are all counted. Of other data sets, whose items may be slow to
        read, `most` are, in steps that no period in the order of the labels can hide from.

        Raises:
            UsageError: A label is of another type than the first, or no whole number.
        """
        if self._columns is None:
            whole = isinstance(self._data, (list, tuple, MixedDataset)) or len(self) <= most
            places = range(len(self)) if whole else _spread(len(self), most)
            found = (self._data[place][items.label_key] for place in places)
            return Counter(map(items.plain_label, found)), whole
        column = self._columns[items.label_key]
        if isinstance(column, list):
            return Counter(map(items.plain_label, column)), True
        values, counts = np.unique(as_array(column), return_counts=True)
        plain = map(items.plain_label, values.tolist())
        return Counter(dict(zip(plain, counts.tolist(), strict=True))), True

    def require_labels(self, items: Items, known: Sequence[Any]) -> None:
        """Refuses mixed data with labels that were not seen before, when not all were read.

        Raises:
            UsageError: There is such a label.
        """
        unknown = sorted(set(self.labels(items, len(self))[0]) - set(known))
        if unknown:
            raise UsageError(
                f"the data have a label {unknown[0]!r}, which is none of the {len(known)} classes "
                "that the task was made for",
                "pass classes=, where not all items could be looked at",
            )

    def __len__(self) -> int:
        return len(self._data if self._columns is None else self._columns[0])

    def __getitem__(self, index: Any) -> Any:
        if self._columns is None:
            return self._data[index]
        return tuple(column[index] for column in self._columns)

    def mixed(self, extras: list[Any], order: Sequence[int]) -> Any:
        """The data with `extras` (items) among them: `order` has numbers of items, and after them
        of extras.
        """
        if self._columns is not None:
            mixed = tuple(
                _mixed_column(column, [item[place] for item in extras], order)
                for place, column in enumerate(self._columns)
            )
            return self._like(mixed)
        if isinstance(self._data, np.ndarray) or is_tensor(self._data):
            return _mixed_column(self._data, extras, order)
        real = len(self)
        like = self._data[0]
        items = [
            in_own_memory(self._data[i] if i < real else _dressed(extras[i - real], like))
            for i in order
        ]
        return items if isinstance(self._data, list) else MixedDataset(items)

    def _like(self, columns: tuple[Any, ...]) -> Any:
        if isinstance(self._data, tuple):
            return columns
        if not self.through_pillow:
            return type(self._data)(*columns)
        out = copy.copy(self._data)
        out.data = columns[0]
        setattr(out, "targets" if hasattr(out, "targets") else "labels", columns[1])
        return out


def is_fixed(data: Sequence[Any]) -> bool:
    """Whether reading an item twice gives the same values."""
    places = sorted({len(data) * part // READ_TWICE for part in range(READ_TWICE)})
    # Between the two reads of an item others are read, so that a cache of the last does not hide.
    before = [data[place] for place in places]
    return all(same(one, data[place]) for one, place in zip(before, places, strict=True))


def _spread(count: int, most: int) -> Iterator[int]:
    """`most` different places, each a golden section of the data from the one before."""
    step = int(count * 0.6180339887498949) | 1
    while np.gcd(step, count) != 1:
        step += 2
    return (index * step % count for index in range(most))


def _is_vision(data: Any) -> bool:
    stored: Any = getattr(data, "data", None)
    return (
        hasattr(data, "transform")
        and (hasattr(data, "targets") or hasattr(data, "labels"))
        and hasattr(stored, "shape")
        and len(stored.shape) in (3, 4)
        and str(stored.dtype).endswith("uint8")
        and len(stored) == len(data)
    )


def _is_column(one: Any) -> bool:
    is_array = isinstance(one, np.ndarray) or is_tensor(one)
    return isinstance(one, list) or (is_array and one.ndim >= 1)


def _refuse(data: Any) -> None:
    """What has a length and items by a number or name, and no training samples."""
    names = {base.__name__ for base in type(data).__mro__}
    if "IterableDataset" in names:
        raise UsageError(
            f"a {type(data).__name__} gives items in its own order",
            "pass a list of them: list(data)",
        )
    if isinstance(data, (str, bytes, Path)):
        raise UsageError(
            f"a {type(data).__name__} is not training data",
            "read the file first; potl extra-task mix reads files itself",
        )
    if isinstance(data, Mapping):
        raise UsageError(
            f"a {type(data).__name__} has no order of items",
            "pass (inputs, labels), or a list of dictionaries",
        )
    if "DataFrame" in names:
        raise UsageError("a DataFrame is read by columns", "pass arrays: (inputs, labels)")
    if isinstance(data, list) and len(data) == 2 and all(map(_is_column, data)):
        raise UsageError(
            "a list of two arrays could be two items", "pass a tuple: (inputs, labels)"
        )


def _mixed_column(column: Any, extras: list[Any], order: Sequence[int]) -> Any:
    if isinstance(column, list):
        both = [*column, *(_dressed(one, column[0]) for one in extras)]
        return [in_own_memory(both[index]) for index in order]
    if isinstance(column, np.ndarray):
        # Strings may be longer than real ones: then all of them get room.
        dtype = None if column.dtype.kind == "U" else column.dtype
        new = np.stack([np.asarray(one, dtype) for one in extras])
        return np.concatenate([column, new])[np.asarray(order)]
    import torch

    new_ones = torch.stack([torch.as_tensor(one, dtype=column.dtype) for one in extras])
    return torch.cat([column.detach().cpu(), new_ones])[torch.as_tensor(order)]


def _dressed(extra: Any, like: Any) -> Any:
    """An extra item in the very types of a real one: named tuples, the order of keys, arrays
    without axes.
    """
    if isinstance(like, tuple) and type(like) is not tuple:
        return type(like)(*map(_dressed, extra, like))
    if isinstance(like, dict):
        return {key: _dressed(extra[key], like[key]) for key in like}
    if isinstance(like, (tuple, list)) and len(like) == len(extra):
        return type(like)(map(_dressed, extra, like))
    if isinstance(like, np.ndarray) and not isinstance(extra, np.ndarray):
        return np.asarray(extra)
    return extra
