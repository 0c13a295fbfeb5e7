# SPDX-License-Identifier: Apache-2.0
"""How far a unit of each step's gradient moves the weights, by a job's recipe or by numbers."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from .. import _core
from .._base._errors import LimitError, MalformedError, UnsupportedError, UsageError

if TYPE_CHECKING:
    from .._job._job import Job

Steps: TypeAlias = "npt.NDArray[np.float64]"

# A plan holds a number for each step.
MOST_STEPS = 100_000_000

_LINEAR = (
    "train with torch.optim.SGD, with or without momentum; or with an update that depends on the "
    "gradient of its own step alone, and clip that (update_clip=)"
)
# What else a recipe may say of SGD does not make a gradient act further: a decay of the weights is
# a response of the training to where it was moved.
_OF_MOMENTUM = ("momentum", "dampening", "nesterov")


@dataclass(frozen=True, kw_only=True)
class Momentum:
    """Options of `torch.optim.SGD` by which a gradient acts longer or less."""

    momentum: float = 0.0
    dampening: float = 0.0
    nesterov: bool = False

    def responses(self, rates: Steps) -> Steps:
        """Of a parameter group with these rates."""
        return np.frombuffer(_core.gradient_responses(rates, **vars(self)))


def given(rates: float | Sequence[float] | Steps, steps: int | None) -> Steps:
    """A rate for each step: the given ones, or the same for all.

    Raises:
        UsageError: They are not one for each step.
        LimitError: Too many steps.
    """
    try:
        found = np.array(rates, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UsageError(f"rates are not numbers: {error}", "") from error
    if found.ndim == 0 and steps is not None:
        return np.full(_counted(steps), float(found))
    if found.ndim != 1:
        raise UsageError(
            "rates are neither one number with steps= nor one for each step",
            "give the learning rate of each step, or one and the number of steps",
        )
    if steps is not None and steps != len(found):
        raise UsageError(f"steps is {steps}, and there are {len(found)} rates", "leave steps out")
    return found


def constant(steps: int | None) -> Steps:
    """Of an update that is the step's own."""
    if steps is None:
        raise UsageError("update_clip needs the number of steps", "pass steps=")
    return np.ones(_counted(steps))


def of_job(job: Job) -> Steps:
    """By what was agreed; of several parameter groups the one that moves furthest.

    Raises:
        UnsupportedError: Nothing bounds how far a gradient moves these weights, or the job does
            not say.
    """
    fields = job.core.fields()
    recipe = fields["task"]
    optimizers = recipe.get("optimizers")
    runs = fields["learning_rates"]
    if not isinstance(optimizers, list):
        raise UnsupportedError("the job does not describe its optimizers", "pass rates=")
    for one in optimizers:
        _require_linear(_mapping(one).get("class"))
    varying = recipe.get("varying")
    if runs is None or not isinstance(varying, dict):
        raise UnsupportedError(
            "the job does not fix how far its steps move the weights: rates follow a metric, or "
            "Task.step is overridden",
            "let a schedule fix the rates; a plan alone also takes rates= and momentum= that no "
            "step exceeds",
        )
    if recipe.get("scaler") is not None:
        raise UnsupportedError(
            "the task scales its gradients, and a step that the scaler skips moves what momentum "
            "carries: no sum of gradients bounds that",
            "train in float32 or bfloat16, which need no scaler",
        )
    changing = {name for names in _lists(varying.get("optimizers")) for name in _names(names)}
    if moving := changing & set(_OF_MOMENTUM):
        raise UnsupportedError(
            f"a scheduler changes {', '.join(sorted(moving))}",
            "switch that off (cycle_momentum=False); a plan alone also takes rates= and the "
            "largest momentum=",
        )
    groups = [
        _momentum(group) for one in optimizers for group in _lists(_mapping(one).get("groups"))
    ]
    if any(len(run["rates"]) != len(groups) for run in runs):
        raise MalformedError("job: learning rates are not one for each parameter group", "")
    _counted(job.steps)
    lengths = [run["steps"] for run in runs]
    found = np.zeros(job.steps)
    for index, group in enumerate(groups):
        rates = [struct.unpack(">d", bytes.fromhex(run["rates"][index]))[0] for run in runs]
        np.maximum(found, group.responses(np.repeat(rates, lengths)), out=found)
    return found


def clip_of_job(job: Job) -> float | None:
    """The agreed largest norm of a gradient."""
    agreed = job.core.fields()["task"].get("grad_clip")
    return None if agreed is None else _number(agreed)


def _require_linear(name: object) -> None:
    if name == "SGD":
        return
    reason = "its updates are not a sum of gradients, so that clipping these bounds nothing"
    if name in ("Adam", "AdamW"):
        reason = (
            "one false gradient moves a coordinate by up to 7.27 learning rates (betas .9, .999), "
            "however it is clipped, and what it leaves in the second moment acts for thousands of "
            "steps"
        )
    raise UnsupportedError(f"there is no certificate for {name}: {reason}", _LINEAR)


def _counted(steps: int) -> int:
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise UsageError(f"steps is {steps!r}", "pass a positive whole number")
    if steps > MOST_STEPS:
        raise LimitError(f"a plan for {steps:,} steps", f"at most {MOST_STEPS:,} are planned")
    return steps


def _momentum(group: object) -> Momentum:
    options = _mapping(group)
    return Momentum(
        momentum=_number(options.get("momentum")),
        dampening=_number(options.get("dampening")),
        nesterov=options.get("nesterov") is True,
    )


def _mapping(value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise MalformedError("job: an optimizer is not described as one", "")
    return value


def _lists(value: object) -> list[list[str]]:
    if not isinstance(value, list):
        raise MalformedError("job: what an optimizer has is not a list", "")
    return value


def _names(value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise MalformedError("job: what a scheduler changes is not a list of names", "")
    return value


def _number(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise MalformedError(f"job: {value!r} is not a number", "") from error
