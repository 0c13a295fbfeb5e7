# SPDX-License-Identifier: Apache-2.0
"""Whether the body of a prover's loop leaves the training as it is: a replay knows no body."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _core
from .._base._errors import NotReplayable, Problem
from .._task._trees import first_difference, is_option

if TYPE_CHECKING:
    from .._job._session import Session


class Untouched:
    """Compares the state behind a body with the recorded one where something was written to, and
    behind the first body in any case: torch counts no writes through `.data`.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._before: object = None
        self._is_first = True

    def look(self) -> None:
        """Before a body."""
        self._before = None if self._is_first else self._marks()
        self._is_first = False

    def require(self, step: int, recorded: _core.State | bytes) -> None:
        """Behind a body that another step follows.

        Args:
            step: The last one.
            recorded: The state after it, or its digest.

        Raises:
            NotReplayable: It is another.
        """
        if self._before is not None and self._before == self._marks():
            return
        now = self._session.capture()
        if isinstance(recorded, bytes):
            place = None if now.digest() == recorded else "the state"
        else:
            place = first_difference(recorded.tree(), now.tree())
        if place is not None:
            raise NotReplayable(
                Problem(
                    what="the body of the loop changed it, and a verifier would reject the run",
                    where=f"{place} after step {step}",
                    remedy="change it in an overridden Task.step, or by scheduler=; what an "
                    "evaluation changes has to be put back before the next step",
                )
            )

    def _marks(self) -> object:
        """What torch counts of writes, and the options of the optimizers."""
        task = self._session.task
        tensors = (*task.model.parameters(), *task.model.buffers())
        return (
            [one._version for one in tensors if not one.is_inference()],
            [
                {name: value for name, value in group.items() if is_option(value)}
                for optimizer in task.optimizers
                for group in optimizer.param_groups
            ],
        )
