# SPDX-License-Identifier: Apache-2.0
"""Gradient scalers that a checkpoint does not hold: in a global variable, as scripts of torch have
them, or in an attribute. Their counts act in a step only after an overflow, or 2,000 steps."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch

from .._base._errors import Problem

Counts = list[dict[str, object]]


@contextlib.contextmanager
def scaler_counts() -> Iterator[Counts]:
    """The states of all gradient scalers that this thread uses meanwhile, filled in at the end.

    torch calls nobody when a scaler is used, and one in a global variable is found in no task. A
    subclass may update in its own way, and still scales or steps as torch's does.
    """
    kind, thread = torch.amp.GradScaler, threading.get_ident()
    before = {name: getattr(kind, name) for name in ("scale", "step", "update")}
    used: dict[int, torch.amp.GradScaler] = {}
    found: Counts = []

    def noting(method: Any) -> Any:
        def noted(self: torch.amp.GradScaler, *args: Any, **options: Any) -> Any:
            if threading.get_ident() == thread:
                used[id(self)] = self
            return method(self, *args, **options)

        return noted

    for name, method in before.items():
        setattr(kind, name, noting(method))
    try:
        yield found
    finally:
        for name, method in before.items():
            setattr(kind, name, method)
        found += [one.state_dict() for one in used.values()]


def lost_scaler(before: Counts, after: Counts) -> Problem | None:
    """What is wrong if scalers do not go on from a restored state.

    Args:
        before: Of a step that followed the one before.
        after: Of the same step from the state that the one before ended in.
    """
    if before == after:
        return None
    return Problem(
        what="a gradient scaler keeps counts that no checkpoint holds",
        where="Task.step",
        remedy="make it in build(), pass it as scaler=, and use self.scaler in the step",
    )
