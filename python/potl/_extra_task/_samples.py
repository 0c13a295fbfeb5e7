# SPDX-License-Identifier: Apache-2.0
"""The extra and control samples: each is a function of the key and the design."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from .. import _core
from .._base._errors import UsageError
from .._task._sample_bytes import described
from ._data import View
from ._design import Design
from ._key import ExtraKey
from ._values import Array, Ints, carrier_of

# Samples that are worth a thread.
_SHARE = 100


class Samples:
    """Generates samples, items of them, and the secret order in which they are mixed."""

    def __init__(self, key: ExtraKey, design: Design) -> None:
        self._key, self._form = key, design.form
        self._drawn = _core.ExtraSamples(
            key._secret,
            design.form.content.description(),
            samples=design.plan.samples,
            classes=design.form.classes,
            options=design.options,
        )

    def raw(self, places: Ints) -> Array:
        """Generated values of any samples: rows of set (0 extra, 1 control), index and copy."""
        raw = self._form.content.empty(len(places))
        places = np.ascontiguousarray(places)
        workers = min(len(os.sched_getaffinity(0)), len(places) // _SHARE)
        if workers < 2:
            self._drawn.fill_places(places, raw)
            return raw
        ends = [len(places) * part // workers for part in range(workers + 1)]
        with ThreadPoolExecutor(workers) as pool:
            parts = [
                pool.submit(self._drawn.fill_places, places[first:last], raw[first:last])
                for first, last in itertools.pairwise(ends)
            ]
        for part in parts:
            part.result()
        return raw

    def order(self, real: int) -> Ints:
        """The secret order of real samples (numbers below `real`) and uploads (the numbers from
        there on).
        """
        return np.frombuffer(self._drawn.order(real), np.int64)

    def items(self, chosen: Sequence[int] | None = None) -> list[Any]:
        """The items that are mixed in. `chosen`: their numbers; None: all."""
        uploads = self._drawn.uploads()
        if chosen is not None:
            uploads = [uploads[number] for number in chosen]
        places = np.array([(0, index, copy) for index, copy, _ in uploads], np.int64)
        return self._form.made(self.raw(places), self._labels(uploads))

    def _labels(self, uploads: Sequence[tuple[int, int, int]]) -> list[int]:
        """The class of each. Where the data have labels but no classes, the key draws a typical
        label.
        """
        items = self._form.items
        if self._form.classes or not items.is_labelled:
            return [label for _, _, label in uploads]
        known = items.names or items.values
        if not known:
            raise UsageError(
                f"{self._key.path} was made by a version that did not keep labels",
                "pass like=, the training data",
            )
        return [self._key._seed(f"label {index}") % len(known) for index, _, _ in uploads]

    def require_like(self, view: View) -> None:
        """Refuses data whose inputs have another type, shape or mode than the samples.

        Raises:
            UsageError: One has.
        """
        form = self._form
        for index in {0, len(view) // 2, len(view) - 1}:
            value = form.items.input_of(view[index])
            made = form.content.inputs(self.raw(np.array([[1, 0, 0]])))[0]
            made = made[:-1] if form.pairs else made
            if carrier_of(value) == carrier_of(made) == "str":
                continue
            if carrier_of(value) != carrier_of(made) or any(
                getattr(value, name, None) != getattr(made, name, None)
                for name in ("dtype", "shape", "mode", "size")
                if not callable(getattr(made, name, None))
            ):
                raise UsageError(
                    f"sample {index} is {described(value)}, the extra samples {described(made)}",
                    "pass like= the same data",
                )
