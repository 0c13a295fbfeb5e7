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
_READING = "__getattribute__"
_METHODS = ("step", "compute_loss", "micro_batches", "update", "autocast_context")


@contextlib.contextmanager
def reads(task: Task) -> Iterator[set[str]]:
    """The names of the task's attributes that are read meanwhile.

    Args:
        task: Whose class looks at them within, if it overrides anything.
    """
    kind = type(task)
    if not any(overrides(task, name) for name in _METHODS):
        yield set(_USES)  # as the default methods do
        return
    read: set[str] = set()
    own = vars(kind).get(_READING)
    before = kind.__getattribute__

    def look(self: Task, name: str) -> object:
        read.add(name)
        return before(self, name)

    # The class itself: a subclass is no `type(task)`, may be registered, and a task may be frozen.
    type.__setattr__(kind, _READING, look)
    try:
        yield read
    finally:
        if own is None:
            type.__delattr__(kind, _READING)
        else:
            type.__setattr__(kind, _READING, own)


def unused(task: Task, read: set[str]) -> Problem | None:
    """What is wrong if an option was given that was not read.

    Args:
        task: Of the steps.
        read: What they read.
    """
    if "__dict__" in read:  # vars(self), which shows all of them
        return None
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
