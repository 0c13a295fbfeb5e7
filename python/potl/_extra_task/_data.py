# SPDX-License-Identifier: Apache-2.0
"""Data sets in, mixed data sets out, in the same container: what a trainer gets has no mark of
where the extra samples are, and does not hold the key.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from .._base._errors import UsageError
from ._containers import carrier_of_data, is_columns, is_vision, refuse, targets_of
from ._content import as_array, carrier_of
from ._images import axes_of


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
        refuse(data)
        if is_vision(data):
            self._columns = (data.data, targets_of(data))
            self.transform = data.transform
            self.through_pillow = True
        elif is_columns(data):
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

    @property
    def in_memory(self) -> bool:
        """Whether items are there without reading them."""
        return isinstance(self._data, (list, tuple, MixedDataset))

    def column(self, place: Any) -> Any:
        """What all items have at a place; None where they are read one by one."""
        return None if self._columns is None else self._columns[place]

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
        like = self._data[0]
        items = [
            _own(self._data[i] if i < real else _dressed(extras[i - real], like)) for i in order
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


def _mixed_column(column: Any, extras: list[Any], order: Sequence[int]) -> Any:
    if isinstance(column, list):
        both = [*column, *(_dressed(one, column[0]) for one in extras)]
        return [_own(both[index]) for index in order]
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


def _own(value: Any) -> Any:
    """The value in its own memory, one way for all: a pickled view would carry all of its base, the
    order of its axes, or the name of its file, and show that an item is real or extra.
    """
    if isinstance(value, tuple):
        parts = [_own(one) for one in value]
        return tuple(parts) if type(value) is tuple else type(value)(*parts)
    if isinstance(value, list):
        plain = all(isinstance(one, (int, float, str)) for one in value)
        return list(value) if plain else [_own(one) for one in value]
    if isinstance(value, dict):
        return {key: _own(one) for key, one in value.items()}
    if isinstance(value, np.ndarray):
        return value.copy()
    if carrier_of_data(value):
        import torch

        return value.detach().clone(memory_format=torch.contiguous_format)
    if hasattr(value, "getbands") and hasattr(value, "tobytes"):
        from PIL import Image

        plain = value.mode in ("L", "RGB", "RGBA")
        return Image.frombytes(value.mode, value.size, value.tobytes()) if plain else value.copy()
    return value


def batches(count: int, size: int) -> Iterator[range]:
    """Consecutive ranges."""
    for first in range(0, count, size):
        yield range(first, min(first + size, count))


def through_pillow(values: Any) -> Any:
    """A stored image as the Pillow image that torchvision's transforms expect; some data sets, such
    as SVHN, store channels first.
    """
    from PIL import Image

    if carrier_of(values) == "pil":
        return values
    pixels = as_array(values)
    if axes_of(pixels.shape, "array") == "CHW":
        pixels = np.moveaxis(pixels, 0, -1)
    return Image.fromarray(
        np.ascontiguousarray(pixels[..., 0] if pixels.shape[2:] == (1,) else pixels)
    )
