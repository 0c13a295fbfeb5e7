# SPDX-License-Identifier: Apache-2.0
"""Python attributes that act once they are large: a count that unfreezes a layer at step 1,000, a
list from which a step draws once it is long. Two steps do not show that they are state."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .._base._errors import Problem

if TYPE_CHECKING:
    from .._task._task import Task

# What a count may come to: a multiple of all numbers up to 16, and what becomes one next.
_COUNTS = (1_441_440, 1_441_439)
# What a list may come to; of more, a step that stacks them could need more memory than there is.
_LENGTH = 64

Attributes = list[dict[str, object]]


def attributes(task: Task) -> Attributes:
    """What objects that could keep state have as attributes: of lists the length."""
    return [{name: _size(value) for name, value in vars(one).items()} for one in _holders(task)]


def acting_later(
    first: Task,
    second: Task,
    before: Attributes,
    changed: Callable[[], bool],
    keep_it: str,
) -> Problem | None:
    """What training changed in Python attributes, if a step does something else once it is large.

    Args:
        first: Has trained.
        second: Has trained as well; its attributes are changed.
        before: Of the second one, before it trained.
        changed: Repeats a step of the second one from a restored state. Whether it ends in another
            state; whatever it raises came from what was changed.
        keep_it: The remedy.
    """
    counts: list[tuple[Any, str]] = []
    lists: list[tuple[Any, str, Any]] = []
    for there, here, was in zip(_holders(first), _holders(second), before, strict=True):
        for name, value in vars(there).items():
            # What the class declares is the object's own from the first assignment on.
            old = was[name] if name in was else _size(getattr(type(there), name, None))
            if type(value) in (int, float) and old != value:
                counts.append((here, name))
            elif isinstance(value, (list, deque)) and value and old != len(value):
                lists.append((here, name, value[0]))

    def acts() -> bool:
        try:
            return changed()
        except Exception:
            return True

    for count in _COUNTS if counts else ():
        for thing, name in counts:
            setattr(thing, name, count)
        if acts():
            return _problem("a number that counts up", *counts[0], keep_it)
    for thing, name, item in lists:
        kept = getattr(thing, name, None)
        if isinstance(kept, (list, deque)):
            kept.extend([item] * _LENGTH)
            if acts():
                return _problem("a list that grows", thing, name, keep_it)
    return None


def _problem(what: str, thing: Any, name: str, remedy: str) -> Problem:
    return Problem(
        what=f"{what} during training changes what a step does, and no checkpoint holds it",
        where=f"{type(thing).__name__}.{name}",
        remedy=remedy,
    )


def _size(value: object) -> object:
    return len(value) if isinstance(value, (list, deque)) else value


def _holders(task: Task) -> list[Any]:
    """Objects in whose attributes a task could keep state."""
    return [*task.model.modules(), task, *([task.loss] if hasattr(task.loss, "__dict__") else [])]
