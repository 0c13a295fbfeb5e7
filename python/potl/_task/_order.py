# SPDX-License-Identifier: Apache-2.0
"""The order of samples that a task brings itself: `shuffle=False`, or a sampler.

A sampler is asked once for each epoch, with every generator seeded from PRF(seed, "order", epoch)
and after `set_epoch(epoch)` where it has that. What it yields must follow from these alone. The job
binds the samples of every step by one digest, so that the audit compares all of them without the
sampler; who has the task recomputes the ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import _core
from .._base._errors import NotReplayable, Problem
from . import _random
from ._reading import reading

_REMEDY = (
    "yield whole numbers below len(dataset), len(sampler) of them in every epoch, that follow from "
    "set_epoch(epoch) or from torch, random and numpy.random (their global generators, which potl "
    "seeds) alone; where losses decide what is trained on, weigh the samples of a batch in "
    "Task.step, by numbers in a buffer"
)

BATCHES = (
    "pass what a BatchSampler was given: its sampler as sampler=, its batch size as batch_size=; "
    "let a class of your own yield the same indices one by one, and their number be its length; "
    "for batches of several sizes, let the data set return the list of a batch's samples, with "
    "batch_size=1 and a collate_fn= that is given [batch]"
)


class OwnOrder:
    """One task's order under one seed.

    Args:
        sampler: Yields the indices of an epoch; has a length.
        seed: The job's.
        count: Samples of the data set.
    """

    def __init__(self, sampler: Any, *, seed: int, count: int) -> None:
        self._sampler = sampler
        self._length = len(sampler)
        self._seed = seed
        self._count = count
        self._kept: tuple[int, Any] | None = None
        self._first: Any = None

    def of(self, epoch: int) -> Any:
        """The ids of an epoch, int64.

        Raises:
            NotReplayable: They are none, or not as many as the sampler's length.
        """
        if self._kept is None or self._kept[0] != epoch:
            self._kept = epoch, self._drawn(epoch)
        return self._kept[1]

    def digest(self, *, batch_size: int, steps: int, steps_per_epoch: int) -> bytes:
        """Over the samples of every step.

        Raises:
            NotReplayable: Two draws of one epoch differ.
        """
        self.require_repeatable()
        return _core.digest_of_order(self._batches(batch_size, steps, steps_per_epoch))

    def require_repeatable(self) -> None:
        """Draws the first epoch twice; once more if it is called again, after what may have changed
        the sampler.

        Raises:
            NotReplayable: The draws differ.
        """
        if self._first is None:
            self._first = self._drawn(0)
        if not np.array_equal(self._first, self._drawn(0)):
            raise self._problem("two draws of its first epoch differ")

    def _batches(self, batch_size: int, steps: int, steps_per_epoch: int) -> Iterator[Any]:
        for step in range(steps):
            epoch, place = divmod(step, steps_per_epoch)
            yield self.of(epoch)[place * batch_size : (place + 1) * batch_size]

    def _drawn(self, epoch: int) -> Any:
        with reading():
            _random.seed_all(_core.derive_key(self._seed, "order", epoch))
            if hasattr(self._sampler, "set_epoch"):
                self._sampler.set_epoch(epoch)
            drawn = list(self._sampler)
        if any(isinstance(one, (list, tuple)) for one in drawn):
            raise self._problem("it yields batches, where a task cuts them itself", BATCHES)
        try:
            ids = np.array([one.__index__() for one in drawn], dtype=np.int64)
        except (AttributeError, TypeError, OverflowError):
            raise self._problem("it yields something else than indices") from None
        # A length that follows the epoch would cut the steps before it otherwise.
        if not len(ids) == self._length == len(self._sampler):
            raise self._problem(
                f"it yields {len(ids)} indices in epoch {epoch}, its length is {self._length}"
            )
        if len(ids) == 0 or ids.min() < 0 or ids.max() >= self._count:
            raise self._problem(f"its indices are not those of {self._count} samples")
        return ids

    def _problem(self, what: str, remedy: str = _REMEDY) -> NotReplayable:
        name = type(self._sampler).__name__
        return NotReplayable(Problem(what=f"{name}: {what}", where="sampler", remedy=remedy))
