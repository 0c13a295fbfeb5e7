# SPDX-License-Identifier: Apache-2.0
"""The prover's story, and a client who believes it.

Some rules say that the verifier uses its own word: its data, its batch order, its recipe. To prove
that such a rule is what stops a forgery, a test build can switch it off; the scene then verifies as
a client without that rule would, who takes the story told here for what was agreed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from .. import _core
from .._job._job import Job
from .._task._schedule import Schedule
from .._task._task import Task

if TYPE_CHECKING:
    from .._job._session import Session

Build = Callable[[], Task]
Order = Callable[[int], Sequence[int]]


@dataclass(frozen=True)
class Story:
    """What a prover claims in place of what was agreed.

    Attributes:
        build: The prover's task, believed when "agreed.recipe" or "agreed.data" is off.
        sample_ids: Sample ids of a step, believed when "agreed.batch_order" is off.
    """

    build: Build | None = None
    sample_ids: Order | None = None

    def believed(self, job: Job, build: Build) -> tuple[Job, Build]:
        """The client's job and task, as far as rules are in force, and the prover's word for the
        rest. A release build has all rules in force.
        """
        own_word = _core.rule_enabled("agreed.recipe") and _core.rule_enabled("agreed.data")
        told = None if own_word else self.build
        order = None if _core.rule_enabled("agreed.batch_order") else self.sample_ids
        if told is None and order is None:
            return job, build
        return _Credulous(job, any_task=told is not None, order=order), told or build


class _Credulous(Job):
    """A client's job without the client's own word.

    Args:
        job: The client's.
        any_task: Whether every task passes for the agreed one.
        order: Names the samples of each step; None for the agreed ones.
    """

    def __init__(self, job: Job, *, any_task: bool, order: Order | None) -> None:
        super().__init__(job.core, initial=job.initial)
        self._any_task = any_task
        self._order = order

    def differences(self, session: Session, *, weights: bool = True) -> list[str]:
        return [] if self._any_task else super().differences(session, weights=weights)

    def schedule(self, task: Task) -> Schedule:
        agreed = super().schedule(task)
        if self._order is None:
            return agreed
        same = {one.name: getattr(agreed, one.name) for one in fields(Schedule)}
        return _ToldSchedule(**same, told=self._order)


@dataclass(frozen=True, kw_only=True)
class _ToldSchedule(Schedule):
    told: Order

    def sample_ids(self, step: int) -> list[int]:
        return list(self.told(step))
