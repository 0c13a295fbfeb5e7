# SPDX-License-Identifier: Apache-2.0
"""Whether the body of a prover's loop leaves the training as it is: a replay knows no body."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

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
        """What torch counts of writes and holds in place of tensors, and plain numbers beside."""
        task = self._session.task
        tensors = [
            one
            for root in (task.model, task.ema, task.loss, *task.state.values())
            if isinstance(root, nn.Module)
            for one in (*root.parameters(), *root.buffers())
        ]
        numbers = [group for optimizer in task.optimizers for group in optimizer.param_groups]
        numbers += [getattr(one, "__dict__", {}) for one in task.schedulers]
        return (
            [_Held(one) for one in tensors],
            [{name: value for name, value in one.items() if is_option(value)} for one in numbers],
        )


class _Held:
    """A tensor as it is now. It is kept, so that what takes its place is no equal of it."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor
        version = 0 if tensor.is_inference() else tensor._version
        place = tensor.data_ptr() if tensor.layout is torch.strided else 0  # `.data = ...` moves it
        self._now = version, place

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, _Held)
        return self._tensor is other._tensor and self._now == other._now
