# SPDX-License-Identifier: Apache-2.0
"""Python attributes that act once they are large: a count that unfreezes a layer from step 1,000
on, or in every 500th; a list from which a step draws once it is long. Two steps do not show that
they are state."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeGuard

from torch import nn

from .._base._errors import Problem
from .._task._capture import is_torchs

if TYPE_CHECKING:
    from .._task._task import Task

# What a count may come to, a multiple of the usual periods up to 2,000, and what becomes one next;
# and what a float beside it may: an average of losses, which tells a spike, is also small.
_MANY, _SMALL = 1_386_000, 1e-6
_SIZES = ((_MANY, _MANY), (_MANY - 1, _MANY - 1), (_MANY, _SMALL))
# What a list may come to; of more, a step that stacks them could need more memory than there is.
_LENGTH = 64

Attributes = list[dict[str, object]]


class _Far(int):
    """A large count that also equals what it came to on its way, as in `n == 500`, but not what the
    first steps showed, as in `if n == 1 ... elif`.
    """

    shown = range(0)

    def _passed(self, other: object) -> bool:
        return type(other) is int and 0 <= other < _MANY and other not in self.shown

    def __eq__(self, other: object) -> bool:
        return self._passed(other) or super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self._passed(other) and super().__ne__(other)

    __hash__ = int.__hash__

    def __add__(self, other: Any) -> Any:
        total = super().__add__(other)
        return total if total is NotImplemented else _far(total, self.shown)


def _far(count: int, shown: range) -> _Far:
    far = _Far(count)
    far.shown = shown
    return far


def attributes(task: Task) -> Attributes:
    """What objects that could keep state have as attributes: of lists the length."""
    return [{name: _size(value) for name, value in vars(one).items()} for one in holders_of(task)]


def acting_later(
    first: Task,
    second: Task,
    before: Attributes,
    middle: Attributes,
    changed: Callable[[], bool],
    keep_it: str,
) -> Problem | None:
    """What training changed in Python attributes, if a step does something else once it is large.

    Args:
        first: Has trained.
        second: Has trained as well; its attributes are changed.
        before: Of the second one, before it trained.
        middle: Of the first one, after the first of its two steps; the second one made the other.
        changed: Repeats a step of the second one from a restored state. Whether it ends in another
            state; whatever it raises came from what was changed.
        keep_it: The remedy.
    """
    counts: list[tuple[Any, str, Any]] = []
    shown: dict[tuple[int, str], range] = {}
    lists: list[tuple[Any, str, Any]] = []
    full: list[tuple[Any, str, Any]] = []
    holders = [*zip(holders_of(first), holders_of(second), strict=True)]
    for (there, here), was, then in zip(holders, before, middle, strict=True):
        for name, value in vars(there).items():
            # What the class declares is the object's own from the first assignment on.
            old = was[name] if name in was else _size(getattr(type(there), name, None))
            if type(value) in (int, float) and old != (now := _size(value)):
                if type(value) is int:
                    low, high = sorted((value, old if type(old) is int else value))
                    shown[id(here), name] = range(low, high + 1)
                # What each step makes the same, whichever went before, is no count: a width.
                if not now == then.get(name) == _size(vars(here).get(name)):
                    counts.append((here, name, value))
            elif _is_list(value) and value and old != (now := len(value)):
                is_full = now == then.get(name) == _size(vars(here).get(name))
                (full if is_full else lists).append((here, name, value[0]))
    lengths = [_size(vars(thing).get(name)) for thing, name, _ in full]

    def acts() -> str | None:
        try:
            return "" if changed() else None
        except Exception as error:
            return f"{type(error).__name__}: {error}".splitlines()[0]

    for count, other in _SIZES:
        grown = counts
        if other == _SMALL and all(type(value) is int for *_, value in counts):
            break
        while grown:
            for thing, name, value in counts:
                far = type(value) is int and count == _MANY
                big = count if type(value) is int else other
                seen = shown.get((id(thing), name), range(0))
                setattr(thing, name, _far(count, seen) if far else big)
            how = acts()
            if how is not None:
                what = "a number that counts up" if other == count else "a number that moves"
                return _problem(what, how, [one[:2] for one in counts], keep_it)
            # What moves with a count is one as well: epochs by batches, steps without a new best.
            known = {(id(thing), name) for thing, name, _ in counts}
            grown = [one for one in _moved(holders) if (id(one[0]), one[1]) not in known]
            counts = [*counts, *grown]
    # What each step makes as long, such as a grid for inputs of a size, grows if a count says so.
    after = [_size(vars(thing).get(name)) for thing, name, _ in full]
    lists += [one for one, was, now in zip(full, lengths, after, strict=True) if was != now]
    longer: list[tuple[Any, list[Any]]] = []
    # Together, because those of one log are as long as each other.
    for thing, name, item in lists:
        kept = vars(thing).get(name)
        if _is_list(kept):
            longer.append((kept, [*kept]))
            kept.extend([item] * _LENGTH)
    how = acts() if lists else None
    # Put back: an object that both tasks share, such as a global loss, goes on in the training.
    for thing, name, value in counts:
        setattr(thing, name, value)
    for kept, items_before in longer:
        kept.clear()
        kept.extend(items_before)
    return (
        None
        if how is None
        else _problem("a list that grows", how, [one[:2] for one in lists], keep_it)
    )


def _moved(holders: list[tuple[Any, Any]]) -> list[tuple[Any, str, Any]]:
    """Numbers of the second task that are not those of the first, which are named last."""
    found = []
    for there, here in holders:
        for name, value in vars(here).items():
            was = vars(there).get(name, getattr(type(there), name, None))
            if {type(value), type(was)} <= {int, float} and _size(value) != _size(was):
                found.append((here, name, was))
    return found


def _problem(what: str, how: str, kept: list[tuple[Any, str]], keep_it: str) -> Problem:
    return Problem(
        what=f"{what} during training "
        + ("makes a step fail, so it may change" if how else "changes")
        + " what a step does, and no checkpoint holds it"
        + (f": {how}" if how else ""),
        where=", ".join(f"{type(thing).__name__}.{name}" for thing, name in kept),
        remedy=f"{keep_it}; if it is only a log, or only ends the training, keep it in the body of "
        "a loop around Prover.steps()",
    )


def _size(value: object) -> object:
    if type(value) is float and math.isnan(value):
        return "NaN"  # which equals itself
    if isinstance(value, _Far):
        return int(value)
    return len(value) if _is_list(value) else value


def _is_list(value: object) -> TypeGuard[list[Any] | deque[Any]]:
    return isinstance(value, (list, deque))


def holders_of(task: Task) -> list[Any]:
    """Objects in whose attributes a task could keep state. Those of torch's hide none."""
    beside = [task.loss, *task.state.values()]
    beside += [one for one in (*task.optimizers, *task.schedulers) if not is_torchs(one)]
    beside += task.ema.modules() if isinstance(task.ema, nn.Module) else [task.ema]
    return [*task.model.modules(), task, *(one for one in beside if hasattr(one, "__dict__"))]
