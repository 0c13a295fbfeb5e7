# SPDX-License-Identifier: Apache-2.0
"""Data sets in, mixed data sets out, in the same container: what a trainer gets has no mark of
where the extra samples are, and does not hold the key.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ._errors import UsageError
from ._extra_content import as_array, carrier_of


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
        if _is_vision(data):
            self._columns = (data.data, _targets(data))
            self.transform = data.transform
            self.through_pillow = True
        elif _is_columns(data):
            self._columns = tuple(data)
        elif hasattr(data, "tensors") and type(data).__name__ == "TensorDataset":
            self._columns = tuple(data.tensors)
        elif not hasattr(data, "__getitem__") or not hasattr(data, "__len__"):
            raise UsageError(
                f"a {type(data).__name__} has no length or no items",
                "pass a map-style data set, arrays, or a list of items",
            )
        if self._columns is not None and len({len(one) for one in self._columns}) != 1:
            raise UsageError("inputs and labels have different lengths", "")

    @property
    def label_names(self) -> Sequence[str] | None:
        """All labels, where the data set knows them without reading its items."""
        return getattr(self._data, "label_names", None)

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
        if isinstance(self._data, np.ndarray) or carrier_of_data(self._data) == "tensor":
            return _mixed_column(self._data, extras, order)
        real = len(self)
        items = [self._data[i] if i < real else extras[i - real] for i in order]
        return items if isinstance(self._data, list) else MixedDataset(_owned(items))

    def _like(self, columns: tuple[Any, ...]) -> Any:
        if isinstance(self._data, tuple):
            return columns
        if not self.through_pillow:
            return type(self._data)(*columns)
        out = copy.copy(self._data)
        out.data = columns[0]
        setattr(out, "targets" if hasattr(out, "targets") else "labels", columns[1])
        return out


def carrier_of_data(data: Any) -> str:
    """ "tensor" for a tensor, else ""."""
    return "tensor" if type(data).__module__.startswith("torch") and hasattr(data, "dim") else ""


def _mixed_column(column: Any, extras: list[Any], order: Sequence[int]) -> Any:
    if isinstance(column, list):
        both = [*column, *extras]
        return [both[index] for index in order]
    if isinstance(column, np.ndarray):
        new = np.stack([np.asarray(one, column.dtype) for one in extras])
        return np.concatenate([column, new])[np.asarray(order)]
    import torch

    new_ones = torch.stack([torch.as_tensor(one, dtype=column.dtype) for one in extras])
    return torch.cat([column.detach().cpu(), new_ones])[torch.as_tensor(order)]


def _owned(items: list[Any]) -> list[Any]:
    """Tensors of their own memory: a pickled view would carry all of its base, and show that an
    item comes from it.
    """
    return [_own(item) for item in items]


def _own(value: Any) -> Any:
    if isinstance(value, tuple) and type(value) is tuple:
        return tuple(_own(one) for one in value)
    if isinstance(value, list):
        return [_own(one) for one in value]
    if isinstance(value, dict):
        return {key: _own(one) for key, one in value.items()}
    if isinstance(value, np.ndarray):
        return value.copy()
    return value.clone() if carrier_of_data(value) else value


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


def _targets(data: Any) -> Any:
    return data.targets if hasattr(data, "targets") else data.labels


def _is_columns(data: Any) -> bool:
    """(inputs, labels) of arrays, not a list of two items."""
    return (
        isinstance(data, tuple)
        and len(data) == 2
        and all(isinstance(one, np.ndarray) or carrier_of_data(one) == "tensor" for one in data)
        and all(one.ndim >= 1 for one in data)
        and len(data[0]) == len(data[1])
    )


def batches(count: int, size: int) -> Iterator[range]:
    """Consecutive ranges."""
    for first in range(0, count, size):
        yield range(first, min(first + size, count))


def through_pillow(values: Any) -> Any:
    """A stored image as the Pillow image that torchvision's transforms expect."""
    from PIL import Image

    return values if carrier_of(values) == "pil" else Image.fromarray(as_array(values))
