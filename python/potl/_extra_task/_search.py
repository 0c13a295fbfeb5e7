# SPDX-License-Identifier: Apache-2.0
"""A cheating cloud's search for extra samples: by what they have in common, and by what they have
not in common with the others. Labels and models play no part here.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import _core
from ._form import Content
from ._images import Images
from ._texts import Texts
from ._values import Array, Ints, as_array

# Of larger images so many values are looked at: their covariances have to fit into memory.
_LOOKED_AT = 3072


def repeated(content: Content, raw: Sequence[Any], count: int) -> Ints:
    """Samples with windows that others have too: bytes as they are, and without low bits. At
    most `count`, those that share most first.
    """
    shared = np.zeros(len(raw), np.int64)
    if isinstance(content, Images):
        images = _bytes(content, raw)
        sides = [max(2, size // 4) for size in images.shape[1:3]]
        for dropped, anywhere in ((0, False), (0, True), (4, False), (5, True)):
            shared += _regions(images, tuple(sides), dropped, anywhere)
    elif isinstance(content, Texts):
        words: dict[Any, int] = {}
        rows = [words_of(one) for one in raw]
        length = max(len(row) for row in rows)
        texts = np.arange(len(rows) * length, dtype=np.int64).reshape(len(rows), length)
        # Where a text has ended: unlike every word, which are below 0, and each other.
        for index, row in enumerate(rows):
            texts[index, : len(row)] = [words.setdefault(one, -1 - len(words)) for one in row]
        shared += _regions(texts, max(2, content.length // 8), 0, True)
    else:
        values = np.stack([as_array(one).reshape(-1) for one in raw])
        for column in values.T:
            _, places, counts = np.unique(column, return_inverse=True, return_counts=True)
            shared += counts[places.reshape(-1)]
    best = np.argsort(-shared, kind="stable")[:count]
    return np.asarray(best[shared[best] > 0])


def unusual(content: Content, raw: Sequence[Any], count: int) -> Ints:
    """The `count` samples that are least like the others: rows and images that few directions
    explain, texts whose pairs of words are rare.
    """
    if isinstance(content, Texts):
        rows = [words_of(one) for one in raw]
        pairs = Counter(pair for row in rows for pair in itertools.pairwise(row))
        score = np.array(
            [np.mean([1 / pairs[pair] for pair in itertools.pairwise(row)] or [0]) for row in rows]
        )
    else:
        size = as_array(raw[0]).size
        seen = np.linspace(0, size - 1, min(size, _LOOKED_AT)).astype(int)
        values = np.stack([as_array(one).reshape(-1)[seen] for one in raw]).astype(np.float64)
        values -= values.mean(0)
        deviation = values.std(0)
        values /= np.where(deviation > 0, deviation, 1)
        _, vectors = np.linalg.eigh(values.T @ values)
        # The half of the directions along which the data differ least.
        least = vectors[:, : vectors.shape[1] // 2]
        score = np.square(values @ least).sum(1)
    return np.asarray(np.argsort(-score, kind="stable")[:count])


def words_of(text: Any) -> list[Any]:
    """The words of a text, or its ids."""
    return text.split() if isinstance(text, str) else as_array(text).reshape(-1).tolist()


def _regions(values: Array, window: Any, dropped: int, anywhere: bool) -> Ints:
    counts, _ = _core.shared_regions(
        values, window=window, dropped_bits=dropped, least=5, anywhere=anywhere
    )
    return np.asarray(counts, np.int64)


def _bytes(content: Images, raw: Sequence[Any]) -> Array:
    values = np.stack([as_array(one) for one in raw]).astype(np.float64)
    if content.axes == "CHW":
        values = np.moveaxis(values, 1, -1)
    elif values.ndim == 3:  # grey
        values = values[..., None]
    low, high = values.min(), values.max()
    scaled: Array = np.rint((values - low) * (255 / max(high - low, 1e-9))).astype(np.uint8)
    return scaled
