# SPDX-License-Identifier: Apache-2.0
"""Whether the samples that a model is asked about are in the data of its run.

A model cannot know others, so a rejection would accuse a trainer of a mistake of the client's.
Fifty that the key chooses are looked for at the places where `mix` put them, else among all items
for a minute at most.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._data import View, is_fixed
from ._extra_task import ExtraTask
from ._items import items_of
from ._values import as_array, carrier_of

LOOKED_FOR = 50
_SECONDS = 60.0
_PROBED = 32


@dataclass(frozen=True)
class Looked:
    """What a search for uploads found.

    Attributes:
        absent: They are not in the data.
        reason: Why not all were found; "" where they were.
    """

    absent: bool = False
    reason: str = ""


def look_for(task: ExtraTask, data: Any, shown: Callable[[Any], Any] | None = None) -> Looked:
    """Looks for some of the uploads, with their labels, in the data of a run.

    Args:
        task: Whose samples were uploaded.
        data: Map-style data, as they were trained on.
        shown: Makes of an input what the model gets, if the data hold that.
    """
    try:
        missing = _missing(task, View(data), shown)
    except TimeoutError:
        return Looked(reason="the extra samples could not be looked for in the run's data in time")
    except Exception as error:
        return Looked(
            reason="the extra samples could not be looked for in the run's data: "
            f"{type(error).__name__}: {error}"
        )
    if not missing:
        return Looked()
    if _is_augmented(data):
        return Looked(
            reason="the extra samples could not be looked for in the run's data, which differ "
            "between two reads"
        )
    return Looked(
        True,
        f"{missing} of {min(LOOKED_FOR, task.planned.uploads)} extra samples that were looked for "
        "are not in the run's data: these are not the data that were mixed with this key, or have "
        "another form than those (then pass transform=)",
    )


def _missing(task: ExtraTask, view: View, shown: Callable[[Any], Any] | None) -> int:
    uploads, real = task.planned.uploads, task.planned.training_samples
    draw = np.random.Generator(np.random.Philox(key=task.key._seed("looked for") % 2**128))
    chosen = np.sort(draw.permutation(uploads)[:LOOKED_FOR]).tolist()
    items = task._form.items
    wanted: dict[int, list[_Seen]] = {}
    for index, item in zip(chosen, task.samples.items(chosen), strict=True):
        value = items.input_of(item)
        label = None if items.label_key is None else _label(item[items.label_key])
        forms = [value] if shown is None else [value, shown(value)]
        wanted[index] = [_Seen(_values(one), label) for one in forms]
    first = items_of(view[0])

    def seen(place: int) -> _Seen:
        item = view[place]
        label = None if first.label_key is None else _label(item[first.label_key])
        return _Seen(_values(first.input_of(item)), label)

    order = task.samples.order(real)
    if len(order) == len(view):
        places = np.empty(uploads, np.int64)
        is_upload = order >= real
        places[order[is_upload] - real] = np.flatnonzero(is_upload)
        for index in chosen:
            if any(map(seen(int(places[index])).equals, wanted[index])):
                del wanted[index]
    if not wanted:
        return 0
    by_probe: dict[Any, list[tuple[int, _Seen]]] = {}
    for index, forms in wanted.items():
        for one in forms:
            by_probe.setdefault(one.probe, []).append((index, one))
    ends = time.monotonic() + _SECONDS
    for place in range(len(view)):
        found = seen(place)
        for index, one in by_probe.get(found.probe, ()):
            if index in wanted and found.equals(one):
                del wanted[index]
        if not wanted:
            break
        if time.monotonic() > ends:
            raise TimeoutError
    return len(wanted)


class _Seen:
    """An input, whatever container holds it, and its label."""

    def __init__(self, values: Any, label: int | str | None) -> None:
        self.values, self.label = values, label
        self.probe: Any = values
        if not isinstance(values, str):
            few = values[:: max(1, len(values) // _PROBED)]
            self.probe = (len(values), few.astype(np.float64).tobytes())

    def equals(self, other: _Seen) -> bool:
        """Labels of different types, as of a wrapper that numbers classes, say nothing."""
        if type(self.label) is type(other.label) and self.label != other.label:
            return False
        if isinstance(self.values, str) or isinstance(other.values, str):
            return type(self.values) is type(other.values) and self.values == other.values
        return np.array_equal(self.values, other.values)


def _values(value: Any) -> Any:
    return value if carrier_of(value) == "str" else as_array(value).reshape(-1)


def _label(label: Any) -> int | str | None:
    if isinstance(label, str):
        return str(label)
    number = label.item() if getattr(label, "ndim", None) == 0 else label
    return int(number) if isinstance(number, (int, np.integer)) else None


def _is_augmented(data: Any) -> bool:
    try:
        return not is_fixed(data)
    except Exception:
        return True
