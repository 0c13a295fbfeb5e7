# SPDX-License-Identifier: Apache-2.0
"""What a task consists of, which no step may change: states of another structure fit no task that
`build` makes, so that nobody could resume or replay from them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import _core
from .._base._errors import NotReplayable, Problem
from .._task._forms import form
from .._task._trees import first_difference

if TYPE_CHECKING:
    from .._task._task import Task
    from .._task._values import Tree


class Structure:
    """The names and shapes of parameters, the names of buffers, the parameters of each group, and
    the classes of optimizers, schedulers, scaler and average.

    Args:
        task: As built.
        state: Its initial one.
    """

    def __init__(self, task: Task, state: _core.State) -> None:
        self._task = task
        self._built = _structure(task, state.tree())

    def require(self, step: int, state: _core.State) -> None:
        """Refuses a state of another structure.

        Args:
            step: After which the task, as it is, holds this state.
            state: Whole.

        Raises:
            NotReplayable: No fresh build can hold it.
        """
        place = first_difference(self._built, _structure(self._task, state.tree()))
        if place is not None:
            raise NotReplayable(
                Problem(
                    what="the training changed what the task consists of",
                    where=f"the state of step {step}, {place}",
                    remedy="make every parameter, buffer, group of parameters, optimizer and "
                    "scheduler in build(), and let the step choose which of them it uses "
                    "(requires_grad_, if)",
                )
            )


def _structure(task: Task, tree: Tree) -> Tree:
    return {
        **{name: _module(tree[name]) for name in ("model", "ema")},
        "optimizers": [_groups(each) for each in tree["optimizers"]],
        "classes": {
            "optimizers": _names(task.optimizers),
            "schedulers": _names(task.schedulers),
            "scaler": _names((task.scaler,)),
            "ema": _names((task.ema,)),
        },
    }


def _module(tree: Any) -> Tree | None:
    if not (isinstance(tree, dict) and "training" in tree):
        return None  # an average with a state of its own
    return {
        "parameters": {name: str(form(value)) for name, value in tree["parameters"].items()},
        "buffers": dict.fromkeys(tree["buffers"]),
    }


def _groups(tree: Any) -> dict[str, list[Any]] | None:
    """The parameters of each group; None for an optimizer with a state of its own."""
    if not (isinstance(tree, dict) and isinstance(tree.get("param_groups"), list)):
        return None
    groups = tree["param_groups"]
    return {"param_groups": [g.get("params") if isinstance(g, dict) else None for g in groups]}


def _names(things: Any) -> list[str]:
    return [f"{type(thing).__module__}.{type(thing).__qualname__}" for thing in things]
