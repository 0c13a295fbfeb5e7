# SPDX-License-Identifier: Apache-2.0
"""What is said of a step that fails while a task is tried."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from .._base._errors import NotReproducible, PotlError, Problem
from .._task._collated import form_of

if TYPE_CHECKING:
    from ._session import Session


def obstacle(what: str, remedy: str) -> Problem:
    return Problem(what=what, where="Task.step", remedy=remedy, prevents="exact")


def refused(
    session: Session, step: int, ids: list[int], error: NotReproducible, arithmetic: str
) -> tuple[Problem, ...]:
    """All operators of a step that its arithmetic refuses; the first was met as `error`."""
    from .._arithmetic._explain import explain_call

    try:
        batch = session.batch(step, ids)
        found = explain_call(lambda: session.run_step(step, batch), mode=arithmetic).refused
    except Exception:
        # Something else than an operator is in the way, of which `error` speaks.
        found = ()
    causes = dict.fromkeys((one.note, one.remedy) for one in found)
    if (error.message, error.remedy) not in causes:
        return (obstacle(error.message, error.remedy),)
    return tuple(obstacle(*cause) for cause in causes)


def tell_batch(error: Exception, session: Session, step: int, ids: list[int]) -> None:
    """Adds to an error of the task's code what its step was given: torch names no input."""
    if isinstance(error, PotlError) or not hasattr(error, "add_note"):  # Python 3.11 has it
        return
    with contextlib.suppress(Exception):
        error.add_note(f"step {step} was given the batch {form_of(session.batch(step, ids))}")
