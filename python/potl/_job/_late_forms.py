# SPDX-License-Identifier: Apache-2.0
"""What a training makes so late that no verifier can tell it from a forgery."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from .. import _core
from .._base._errors import Problem
from .._task._capture import is_standard
from .._task._forms import Law, form
from .._task._own_parts import OwnParts, has_own_step
from .._task._trees import Varying, is_option

if TYPE_CHECKING:
    from .._task._task import Task

_log = logging.getLogger("potl")

# Whose states a verifier makes itself.
FIRST_STEPS = 2


class LateForms:
    """Finds what the first steps do not show. States are shown in order, from the initial one on.

    Args:
        task: What is trained.
        varying: Names of what steps and schedulers change; None for a step of the user's own.
    """

    def __init__(self, task: Task, varying: Varying | None) -> None:
        self._own = OwnParts(task)
        self._changing = {
            index: names
            for index, (names, each) in enumerate(
                zip(varying["optimizers"] if varying else (), task.optimizers, strict=False)
            )
            if is_standard(each) and has_own_step(each)
        }
        self._settings: dict[str, object] = {}
        self._first: list[Law] = []
        self._law: Law | None = None
        self._told = False

    def see(self, step: int, state: _core.State) -> None:
        """Looks at the state after a step. Warns of the first that has something."""
        if step <= FIRST_STEPS:
            self._first.append(form(state.tree()))
            self._settings = self._settings or self._settings_in(state)
            return
        found = None if self._told else self._in(state)
        if found is not None:
            self._told = True
            _log.warning(
                "in the state of step %d, %s, as far as the first steps show: a verification that "
                "looks at such a state is inconclusive; make it in build(), in the form that it "
                "keeps; an option that an optimizer changes needs a name that torch's optimizers "
                "do not have",
                step,
                found,
            )

    def problem(self, step: int, state: _core.State) -> Problem | None:
        """What keeps a state after the first steps from being judged."""
        found = self._in(state)
        if found is None:
            return None
        where, _, what = str(found).partition(": ")
        return Problem(
            what=f"the state of step {step} holds what the first two do not show, and no verifier "
            f"accepts it: {what}",
            where=where,
            remedy="make it in build(), in the form that it keeps; what a library makes late, such "
            "as the slow weights of a Lookahead, keep in a module in state=",
        )

    def _in(self, state: _core.State) -> object:
        if self._law is None:
            self._law = self._own.of_first_steps(self._first)
        return _core.unlawful(state, self._law) or self._changed(state)

    def _settings_in(self, state: _core.State) -> dict[str, object]:
        """What is the recipe's of the options of the user's own optimizers, by path."""
        kept = state.tree()["optimizers"] if self._changing else []
        return {
            f"optimizers/{index}/param_groups/{number}/{name}": value
            for index, changing in self._changing.items()
            for number, group in enumerate(kept[index]["param_groups"])
            for name, value in group.items()
            if name not in changing and is_option(value)
        }

    def _changed(self, state: _core.State) -> str | None:
        now = self._settings_in(state)
        for path, value in self._settings.items():
            if now.get(path) != value:
                return f"{path}: is {now.get(path)}, agreed is {value}"
        return None
