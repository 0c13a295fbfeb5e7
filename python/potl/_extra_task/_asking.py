# SPDX-License-Identifier: Apache-2.0
"""Asking a model about extra samples and controls, in a secret order."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

import numpy as np

from .._base._errors import UsageError
from ._base import ExtraParts, Ints
from ._data import through_pillow
from ._predict import Ask, Floats, asked, evaluating, of_model, prepared, require_module, settled

BATCH = 256
_AT_ONCE = 1 << 26  # bytes


class Asking(ExtraParts):
    """`answers` and what they need."""

    def answers(
        self,
        model: Any = None,
        *,
        predict: Ask | None = None,
        batch_size: int = BATCH,
        transform: Callable[[Any], Any] | None = None,
    ) -> tuple[Floats, Floats]:
        """Answers for all extra and all control samples, in order of indices. Judges nothing."""
        if (model is None) == (predict is None):
            raise UsageError(
                "verify takes either a model or predict=",
                "pass a torch module, or predict= a function of a list of inputs",
            )
        if isinstance(batch_size, bool) or not isinstance(batch_size, Integral) or batch_size < 1:
            raise UsageError(f"batch_size is {batch_size!r}", "pass a whole number, 1 or more")
        batch_size = int(batch_size)
        if predict is not None:
            if not callable(predict):
                raise UsageError(
                    f"predict is a {type(predict).__name__}", "pass a function of a list of inputs"
                )
            if transform is not None or self._transform_given:
                raise UsageError(
                    "transform= is for torch modules: predict gets inputs as they were uploaded",
                    "leave transform= out, and transform inputs in predict",
                )
            return self._ask(predict, None, batch_size)
        require_module(model)
        transform = self.as_asked(transform)
        with evaluating(model):
            return self._ask(
                of_model(model, self._form, plain=transform is None),
                None if transform is None else prepared(transform),
                batch_size,
                whole=True,
            )

    def as_asked(self, transform: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
        """What makes a model's input of a stored one; None: nothing has to."""
        transform = transform or self._transform
        if not self._through_pillow:
            return transform
        if transform is None:
            raise UsageError(
                "the data were transformed by their data set, which is not here",
                "pass transform=, as in evaluation",
            )
        chosen, axes = transform, getattr(self._form.content, "axes", "")

        def from_pillow(value: Any) -> Any:
            # Some data sets of torchvision store channels first.
            return chosen(through_pillow(np.moveaxis(value, 0, -1) if axes == "CHW" else value))

        return from_pillow

    def questions(self) -> list[tuple[str, int]]:
        """("extra" | "control", index) of every question, in the secret order of asking."""
        return [(("extra", "control")[which], index) for which, index, _ in self._asked.tolist()]

    @functools.cached_property
    def _asked(self) -> Ints:
        """The same as places."""
        count, controls = self._planned.samples, self._planned.controls
        places = np.zeros((count + controls, 3), np.int64)
        places[count:, 0] = 1
        places[:, 1] = np.concatenate([np.arange(count), np.arange(controls)])
        shuffled = np.random.Generator(np.random.Philox(key=self._key.seed("order") % 2**128))
        return places[shuffled.permutation(len(places))]

    def inputs(self, questions: Sequence[tuple[str, int]]) -> list[Any]:
        """What a model is asked."""
        places = [(int(which == "control"), index, 0) for which, index in questions]
        return list(self._form.content.inputs(self.generated(np.array(places, np.int64))))

    def _ask(
        self,
        ask: Ask,
        prepare: Callable[[Any], Any] | None,
        batch_size: int,
        *,
        whole: bool = False,
    ) -> tuple[Floats, Floats]:
        """Asks about all; `whole`: `ask` takes a batch as one tensor where the data have tensors or
        arrays.
        """
        places = self._asked
        # As many as fit at once: between batches the cores are the model's.
        size = self._form.content.empty(1).nbytes
        many = max(1, _AT_ONCE // size // batch_size) * batch_size
        found = []
        for start in range(0, len(places), many):
            raw = self.generated(places[start : start + many])
            for at in range(0, len(raw), batch_size):
                inputs = self._form.content.inputs(raw[at : at + batch_size])
                shown = inputs if whole else list(inputs)
                found.append(asked(ask, shown, self._form, prepare))
        if len({one.ndim for one in found}) != 1:
            raise UsageError("answers to some batches are numbers, to others columns", "")
        return self.sorted(np.concatenate(found))

    def sorted(self, values: Floats) -> tuple[Floats, Floats]:
        """Answers in the order of `questions`, as those of extra and of control samples."""
        places, values = self._asked, settled(values, self._form)
        if len(values) != len(places):
            raise UsageError(f"{len(places)} questions have {len(values)} answers", "")
        extra, control = np.empty(self._planned.samples), np.empty(self._planned.controls)
        for which, out in enumerate((extra, control)):
            own = places[:, 0] == which
            out[places[own, 1]] = values[own]
        return extra, control
