# SPDX-License-Identifier: Apache-2.0
"""More steps than two, in one go and from restored states. Wherever a task keeps what no checkpoint
holds, in an array, a closure, an iterator or a global variable, the task that restored a state has
another past, and goes on otherwise as soon as that acts.

Does not see what acts after these steps alone. Nor what rests on the clock, if it gives both the
same.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from .._task._trees import first_difference, same_float

if TYPE_CHECKING:
    from .. import _core
    from ._session import Session

# Steps that are tried: a multiple of usual periods. From the sixth on, what some seconds allow.
_MORE, _LEAST, _SECONDS = 60, 6, 5.0
# After which of them a state is captured: a task goes on from the last one.
_MIDDLES = (3, 6, 12, 24)


class _HasLoss(Protocol):
    @property
    def loss(self) -> float: ...


class MoreSteps:
    """Steps of a task after its first two.

    Args:
        session: Has done two.
        early: The state after the first.
        losses: Of these two.

    Attributes:
        losses: Of all steps.
        end: The state after them.
        repeated: Steps that the other task began.
    """

    def __init__(self, session: Session, early: _core.State, losses: list[float]) -> None:
        self.losses, self._session = [*losses], session
        self._early = self._late = self.end = early
        self._middle, self.repeated = 1, 0

    def train(self, run: Callable[[Session, int], _HasLoss]) -> bool:
        """Does them, with `run`.

        Returns:
            Whether they tell anything: there are some, and no loss is NaN or infinite.
        """
        session, began = self._session, time.monotonic()
        for step in range(3, min(session.task.steps, _MORE) + 1):
            if step > _LEAST and time.monotonic() - began > _SECONDS:
                break
            if session.step in _MIDDLES:
                self._late, self._middle = session.capture(), session.step
            self.losses.append(run(session, step).loss)
            if not math.isfinite(self.losses[-1]):
                return False
        self.end = session.capture()
        return len(self.losses) > 2

    def in_step(self, repeats: int) -> bool:
        """Whether what goes round, as a cycle over ten prompts, may be where it was.

        Args:
            repeats: Steps that the other task has done.
        """
        return math.gcd(self._middle - repeats, _MORE) != 1

    def difference(self, other: Session) -> str | None:
        """Where another task comes out otherwise.

        It goes on from the last state that was captured: what it keeps is younger. And from the
        first one to there: what it shares with the other task is older.
        """
        return self._between(other, self._late, len(self.losses), self.end) or self._between(
            other, self._early, self._middle, self._late
        )

    def _between(
        self, other: Session, before: _core.State, last: int, end: _core.State
    ) -> str | None:
        other.restore(before)
        for step in range(other.step + 1, last + 1):
            self.repeated += 1
            loss = other.run_step(step, other.sample_ids(step)).loss
            if not same_float(loss, self.losses[step - 1]):
                return f"the loss of step {step}"
        return difference(end, other)


def difference(state: _core.State, session: Session) -> str | None:
    """The first place where a session holds something else than a state."""
    if state.would_equal(session.tree()):
        return None
    return first_difference(state.tree(), session.capture().tree())
