# SPDX-License-Identifier: Apache-2.0
"""What a training makes so late that no verifier can tell it from a forgery."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from .. import _core
from .._task._capture import is_torchs
from .._task._forms import Law, form
from .._task._own_parts import SETTINGS, OwnParts
from .._task._task import overrides_step
from .._task._trees import is_option

if TYPE_CHECKING:
    from .._task._task import Task

_log = logging.getLogger("potl")

# Whose states a verifier makes itself.
FIRST_STEPS = 2


class LateForms:
    """Warns once of what the first steps do not show. States are shown in order, from the initial
    one on.

    Args:
        task: What is trained.
    """

    def __init__(self, task: Task) -> None:
        self._own = OwnParts(task)
        self._estimating = [
            index
            for index, optimizer in enumerate(task.optimizers)
            if not is_torchs(optimizer) and not overrides_step(task)
        ]
        self._options: list[dict[str, object]] = []
        self._first: list[Law] = []
        self._law: Law | None = None
        self._told = False

    def see(self, step: int, state: _core.State) -> None:
        """Looks at the state after a step."""
        if step <= FIRST_STEPS:
            self._first.append(form(state.tree()))
            self._options.append(self._options_in(state))
            return
        if self._told:
            return
        if self._law is None:
            self._law = self._own.of_first_steps(self._first)
        found = _core.unlawful(state, self._law) or self._changed(state)
        if found is not None:
            self._told = True
            _log.warning(
                "in the state of step %d, %s, as far as the first steps show: a verification that "
                "looks at such a state is inconclusive; make it in build(), in the form that it "
                "keeps; for options that an optimizer changes, override Task.step",
                step,
                found,
            )

    def _options_in(self, state: _core.State) -> dict[str, object]:
        """Options of optimizers of the user's own, by their path."""
        kept = state.tree()["optimizers"] if self._estimating else []
        groups = {
            f"optimizers/{index}/param_groups/{number}": group
            for index in self._estimating
            for number, group in enumerate(kept[index].get("param_groups", ()))
        }
        return {
            f"{path}/{name}": value
            for path, group in groups.items()
            for name, value in group.items()
            if name not in SETTINGS and is_option(value)
        }

    def _changed(self, state: _core.State) -> str | None:
        now, first = self._options_in(state), self._options[0]
        for path, value in first.items():
            if all(each.get(path) == value for each in self._options) and now.get(path) != value:
                return f"{path}: is {now.get(path)}, and no longer {value}"
        return None
