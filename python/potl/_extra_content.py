# SPDX-License-Identifier: Apache-2.0
"""Secret samples in the form of a data set's own inputs: images, texts, rows of tables.

The generator (ExtraSamples in C++) draws bytes, indices of words and places in columns. Here they
become what the training data hold: the same container, dtype, shape, range and vocabulary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np

from ._errors import UsageError

# A column with no more distinct whole numbers than this holds categories.
_CATEGORIES = 16
# Values that are kept of a column of numbers.
_KNOTS = 1024
# Fewer words may be too few to tell short samples apart.
_ENOUGH_WORDS = 200
_MODES = {"L": 1, "RGB": 3, "RGBA": 4}
CARRIERS = ("tensor", "array", "list", "tuple")


class Content(Protocol):
    """How inputs look, and how they are made from generated values."""

    def description(self) -> dict[str, Any]:
        """As ExtraSamples takes it."""

    def empty(self, count: int) -> np.ndarray[Any, Any]:
        """An array that ExtraSamples.fill fills."""

    def inputs(self, raw: np.ndarray[Any, Any]) -> Any:
        """The inputs of a filled array: one array or tensor over all of them, or a list."""

    def plain(self) -> dict[str, Any]:
        """JSON values from which `content_of` makes this again."""


def content_of(plain: dict[str, Any]) -> Content:
    """The content that `plain` describes."""
    fields = dict(plain)
    kinds: dict[str, Any] = {"image": Images, "text": Texts, "table": Tables}
    content: Content = kinds[fields.pop("kind")](**fields)
    return content


def carrier_of(value: Any) -> str:
    """What kind of object an input is: "tensor", "array", "list", "tuple", "str" or "pil".

    Raises:
        UsageError: None of these.
    """
    kind = type(value)
    if isinstance(value, str):
        return "str"
    if isinstance(value, (np.ndarray, np.generic)):
        return "array"
    if kind.__module__.startswith("torch") and hasattr(value, "detach"):
        return "tensor"
    if hasattr(value, "getbands") and hasattr(value, "convert"):
        return "pil"
    if isinstance(value, (list, tuple)):
        return "list" if isinstance(value, list) else "tuple"
    raise UsageError(
        f"an input of type {kind.__name__} is none that extra samples can look like",
        "use tensors, NumPy arrays, Pillow images, lists of token ids or strings",
    )


def as_array(value: Any) -> np.ndarray[Any, Any]:
    """The values of an input."""
    if carrier_of(value) == "tensor":
        tensor = value.detach().cpu()
        return np.asarray(tensor.float() if "bfloat16" in str(tensor.dtype) else tensor)
    return np.asarray(value)


def dtype_of(value: Any) -> str:
    """ "float32", "int64", ..."""
    kind = carrier_of(value)
    return str(value.dtype).removeprefix("torch.") if kind in ("tensor", "array") else ""


def carried(values: np.ndarray[Any, Any], carrier: str, dtype: str) -> Any:
    """Values in the container of the data: one array or tensor for all, or a list of lists."""
    if carrier == "tensor":
        import torch

        return torch.from_numpy(np.ascontiguousarray(values)).to(getattr(torch, dtype))
    if carrier == "array":
        return np.ascontiguousarray(values.astype(dtype))
    rows = values.tolist()
    return [tuple(row) for row in rows] if carrier == "tuple" else rows


@dataclass(frozen=True)
class Images:
    """uint8 or float images.

    Attributes:
        height, width, channels: Of an image.
        axes: "HW", "HWC" or "CHW".
        levels: For each channel the value of each of 256 brightnesses; empty where values are
            uint8.
    """

    height: int
    width: int
    channels: int
    axes: str
    carrier: str
    dtype: str
    levels: Sequence[Sequence[float]] = ()

    @staticmethod
    def learn(inputs: Sequence[Any], axes: str | None = None) -> Images:
        """The form of these images.

        Raises:
            UsageError: Their shapes differ, or they are no images.
        """
        carrier = carrier_of(inputs[0])
        if carrier == "pil":
            return _pillow(inputs)
        first = as_array(inputs[0])
        axes = _axes(first.shape, carrier) if axes is None else axes
        if len(axes) != first.ndim:
            raise UsageError(f"an image of shape {list(first.shape)} has no axes {axes}", "")
        sizes = dict(zip(axes, first.shape, strict=True))
        for other in inputs:
            if as_array(other).shape != first.shape:
                raise UsageError(
                    f"images have different shapes: {list(first.shape)}, "
                    f"{list(as_array(other).shape)}",
                    "resize them before they are mixed",
                )
        dtype = dtype_of(inputs[0])
        channels = sizes.get("C", 1)
        levels: list[list[float]] = []
        if dtype != "uint8":
            stack = np.stack([as_array(one) for one in inputs])
            pixels = np.moveaxis(stack, 1 + axes.index("C"), -1) if "C" in axes else stack
            pixels = pixels.reshape(-1, channels).astype(np.float64)
            levels = [_levels(pixels[:, channel]) for channel in range(channels)]
            if all(low[0] == low[-1] for low in levels):
                raise UsageError("all images are of one colour", "")
        return Images(sizes["H"], sizes["W"], channels, axes, carrier, dtype, levels)

    def description(self) -> dict[str, Any]:
        sizes = {"height": self.height, "width": self.width, "channels": self.channels}
        return {"family": "image", **sizes}

    def empty(self, count: int) -> np.ndarray[Any, Any]:
        return np.empty((count, self.height, self.width, self.channels), np.uint8)

    def inputs(self, raw: np.ndarray[Any, Any]) -> Any:
        if self.carrier == "pil":
            from PIL import Image

            flat = raw[..., 0] if self.channels == 1 else raw
            return [Image.fromarray(one) for one in flat]
        values = raw
        if self.levels:
            table = np.asarray(self.levels)
            values = np.stack([table[c][raw[..., c]] for c in range(self.channels)], axis=-1)
        if self.axes == "HW":
            values = values[..., 0]
        elif self.axes == "CHW":
            values = np.moveaxis(values, -1, 1)
        return carried(values, self.carrier, self.dtype)

    def plain(self) -> dict[str, Any]:
        return {"kind": "image", **asdict(self)}


def _pillow(inputs: Sequence[Any]) -> Images:
    first = inputs[0]
    if first.mode not in _MODES:
        raise UsageError(f"images of mode {first.mode} are not supported", "convert them to RGB")
    for other in inputs:
        if other.mode != first.mode or other.size != first.size:
            raise UsageError(
                f"images differ: {first.mode} {first.size}, {other.mode} {other.size}",
                "convert and resize them before they are mixed",
            )
    width, height = first.size
    return Images(height, width, _MODES[first.mode], "HWC", "pil", "uint8")


def _axes(shape: tuple[int, ...], carrier: str) -> str:
    if len(shape) == 2:
        return "HW"
    if len(shape) != 3:
        raise UsageError(
            f"an input of shape {list(shape)} is no image", "pass images of two or three axes"
        )
    few_first, few_last = shape[0] <= 4, shape[2] <= 4
    if few_first == few_last:  # PyTorch has channels first, image files have them last
        return "CHW" if carrier == "tensor" else "HWC"
    return "CHW" if few_first else "HWC"


def _levels(values: np.ndarray[Any, Any]) -> list[float]:
    """The values of 256 brightnesses: from the darkest to the brightest that the data hold, and
    only such as they hold where these are few.
    """
    if not np.isfinite(values).all():
        raise UsageError("images hold numbers that are not finite", "")
    known = np.unique(values)
    wanted = np.linspace(known[0], known[-1], 256)
    if len(known) <= 256:
        right = np.clip(np.searchsorted(known, wanted), 1, max(len(known) - 1, 1))
        left = known[right - 1]
        right_value = known[np.minimum(right, len(known) - 1)]
        wanted = np.where(wanted - left <= right_value - wanted, left, right_value)
    return [float(one) for one in wanted]


@dataclass(frozen=True)
class Texts:
    """Words or token ids.

    Attributes:
        length: Words of an extra sample, its targets included where they are the next words.
        vocabulary: The frequent words or ids of the training data, without padding.
        padded: Full length of a padded text; 0 where texts end where they end.
        padding: The id of padding.
        left: Whether padding comes first.
    """

    length: int
    vocabulary: Sequence[Any]
    carrier: str
    dtype: str
    padded: int = 0
    padding: int = 0
    left: bool = False

    @staticmethod
    def learn(
        inputs: Sequence[Any], *, length: int | None = None, padding: int | None = None
    ) -> Texts:
        """The form of these texts: strings, or sequences of ids.

        Args:
            inputs: Texts of the training data.
            length: Words of an extra sample: not more than the model reads. None: the median.
            padding: The id of padding. None: what many texts of one length end (or begin) with.
        """
        carrier = carrier_of(inputs[0])
        if carrier == "str":
            texts: list[list[Any]] = [one.split() for one in inputs]
            fixed = pad = 0
            left = False
        else:
            rows = [as_array(one).reshape(-1).tolist() for one in inputs]
            fixed = len(rows[0]) if len({len(row) for row in rows}) == 1 else 0
            found, left = _padding(rows, padding) if fixed else (padding, False)
            texts = rows if found is None else [_stripped(row, found, left) for row in rows]
            pad = 0 if found is None else int(found)
            if found is None or all(len(one) == fixed for one in texts):
                fixed = 0
        lengths = sorted(len(one) for one in texts if one)
        if not lengths:
            raise UsageError("all texts are empty", "")
        words = lengths[len(lengths) // 2]
        if length is not None:
            if not 1 <= length <= lengths[-1]:
                raise UsageError(f"no text has {length} words, the longest has {lengths[-1]}", "")
            words = length
        vocabulary = _frequent(Counter(word for one in texts for word in one))
        return Texts(words, vocabulary, carrier, dtype_of(inputs[0]), fixed, pad, left)

    def description(self) -> dict[str, Any]:
        return {"family": "tokens", "length": self.length, "vocabulary": len(self.vocabulary)}

    def empty(self, count: int) -> np.ndarray[Any, Any]:
        return np.empty((count, self.length), np.int64)

    def inputs(self, raw: np.ndarray[Any, Any]) -> Any:
        if self.carrier == "str":
            return [" ".join(self.vocabulary[word] for word in row) for row in raw]
        values = np.asarray(self.vocabulary, np.int64)[raw]
        if self.padded:
            full = np.full((len(raw), self.padded), self.padding, np.int64)
            first = self.padded - self.length if self.left else 0
            full[:, first : first + self.length] = values
            values = full
        return carried(values, self.carrier, self.dtype)

    def plain(self) -> dict[str, Any]:
        return {"kind": "text", **asdict(self)}


def _frequent(counts: Counter[Any]) -> list[Any]:
    """The most frequent words that together make half of all the texts, 200 of them at least.

    A rare word is learned the first time it is seen, and with it every sample that holds it, long
    before the real task: optimizers such as Adam move a seldom used embedding as far as others.
    """
    words = sorted(counts, key=lambda word: (-counts[word], word))
    half, seen, most = sum(counts.values()) / 2, 0, 0
    while most < len(words) and (seen < half or most < _ENOUGH_WORDS):
        seen += counts[words[most]]
        most += 1
    return sorted(words[:most])


def _padding(rows: list[list[Any]], given: int | None) -> tuple[int | None, bool]:
    """The id of padding and whether it comes first."""
    ends = Counter(row[-1] for row in rows if len(row) > 1 and row[-1] == row[-2])
    begins = Counter(row[0] for row in rows if len(row) > 1 and row[0] == row[1])
    if given is not None:
        return given, begins[given] > ends[given]
    best = [
        (count, id_, left)
        for counts, left in ((ends, False), (begins, True))
        for id_, count in counts.most_common(1)
    ]
    count, id_, left = max(best, default=(0, 0, False))
    # Texts rarely end with one word twice.
    return (id_, left) if count * 4 >= len(rows) else (None, False)


def _stripped(row: list[Any], padding: int, left: bool) -> list[Any]:
    kept = row[::-1] if left else list(row)
    while kept and kept[-1] == padding:
        kept.pop()
    return kept[::-1] if left else kept


@dataclass(frozen=True)
class Tables:
    """Rows of numbers.

    Attributes:
        columns: For each column values that occur in the training data, sorted.
        categories: Whether a column's values are categories.
    """

    columns: Sequence[Sequence[float]]
    categories: Sequence[bool]
    carrier: str
    dtype: str

    @staticmethod
    def learn(inputs: Sequence[Any]) -> Tables:
        """The form of these rows."""
        rows = np.stack([as_array(one).reshape(-1) for one in inputs]).astype(np.float64)
        if not np.isfinite(rows).all():
            raise UsageError("rows hold numbers that are not finite", "fill what is missing")
        columns, categories = [], []
        for values in rows.T:
            known = np.unique(values)
            is_category = 2 <= len(known) <= _CATEGORIES and bool((known == np.rint(known)).all())
            knots = np.sort(values)
            if len(knots) > _KNOTS:
                knots = knots[np.rint(np.linspace(0, len(knots) - 1, _KNOTS)).astype(int)]
            columns.append([float(one) for one in (known if is_category else knots)])
            categories.append(is_category)
        return Tables(columns, categories, carrier_of(inputs[0]), dtype_of(inputs[0]))

    def description(self) -> dict[str, Any]:
        counts = [
            len(values) if is_category else 0
            for values, is_category in zip(self.columns, self.categories, strict=True)
        ]
        return {"family": "table", "categories": counts}

    def empty(self, count: int) -> np.ndarray[Any, Any]:
        return np.empty((count, len(self.columns)), np.float64)

    def inputs(self, raw: np.ndarray[Any, Any]) -> Any:
        values = np.empty_like(raw)
        for index, (column, is_category) in enumerate(
            zip(self.columns, self.categories, strict=True)
        ):
            places = raw[:, index] if is_category else raw[:, index] * (len(column) - 1)
            values[:, index] = np.asarray(column)[np.rint(places).astype(int)]
        return carried(values, self.carrier, self.dtype)

    def plain(self) -> dict[str, Any]:
        return {"kind": "table", **asdict(self)}
