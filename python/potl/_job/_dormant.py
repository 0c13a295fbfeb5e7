# SPDX-License-Identifier: Apache-2.0
"""Python attributes that act once they are large: a count that unfreezes a layer from step 1,000
on, or in every 500th; a list from which a step draws once it is long. Two steps do not show that
they are state."""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

from .._base._errors import Problem
from ._holders import Path, Space, spaces_of

if TYPE_CHECKING:
    from .._task._task import Task

# What a count may come to, a multiple of the usual periods up to 2,000, and what a float beside it
# may: an average of losses, which tells a spike, is also small.
_MANY, _SMALL = 1_386_000, 1e-6
# Of all numbers the unit, whether later ones are larger, as a step may go by how far two of them
# are apart, and what each count has yet to do until it is a multiple.
_SIZES = ((_MANY, True, 0), (_MANY, False, 1), (_SMALL, True, 0), (_SMALL, False, 0))
# What a list may come to; of more, a step that stacks them could need more memory than there is.
_LENGTH = 64

Attributes: TypeAlias = "dict[Path, dict[Any, object]]"
_Place: TypeAlias = "tuple[Path, Any]"


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

    def __sub__(self, other: Any) -> Any:
        if not isinstance(other, _Far):
            return super().__sub__(other)
        low, high = self.shown.start - other.shown.stop, self.shown.stop - other.shown.start
        return _far(int(self) - int(other), range(low, high + 1))


def _far(count: int, shown: range) -> _Far:
    far = _Far(count)
    far.shown = shown
    return far


def attributes(task: Task) -> Attributes:
    """Numbers in the attributes of objects that could keep state, and how long lists are."""
    return {
        path: {name: _size(value) for name, value in space.items()}
        for path, space in spaces_of(task).items()
    }


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
    there, made = spaces_of(first), attributes(second)
    counts: dict[_Place, Any] = {}
    paces: dict[_Place, Any] = {}
    shown: dict[_Place, range] = {}
    lists: dict[_Place, Any] = {}
    full: dict[_Place, Any] = {}
    for path, space in there.items():
        was, then, here = (one.get(path, {}) for one in (before, middle, made))
        for name, value in space.items():
            # What the class declares is the object's own from the first assignment on.
            late = _size(getattr(space.kind, name, None)) if space.kind else then.get(name)
            old, now = was.get(name, late), _size(value)
            if old is None and space.kind is None:
                continue  # one more entry of a cache
            if now is None or old == now:
                continue
            # What each step makes the same, whichever went before, is no count: a width.
            is_same = now == then.get(name) == here.get(name)
            if _is_list(value):
                if value:
                    (full if is_same else lists)[path, name] = value[0]
            elif not is_same:
                counts[path, name] = value
                paces[path, name] = _pace(then.get(name), now)
                if isinstance(value, Integral):
                    low, high = sorted((int(value), old if isinstance(old, int) else int(value)))
                    shown[path, name] = range(low, high + 1)

    def put(values: dict[_Place, Any]) -> None:
        spaces = spaces_of(second)  # a step may have made them anew
        for (path, name), value in values.items():
            if path in spaces:
                spaces[path].values[name] = value

    def acts() -> str | None:
        try:
            return "" if changed() else None
        except Exception as error:
            return f"{type(error).__name__}: {error}".splitlines()[0]

    def problem(what: str, how: str, places: Iterable[_Place]) -> Problem:
        return Problem(
            what=f"{what} during training "
            + ("makes a step fail, so it may change" if how else "changes")
            + " what a step does, and no checkpoint holds it"
            + (f": {how}" if how else ""),
            where=", ".join(f"{there[path].name}.{name}" for path, name in places),
            remedy=f"{keep_it}; if it is only a log, or only ends the training, keep it in the "
            "body of a loop around Prover.steps()",
        )

    for unit, rising, missing in _SIZES:
        grown = counts
        if unit == _SMALL and all(isinstance(value, Integral) for value in counts.values()):
            break
        while grown:
            large: dict[_Place, Any] = {}
            for number, place in enumerate(counts if rising else reversed(counts), 1):
                big = number * _MANY - missing
                far = big if missing else _far(big, shown.get(place, range(0)))
                is_whole = isinstance(counts[place], Integral)
                large[place] = _like(counts[place], far if is_whole else number * unit)
            put(large)
            how = acts()
            if how:
                # No training comes to these numbers together: a log that takes a root may fail of
                # them. It does not of those of the last steps, nor of those behind: replays make
                # more steps than the training has.
                tried = []
                for step in (*_last(first.steps), 2 * first.steps):
                    put(
                        {
                            at: _like(n, n + (step - 2) * paces.get(at, 0))
                            for at, n in counts.items()
                        }
                    )
                    tried.append(acts())
                how = "" if "" in tried else tried[-1]
            if how is not None:
                what = "a number that counts up" if unit == _MANY else "a number that moves"
                return problem(what, how, counts)
            # What moves with a count is one as well: epochs by batches, steps without a new best.
            grown = {place: was for place, was in _moved(there, second) if place not in counts}
            counts.update(grown)
    # What each step makes as long, such as a grid for inputs of a size, grows if a count says so.
    after = attributes(second)
    lists |= {
        (path, name): item
        for (path, name), item in full.items()
        if after.get(path, {}).get(name) != made.get(path, {}).get(name)
    }
    # Put back: an object that both tasks share, such as a global loss, goes on in the training.
    put(counts)
    # Together, because those of one log are as long as each other; and with numbers like those that
    # a step compares its own with, such as losses.
    has_numbers = any(map(_is_number, lists.values()))
    for filler in (None, _MANY, _SMALL) if has_numbers else (None,):
        longer: list[tuple[Any, list[Any]]] = []
        spaces = spaces_of(second)
        for (path, name), item in lists.items():
            kept = spaces[path].values.get(name) if path in spaces else None
            if _is_list(kept):
                longer.append((kept, [*kept]))
                if filler is not None and _is_number(item):
                    item = _like(item, filler)
                kept.extend([item] * _LENGTH)
        how = acts() if longer else None
        for kept, items_before in longer:
            kept.clear()
            kept.extend(items_before)
        if how is not None:
            return problem("a list that grows", how, lists)
    return None


def _moved(there: dict[Path, Space], second: Task) -> Iterator[tuple[_Place, Any]]:
    """Numbers of the second task that are not those of the first, which are named last."""
    for path, space in spaces_of(second).items():
        if path in there:
            for name, value in space.items():
                was = there[path].values.get(name, getattr(space.kind, str(name), None))
                if _is_number(value) and _is_number(was) and _size(value) != _size(was):
                    yield (path, name), was


def _size(value: object) -> object:
    """What tells whether a number or a list was changed; None of anything else."""
    if _is_list(value):
        return len(value)
    if not _is_number(value):
        return None
    if isinstance(value, Integral):
        return int(value)
    return "NaN" if math.isnan(value) else value  # which equals itself


def _pace(before: Any, after: Any) -> int:
    """By how much a number rises in a step, if that is a whole number: it counts something."""
    rise: Any = after - before if _is_number(before) and _is_number(after) else 0
    return int(rise) if math.isfinite(rise) and rise == int(rise) else 0


def _last(steps: int) -> list[int]:
    """The last step, and the last round number of steps and the one before."""
    round_ = next((steps - steps % unit for unit in (1_000, 100, 10) if unit < steps), steps)
    return [number for number in (steps - 1, round_, round_ - 1) if number > 1]


def _like(number: Any, other: float) -> Any:
    """This one, of the kind of the number where that has it: a scalar of NumPy's has methods."""
    if type(number) in (int, float):
        return other if isinstance(other, type(number)) else type(number)(other)
    with contextlib.suppress(Exception):
        return type(number)(other)
    return other


def _is_number(value: object) -> TypeGuard[Real]:
    return issubclass(type(value), Real) and type(value) is not bool


def _is_list(value: object) -> TypeGuard[list[Any] | deque[Any]]:
    return issubclass(type(value), (list, deque))
