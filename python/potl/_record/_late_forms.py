# SPDX-License-Identifier: Apache-2.0
"""What a training makes so late that no verifier can tell it from a forgery."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from .. import _core
from .._task._forms import Law, form
from .._task._own_parts import OwnParts

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
        self._first: list[Law] = []
        self._law: Law | None = None
        self._told = False

    def see(self, step: int, state: _core.State) -> None:
        """Looks at the state after a step."""
        if step <= FIRST_STEPS:
            self._first.append(form(state.tree()))
            return
        if self._told:
            return
        if self._law is None:
            self._law = self._own.of_first_steps(self._first)
        found = _core.unlawful(state, self._law)
        if found is not None:
            self._told = True
            _log.warning(
                "in the state of step %d, %s, as far as the first steps show: a verification that "
                "looks at such a state is inconclusive; make it in build(), in the form that it "
                "keeps",
                step,
                found,
            )
