# SPDX-License-Identifier: Apache-2.0
"""Whether a recording still makes the batch with which it began: a replay opens the data anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .. import _core
from .._base._errors import NotReplayable
from .._job._same_batches import SameBatches

if TYPE_CHECKING:
    from .._job._session import Session


class SameData:
    """Makes the first batch of a recording again at the first state that is stored, after twice as
    many steps each time, and at the last state.

    Args:
        session: Has not made a batch. The workers of `num_workers=` are not looked at: they have
            data of their own.
        first: The step that comes next.
        state: The one before it.
        stored: Reads the state after a step.
    """

    def __init__(
        self,
        session: Session,
        first: int,
        state: _core.State,
        stored: Callable[[int], _core.State],
    ) -> None:
        self._batches: SameBatches | None = None
        if session.task.num_workers == 0:
            self._batches = SameBatches(session, first, state)
        self._last = session.schedule.steps
        self._begin = self._due = first
        self._stored = stored

    def see(self, step: int, state: _core.State) -> None:
        """The next state that is stored, or the last one.

        Raises:
            NotReplayable: The batch is another one.
        """
        if self._batches is None or (step < self._due and step != self._last):
            return
        self._due = 2 * step - self._begin + 1
        problem = self._batches.problem(state, lambda: self._stored(self._begin - 1))
        if problem is not None:
            raise NotReplayable(problem)
