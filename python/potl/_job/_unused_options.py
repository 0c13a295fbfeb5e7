# SPDX-License-Identifier: Apache-2.0
"""Whether a step uses the options of its task that only the default methods act on.

A job states them. What is agreed as bfloat16 and trained in float32, because a `compute_loss` of
the user's own enters no autocast, would be another training than client and trainer believe.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from .._base._errors import Problem
from .._task._task import Task, overrides

# Not average, scheduler and scaler: a step may begin with them later than it is looked at.
_USES = {
    "autocast": "compute the loss within `with self.autocast_context():`",
    "grad_clip": "end the step with self.update(loss), which clips, or clip to self.grad_clip",
    "accumulate": "take the parts of the batch from self.micro_batches(batch)",
}
_METHODS = ("step", "compute_loss", "micro_batches", "update", "autocast_context")


@contextlib.contextmanager
def reads(task: Task) -> Iterator[set[str]]:
    """The names of the task's attributes that are read meanwhile.

    Args:
        task: Whose class is another within, if it overrides anything.
    """
    kind = type(task)
    read: set[str] = set()

    def look(self: Task, name: str) -> object:
        read.add(name)
        return kind.__getattribute__(self, name)

    read |= _USES.keys()  # as the default methods do
    if any(overrides(task, name) for name in _METHODS):
        # A class may refuse to have subclasses: then nothing is known.
        with contextlib.suppress(TypeError):
            task.__class__ = type(kind.__name__, (kind,), {"__getattribute__": look})
            read.clear()
    try:
        yield read
    finally:
        task.__class__ = kind


def unused(task: Task, read: set[str]) -> Problem | None:
    """What is wrong if an option was given that was not read.

    Args:
        task: Of the steps.
        read: What they read.
    """
    given = {
        "autocast": task.autocast is not None,
        "grad_clip": task.grad_clip is not None,
        "accumulate": task.accumulate > 1,
    }
    for name, use in _USES.items():
        if given[name] and name not in read:
            own = [method for method in _METHODS if overrides(task, method)]
            return Problem(
                what=f"{name}= is given, and a step does not use it",
                where=f"Task.{'compute_loss' if own == ['compute_loss'] else own[0]}",
                remedy=f"{use}, or leave {name}= out",
            )
    return None
