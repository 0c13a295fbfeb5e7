# SPDX-License-Identifier: Apache-2.0
"""What the parts of `ExtraTask` share: its key, form, options and samples."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from .. import _core
from ._form import Form, plain_record
from ._key import ExtraKey
from ._result import ExtraPlan

# Samples that are worth a thread.
_SHARE = 100

Ints = np.ndarray[Any, np.dtype[np.int64]]


class ExtraParts:
    """State of an extra task; `ExtraTask` fills it."""

    _key: ExtraKey
    _form: Form
    _options: dict[str, Any]
    _planned: ExtraPlan
    _samples: _core.ExtraSamples
    _training_samples: int
    _transform: Callable[[Any], Any] | None
    _transform_given: bool
    _through_pillow: bool
    # The record in the key's file that these samples are known to be of; None: not compared yet.
    _recorded: dict[str, Any] | None

    def options(self) -> dict[str, Any]:
        """All options. The key is none of them."""
        return {**self._options, "grades": list(self._options["grades"])}

    def record(self) -> dict[str, Any]:
        """What the file beside the key keeps of this task: JSON values."""
        return plain_record(
            {
                "form": self._form.plain(),
                "training_samples": self._training_samples,
                "through_pillow": self._through_pillow,
                "options": self.options(),
                "samples": self._planned.samples,
            }
        )

    @property
    def planned(self) -> ExtraPlan:
        """Sizes, threshold, power and cost of this task."""
        return self._planned

    @property
    def transform(self) -> Callable[[Any], Any] | None:
        """What makes a model's input of an item's."""
        return self._transform

    @property
    def reads_stored_images(self) -> bool:
        """Whether `transform` gets Pillow images of what a torchvision data set stores."""
        return self._through_pillow

    @property
    def form(self) -> Form:
        """How the data look."""
        return self._form

    def generated(self, places: Ints) -> np.ndarray[Any, Any]:
        """Generated values of any samples: rows of set (0 extra, 1 control), index and copy."""
        raw = self._form.content.empty(len(places))
        places = np.ascontiguousarray(places)
        workers = min(len(os.sched_getaffinity(0)), len(places) // _SHARE)
        if workers < 2:
            self._samples.fill_places(places, raw)
            return raw
        ends = [len(places) * part // workers for part in range(workers + 1)]
        with ThreadPoolExecutor(workers) as pool:
            parts = [
                pool.submit(self._samples.fill_places, places[first:last], raw[first:last])
                for first, last in itertools.pairwise(ends)
            ]
        for part in parts:
            part.result()
        return raw
