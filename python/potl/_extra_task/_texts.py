# SPDX-License-Identifier: Apache-2.0
"""Texts: words or token ids that occur in the training data, padded and framed as these are."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from .. import _core
from .._base._errors import UsageError
from ._values import Array, as_array, carried, carrier_of, dtype_of

# Fewer words may be too few to tell short samples apart.
_ENOUGH_WORDS = 200
# Ids that all texts begin or end with, such as those of a start and an end: at most so many, and
# only where enough texts were seen.
_FRAME, _ENOUGH_TEXTS = 4, 20


@dataclass(frozen=True)
class Texts:
    """Words or token ids.

    Attributes:
        length: Words of an extra sample, its targets included where they are the next words.
        vocabulary: The frequent words or ids of the training data, without padding.
        padded: Full length of a padded text; 0 where texts end where they end.
        padding: The id of padding.
        left: Whether padding comes first.
        first: Ids that every text begins with, such as that of a start.
        last: Ids that every text ends with, before padding.
    """

    kind: ClassVar[str] = "text"

    length: int
    vocabulary: Sequence[Any]
    carrier: str
    dtype: str
    padded: int = 0
    padding: int = 0
    left: bool = False
    first: Sequence[int] = ()
    last: Sequence[int] = ()

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
        first: list[int] = []
        last: list[int] = []
        if carrier == "str":
            texts: list[list[Any]] = [one.split() for one in inputs]
            fixed = pad = 0
            left = False
        else:
            arrays = [as_array(one).reshape(-1) for one in inputs]
            if any(len(one) and one.dtype.kind not in "iu" for one in arrays):
                raise UsageError("token ids are not integers", "pass strings, or lists of ids")
            rows = [one.tolist() for one in arrays]
            fixed = len(rows[0]) if len({len(row) for row in rows}) == 1 else 0
            found, left = _padding(rows, padding) if fixed else (padding, False)
            texts = rows if found is None else [_stripped(row, found, left) for row in rows]
            pad = 0 if found is None else int(found)
            if found is None or all(len(one) == fixed for one in texts):
                fixed = 0
            texts, first, last = _unframed([one for one in texts if one])
        lengths = sorted(len(one) for one in texts if one)
        if not lengths:
            raise UsageError("all texts are empty", "")
        frame = len(first) + len(last)
        words = lengths[len(lengths) // 2] + frame
        if length is not None:
            if not frame + 1 <= length <= lengths[-1] + frame:
                raise UsageError(
                    f"no text has {length} words, the longest has {lengths[-1] + frame}",
                    f"choose a length from {frame + 1} to {lengths[-1] + frame}, or leave it out "
                    "if the model reads whole texts",
                )
            words = length
        vocabulary = _frequent(Counter(word for one in texts for word in one))
        dtype = dtype_of(next((one for one in inputs if len(one)), inputs[0]))
        return Texts(words, vocabulary, carrier, dtype, fixed, pad, left, first, last)

    def hints(self) -> dict[str, object]:
        own: dict[str, object] = {"length": self.length}
        return own if self.carrier == "str" else {**own, "padding": self.padding}

    @property
    def drawn(self) -> int:
        """Words of an extra sample that are not the same in all texts."""
        return self.length - len(self.first) - len(self.last)

    def description(self) -> _core.ExtraContent:
        return {"family": "tokens", "length": self.drawn, "vocabulary": len(self.vocabulary)}

    def empty(self, count: int) -> Array:
        return np.empty((count, self.drawn), np.int64)

    def inputs(self, raw: Array) -> Any:
        if self.carrier == "str":
            return [" ".join(self.vocabulary[word] for word in row) for row in raw]
        values = self._ids[raw]
        if self.padded or self.first or self.last:
            full = np.full((len(raw), self.padded or self.length), self.padding, np.int64)
            begin, end = self._place()
            inner = slice(begin + len(self.first), end - len(self.last))
            full[:, begin : inner.start] = self.first
            full[:, inner] = values
            full[:, inner.stop : end] = self.last
            values = full
        return carried(values, self.carrier, self.dtype)

    @functools.cached_property
    def _ids(self) -> Array:
        return np.asarray(self.vocabulary, np.int64)

    def _place(self) -> tuple[int, int]:
        begin = self.padded - self.length if self.padded and self.left else 0
        return begin, begin + self.length

    def mask(self) -> Array:
        """1 where an extra text has words, 0 where it is padded."""
        out = np.zeros(self.padded or self.length, np.int64)
        begin, end = self._place()
        out[begin:end] = 1
        return out

    def plain(self) -> dict[str, object]:
        return {"kind": self.kind, **asdict(self)}


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


def _unframed(texts: list[list[Any]]) -> tuple[list[list[Any]], list[int], list[int]]:
    """Texts without the ids that all begin and end with, and these."""
    if len(texts) < _ENOUGH_TEXTS:
        return texts, [], []
    room = min(_FRAME, (min(map(len, texts)) - 1) // 2)
    first, last = (
        [int(column[0]) for column in _while_equal(list(zip(*ends, strict=True)))]
        for ends in (
            [one[:room] for one in texts],
            [one[: -room - 1 : -1] if room else [] for one in texts],
        )
    )
    end = -len(last) or None
    return [one[len(first) : end] for one in texts], first, last[::-1]


def _while_equal(columns: Sequence[Sequence[Any]]) -> Iterator[Sequence[Any]]:
    return itertools.takewhile(lambda column: len(set(column)) == 1, columns)


def _stripped(row: list[Any], padding: int, left: bool) -> list[Any]:
    kept = row[::-1] if left else list(row)
    while kept and kept[-1] == padding:
        kept.pop()
    return kept[::-1] if left else kept
