# SPDX-License-Identifier: Apache-2.0
"""Making what is uploaded: the data with the extra samples among them."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .._base._errors import UsageError
from ._base import ExtraParts
from ._content import carrier_of
from ._data import View
from ._labels import counted


class Mixing(ExtraParts):
    """`mix`, `make` and what they need."""

    def mix(self, data: Any) -> Any:
        """The data with the extra samples among them, in a secret order: this is uploaded.

        The same kind of container: arrays, tensors, a `TensorDataset`, a torchvision data set, a
        list; any other map-style data set is read and becomes a plain list of its items. What is
        returned holds neither the key nor a mark of which items are extra. What a training needs
        to know of it, such as its length, is the mixed data's.

        Raises:
            UsageError: The data have another form than `like`.
        """
        view = View(data)
        if len(view) != self._training_samples:
            raise UsageError(
                f"there are {len(view)} samples, and the task was made for "
                f"{self._training_samples}",
                "pass like= the same data",
            )
        self._require_like(view)
        mixed = view.mixed(*self._uploads())
        self._require_labels(View(mixed))
        self._remember("mix")
        return mixed

    def uploads(self) -> tuple[list[Any], list[int]]:
        """The extra items, and the secret order of real ones (their numbers) and extra ones (the
        numbers after them): what `mix` mixes.
        """
        made = self._uploads()
        self._remember("mix")
        return made

    def _uploads(self) -> tuple[list[Any], list[int]]:
        extras = self._made(self._samples.uploads())
        order = np.frombuffer(self._samples.order(self._training_samples), np.int64).tolist()
        return extras, order

    def make(self) -> list[Any]:
        """The extra items alone, in a secret order, for data that are mixed by other means.

        Put them at places that nobody can guess: `mix` does that.
        """
        uploads = self._samples.uploads()
        order = np.frombuffer(self._samples.order(0), np.int64).tolist()
        made = self._made([uploads[place] for place in order])
        self._remember("make")
        return made

    @contextlib.contextmanager
    def using(self) -> Iterator[None]:
        """What `uploads` and `make` give in this block counts as a use of the key only if the block
        ends well: data that could not be written are none. Who is killed on the way has used it.
        """
        before, recorded = self._key.known(), self._recorded
        try:
            yield
        except Exception:
            with self._key.changing() as known:
                if known["uses"][:-1] == before["uses"]:  # nobody else has used it since
                    known["uses"] = before["uses"]
                    known.pop("task", None)
                    known.update({name: before[name] for name in ("task",) if name in before})
            self._recorded = recorded
            raise

    def _made(self, uploads: Sequence[tuple[int, int, int]]) -> list[Any]:
        places = np.array([(0, index, copy) for index, copy, _ in uploads], np.int64)
        return self._form.made(self.generated(places), self._labels(uploads))

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
        return [self._key.seed(f"label {index}") % len(known) for index, _, _ in uploads]

    def _require_labels(self, mixed: View) -> None:
        """Not all labels are read before, where reading items takes long."""
        if self._form.classes == 0:
            return
        found, _ = counted(mixed, self._form.items, len(mixed))
        unknown = sorted(set(found) - set(self._form.labels))
        if unknown:
            raise UsageError(
                f"the data have a label {unknown[0]!r}, which is none of the "
                f"{self._form.classes} classes that the task was made for",
                "pass classes=, where not all items could be looked at",
            )

    def _require_like(self, view: View) -> None:
        own, items = self._form, self._form.items
        for index in {0, len(view) // 2, len(view) - 1}:
            value = items.input_of(view[index])
            made = own.content.inputs(self.generated(np.array([[1, 0, 0]])))[0]
            made = made[:-1] if own.pairs else made
            if carrier_of(value) == carrier_of(made) == "str":
                continue
            if carrier_of(value) != carrier_of(made) or any(
                getattr(value, name, None) != getattr(made, name, None)
                for name in ("dtype", "shape", "mode", "size")
                if not callable(getattr(made, name, None))
            ):
                raise UsageError(
                    f"sample {index} is {_described(value)}, the extra samples {_described(made)}",
                    "pass like= the same data",
                )

    def _remember(self, what: str) -> None:
        task = self.record()
        with self._key.changing() as known:
            if known["uses"]:
                warnings.warn(
                    f"{self._key.path} was used before: two data sets with the same extra samples "
                    "show which ones these are; use a new key for every model",
                    stacklevel=3,
                )
            known["task"] = task
            self._key.used(known, what)
        self._recorded = task


def _described(value: Any) -> str:
    parts = [type(value).__name__]
    if hasattr(value, "dtype"):
        parts.append(str(value.dtype))
    if hasattr(value, "shape"):
        parts.append(str(list(value.shape)))
    return " ".join(parts)
