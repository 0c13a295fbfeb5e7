# SPDX-License-Identifier: Apache-2.0
"""Digests of a job's first batches, where code of the user's computes them.

In an exact arithmetic a step has the same bits everywhere. What `transform=`, `collate_fn=` or a
data set computes before the step need not: NumPy's exp and anybody's product of matrices depend on
the processor. So the job pins its first batches. A machine that makes others of the same data says
so before anything is trained or judged, where a replay would reject an honest trainer
(docs/decisions/0047-an-exact-job-pins-its-first-batches.md).

Does not see a difference that shows in later batches alone. What a data set returns without drawing
random numbers needs no digest here: the data root has all of it.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torch.utils.data import default_collate

from .. import _core
from .._base._errors import MalformedError, NotReplayable
from .._task._portable import Watcher
from .._task._sample_bytes import sample_bytes
from .._task._schedule import Schedule
from .._task._task import Task
from ._batches import Batches
from ._recipe import environment, short

if TYPE_CHECKING:
    from ._session import Session

# How many batches are pinned, in trainings that have as many.
COUNT = 4
_NAME = "first_batches"
_REMEDY = "compute it in integers, or prepare the data once and store them"
# Of what a job notes of the machine that made it: what the bits may depend on.
_MACHINE = ("machine", "instructions", "python", "torch", "numpy")

_log = logging.getLogger("potl")
_said: set[str] = set()


def pins_of(task: Task, schedule: Schedule) -> dict[str, _core.Json]:
    """What the description of a task in an exact job says of its first batches.

    Warns of what may have other bits elsewhere, as far as it shows: operators of torch do, NumPy's
    do not.

    Args:
        task: Whose code makes them.
        schedule: Which samples belong to a step, and whether reading one draws random numbers.
    """
    own_collate = task.collate_fn is not None and task.collate_fn is not default_collate
    if task.transform is None and not own_collate and not schedule.seeded_reads:
        return {}
    batches = Batches(task, schedule)
    pins: list[_core.Json] = []
    for step in range(1, min(COUNT, schedule.steps) + 1):
        batch = batches.of(step, schedule.sample_ids(step))
        try:
            pins.append(_digest(batch))
        except NotReplayable as error:
            _warn(
                f"{error.problems[0].what}. So the job cannot pin its first batches, and a trainer "
                "whose machine makes others would be rejected: let collate_fn= make batches of "
                "tensors, NumPy arrays, numbers, texts, tuples, lists or dicts"
            )
            return {}
    # Not while they are hashed: under the watcher libraries might take other ways.
    with Watcher() as watcher:
        batches.of(1, schedule.sample_ids(1))
    if watcher.operators:
        _warn(
            f"the code that makes batches uses {', '.join(sorted(watcher.operators))} of torch, "
            "whose bits may depend on the machine. A machine on which they have others will "
            f"refuse the job: {_REMEDY}"
        )
    return {_NAME: pins}


def batch_differences(session: Session, core: _core.Job) -> Iterator[str]:
    """One sentence if a first batch of a session has other bits than its job pins.

    Raises:
        MalformedError: The job pins something else than digests of its first batches.
    """
    for step, agreed in enumerate(_agreed(core), start=1):
        own = _made(session, step)
        if own != agreed:
            yield (
                _other_bits(core, step)
                if _made(session, step) == own
                else f"the batch of step {step} is another one each time that it is made: draw "
                "from torch, random or numpy.random only, which potl seeds"
            )
            return


def _other_bits(core: _core.Job, step: int) -> str:
    return (
        f"the batch of step {step} has other bits on this machine than on the one that "
        f"made the job, of the same code and data{other_machine(core)}. What transform=, "
        f"collate_fn= or the data set does to it depends on the machine: {_REMEDY}, or use "
        "a machine like that one"
    )


def _made(session: Session, step: int) -> str:
    try:
        return _digest(session.batch(step, session.sample_ids(step)))
    except NotReplayable:
        return "of no type that the job pins"


def _digest(batch: Any) -> str:
    return hashlib.sha256(b"potl.batch.v1\0" + sample_bytes(batch, "batch")).hexdigest()


def _agreed(core: _core.Job) -> list[str]:
    """What a job pins; the core takes any JSON object as a job's "task"."""
    pins = core.fields()["task"].get(_NAME, ())
    if pins == () or (
        isinstance(pins, list)
        and len(pins) == min(COUNT, core.steps)
        and all(isinstance(one, str) for one in pins)
    ):
        return [*pins]
    raise MalformedError(f"job: task/{_NAME} has no digest for each of the first batches", "")


def other_machine(core: _core.Job) -> str:
    """In what this machine differs from the one that made a job, in brackets; "": in nothing."""
    there, here = core.fields()["environment"], environment()
    other = [
        f"{name} {short(here[name])}, there {short(there[name])}"
        for name in _MACHINE
        if name in there and there[name] != here[name]
    ]
    return f" (here {'; '.join(other)})" if other else ""


def _warn(text: str) -> None:
    if text not in _said:
        _said.add(text)
        _log.warning("%s", text)
