# SPDX-License-Identifier: Apache-2.0
"""Tensors of inputs of any kind, for the small models of an audit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ._content import Content, as_array, carrier_of
from ._texts import Texts


def as_tensor(
    transform: Callable[[Any], Any] | None, content: Content, known: Sequence[Any]
) -> Callable[[Any], torch.Tensor]:
    """What makes a tensor of one input: `transform`, or what fits the data. Bytes become floats
    from 0 to 1, Pillow images have channels first, words are numbered as they come in `known`, and
    texts are filled up to the longest of these.
    """
    if transform is not None:
        return lambda value: _scaled(torch.as_tensor(transform(value)))
    if isinstance(content, Texts) and carrier_of(known[0]) in ("str", "list", "tuple"):
        return _numbered(known)
    return lambda value: _scaled(_plain(value))


def _plain(value: Any) -> torch.Tensor:
    if carrier_of(value) != "pil":
        return torch.as_tensor(value)
    pixels = as_array(value)
    return torch.tensor(np.moveaxis(pixels.reshape(*pixels.shape[:2], -1), -1, 0))


def _scaled(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dtype == torch.uint8:
        return tensor.float() / 255
    return tensor.float() if tensor.is_floating_point() else tensor


def _words(value: Any) -> list[Any]:
    return value.split() if isinstance(value, str) else list(value)


def _numbered(known: Sequence[Any]) -> Callable[[Any], torch.Tensor]:
    """0 fills up, 1 is a word that is not known."""
    numbers: dict[Any, int] = {}
    length = 1
    for one in known:
        words = _words(one)
        length = max(length, len(words))
        for word in words:
            numbers.setdefault(word, 2 + len(numbers))

    def tensor(value: Any) -> torch.Tensor:
        ids = [numbers.get(word, 1) for word in _words(value)[:length]]
        return torch.tensor(ids + [0] * (length - len(ids)))

    return tensor
