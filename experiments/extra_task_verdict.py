# SPDX-License-Identifier: Apache-2.0
"""What the library says of answers that were counted earlier: tables are made again, without any
training, when its judgement changes.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from extra_task_training import Epoch
from numpy.typing import NDArray

from potl import _core


@functools.cache
def of_counts(samples: int, classes: int, hits: int, controls: int, control_hits: int) -> str:
    """The verdict on so many hits, by the usual options."""
    found = _core.judge_extra_task(
        options={"control": controls // samples},
        samples=samples,
        classes=classes,
        extra=answers(samples, classes, hits),
        control=answers(controls, classes, control_hits),
    )
    return str(found["verdict"])


def answers(count: int, classes: int, right: int) -> NDArray[Any]:
    """Answers of which so many are right; which ones the verdict does not depend on."""
    places = np.arange(count)
    return (places + (places >= right)) % classes * 1.0


def of_epoch(plan: dict[str, Any], epoch: Epoch) -> str:
    """The verdict on a model that was looked at."""
    samples, controls = plan["samples"], plan["controls"]
    if epoch.errors is None:
        others = round(epoch.control_hits * controls)
        return of_counts(samples, plan["classes"], hits_of(plan, epoch), controls, others)
    return str(of_errors(plan, epoch)["verdict"])


def of_errors(plan: dict[str, Any], epoch: Epoch) -> dict[str, Any]:
    """What the library says of a model without classes."""
    assert epoch.errors is not None
    return _core.judge_extra_task(
        options={"control": plan["controls"] // plan["samples"]},
        samples=plan["samples"],
        classes=0,
        extra=np.array(epoch.errors[0]),
        control=np.array(epoch.errors[1]),
    )


def effect(plan: dict[str, Any], epoch: Epoch) -> tuple[float, float]:
    """How often an extra sample's error is below a control's, and what acceptance takes."""
    found = of_errors(plan, epoch)
    return found["effect"], found["needed_effect"]


def hits_of(plan: dict[str, Any], epoch: Epoch) -> int:
    return round(epoch.hits * int(plan["samples"]))


def accepted(plan: dict[str, Any], epoch: Epoch) -> bool:
    return of_epoch(plan, epoch) == "accepted"


def not_rejected(plan: dict[str, Any], epoch: Epoch) -> bool:
    return of_epoch(plan, epoch) != "rejected"


def published(plan: dict[str, Any], epoch: Epoch) -> bool:
    """The rule of Li et al., which knows no controls: as many hits as the binomial test needs."""
    return hits_of(plan, epoch) >= int(plan["needed"])


def least_accepted(plan: dict[str, Any]) -> int:
    """Hits of an accepted model whose controls are hit by chance."""
    low, high = 0, int(plan["samples"])
    while low < high:
        middle = (low + high) // 2
        chance = round(plan["controls"] / plan["classes"])
        found = of_counts(plan["samples"], plan["classes"], middle, plan["controls"], chance)
        low, high = (low, middle) if found == "accepted" else (middle + 1, high)
    return low
