# SPDX-License-Identifier: Apache-2.0
"""Images of bytes or floats, in the shape, dtype and levels of the training data."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from .. import _core
from .._base._errors import UsageError
from ._values import Array, as_array, carried, carrier_of, dtype_of

_AXES = ("HW", "HWC", "CHW")
_MODES = {"L": 1, "RGB": 3, "RGBA": 4}


@dataclass(frozen=True)
class Images:
    """uint8 or float images.

    Attributes:
        height, width, channels: Of an image.
        axes: "HW", "HWC" or "CHW".
        levels: For each channel the value of each of 256 brightnesses; empty where values are
            uint8.
    """

    kind: ClassVar[str] = "image"

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
            UsageError: Their shapes differ, or they are not images.
        """
        carrier = carrier_of(inputs[0])
        if carrier == "pil":
            return _pillow(inputs)
        first = as_array(inputs[0])
        axes = axes_of(first.shape, carrier) if axes is None else axes
        if axes not in _AXES:
            raise UsageError(f"there are no axes {axes!r}", f"use one of {', '.join(_AXES)}")
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

    def hints(self) -> dict[str, object]:
        return {} if self.carrier == "pil" else {"axes": self.axes}

    def description(self) -> _core.ExtraContent:
        height, width, channels = self.height, self.width, self.channels
        return {"family": "image", "height": height, "width": width, "channels": channels}

    def empty(self, count: int) -> Array:
        return np.empty((count, self.height, self.width, self.channels), np.uint8)

    def inputs(self, raw: Array) -> Any:
        if self.carrier == "pil":
            from PIL import Image

            flat = raw[..., 0] if self.channels == 1 else raw
            return [Image.fromarray(one) for one in flat]
        planes = np.moveaxis(raw, -1, 1) if self.axes == "CHW" else raw
        if not self.levels:
            values = planes
        else:
            table = self._table
            values = np.empty(planes.shape, table.dtype)
            for channel in range(self.channels):
                at = (slice(None), channel) if self.axes == "CHW" else (..., channel)
                values[at] = table[channel].take(planes[at], mode="clip")
        return carried(values[..., 0] if self.axes == "HW" else values, self.carrier, self.dtype)

    def equal_regions(self, samples: int, noise: int) -> tuple[int, float]:
        """A quarter of the side, and how many pairs of samples to expect that have equal values in
        some window of this size: what a search for repeated regions finds.

        A pixel moves by one of four steps; two that are alike but for that have one value as often
        as their steps lead to one level, or to one byte. Pixels of a cell have one colour.
        """
        side = min(self.height, self.width)
        window, cell = max(2, side // 4), max(1, side // 16)
        values = np.arange(noise, 256 - noise)[:, None]
        moved = values + np.array([-noise, -(noise // 3), noise // 3, noise])
        chance = 1.0
        for levels in self.levels or [range(256)]:
            places = np.unique(levels, return_inverse=True)[1].reshape(-1)[moved]
            equal = (places[:, :, None] == places[:, None, :]).mean((1, 2))
            chance *= float(np.power(equal, cell * cell).mean())
        if not self.levels:
            chance **= self.channels
        windows = (self.height - window + 1) * (self.width - window + 1)
        pairs = samples * (samples - 1) / 2
        return window, pairs * windows * chance ** (window * window / (cell * cell))

    @functools.cached_property
    def _table(self) -> Array:
        small = self.dtype in ("float16", "float32", "bfloat16")
        return np.asarray(self.levels, np.float32 if small else np.float64)

    def plain(self) -> dict[str, object]:
        return {"kind": self.kind, **asdict(self)}


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


def axes_of(shape: tuple[int, ...], carrier: str) -> str:
    """Where the channels are, as far as a shape says."""
    if len(shape) == 2:
        return "HW"
    if len(shape) != 3:
        raise UsageError(
            f"an input of shape {list(shape)} is not an image", "pass images of two or three axes"
        )
    few_first, few_last = shape[0] <= 4, shape[2] <= 4
    if few_first == few_last:  # PyTorch has channels first, image files have them last
        first = carrier == "tensor" or (not few_first and shape[0] < min(shape[1:]))
        return "CHW" if first else "HWC"
    return "CHW" if few_first else "HWC"


def _levels(values: Array) -> list[float]:
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


def as_pillow(values: Any) -> Any:
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
