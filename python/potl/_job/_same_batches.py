# SPDX-License-Identifier: Apache-2.0
"""Whether data code makes the same batch whatever it made before.

A replay opens the data anew, in another process. A transform that counts its calls and does
something else from the 1,000th on, a curriculum by the samples drawn, or a data set that the body
of a loop changes makes other batches there, and an honest run would be rejected. So one batch is
made before all others and once more later: by the check of a task after some hundred samples, by
who records now and then, by a verifier before its own bits are held against a run.

Costs a batch each time. Does not see what acts only in the workers of `num_workers=`, nor what is
over when the batch is made again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils._pytree import tree_map

from .. import _core
from .._base._errors import NotReplayable, Problem
from .._task._sample_bytes import sample_bytes

if TYPE_CHECKING:
    from ._session import Session


class SameBatches:
    """Makes a batch now, and again when it is asked to. The state stays as it is.

    Args:
        session: Whose data code makes it.
        step: Of the batch.
        state: What the session holds.
    """

    def __init__(self, session: Session, step: int, state: _core.State) -> None:
        self._session = session
        self._step = step
        self._first: Any = None
        self._digest: bytes | None = None
        if session._has_plain_batches:
            return
        batch = self._made(state)
        try:
            self._digest = _digest(batch)
        except NotReplayable:  # a type that cannot be compared
            return
        if not session.is_reproducible:
            self._first = tree_map(_copied, batch)  # a collate_fn may fill its memory again

    def problem(self, now: _core.State, then: Callable[[], _core.State]) -> Problem | None:
        """What is wrong with the data code, if it makes another batch now.

        Args:
            now: What the session holds.
            then: What it held when the batch was made first. Code may look at the state.
        """
        if self._digest is None or not self._differs(now):
            return None
        self._session.restore(then())
        try:
            if not self._differs(then()):
                return None
        finally:
            self._session.restore(now)
        return Problem(
            what=f"the batch of step {self._step} is another one when it is made again after "
            "others. Something that data code reads counts them, or was changed meanwhile, and a "
            "replay opens the data anew",
            where="dataset, transform or collate_fn",
            remedy="let a sample depend on its index and on what potl seeds (torch, random, "
            "numpy.random) alone; what depends on the step belongs into Task.step, with a count in "
            "a buffer, and an order that depends on the epoch into sampler=",
        )

    def _made(self, state: _core.State) -> Any:
        batch = self._session.batch(self._step, self._session.sample_ids(self._step))
        if not state.would_equal(self._session.tree()):  # an object in state= counts reads
            self._session.restore(state)
        return batch

    def _differs(self, state: _core.State) -> bool:
        again = self._made(state)
        if _digest(again) == self._digest:
            return False
        if self._session.is_reproducible:
            return True
        try:  # within a tolerance, where a last bit is no matter
            torch.testing.assert_close(again, self._first, equal_nan=True)
        except (AssertionError, TypeError, ValueError):
            return True
        return False


def other_batch(one: Session, other: Session, step: int) -> bool:
    """Whether two sessions make different batches. False if these cannot be compared."""
    try:
        a, b = (_digest(made.batch(step, made.sample_ids(step))) for made in (one, other))
    except NotReplayable:  # a type without canonical bytes
        return False
    return a != b


def _digest(batch: Any) -> bytes:
    return hashlib.sha256(sample_bytes(batch, "batch")).digest()


def _copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    return value.copy() if isinstance(value, np.ndarray) else value
