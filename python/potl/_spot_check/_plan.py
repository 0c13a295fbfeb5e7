# SPDX-License-Identifier: Apache-2.0
"""`plan`: how often each step of a training is checked, and what that guarantees."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from .. import _core
from .._base._errors import UsageError
from .._base._printable import counted, duration, number, percent
from .._core import DisplacementCertificate as Certificate
from .._record._inputs import as_job
from . import _responses
from ._cost import CostModel
from ._responses import Momentum, Steps

if TYPE_CHECKING:
    from .._job._job import Job

_GUARANTEED = ("probability", "displacement", "leak", "clipped", "sentence")


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """How often to check. It prints as a few lines.

    Attributes:
        probabilities: For each step, that of checking it: float64, read-only. The worker may know
            them; the coins are secret, and thrown after each report.
        expected_checks: Their sum.
        certificate: What they guarantee.
        cost: What steps and checks take; None where it was not given.
    """

    probabilities: Steps = field(repr=False)
    expected_checks: float
    certificate: Certificate
    cost: CostModel | None = None

    @property
    def checking_seconds(self) -> float | None:
        """Expected time of all checks."""
        return None if self.cost is None else self.expected_checks * self.cost.check_seconds

    @property
    def overhead(self) -> float | None:
        """That time as a share of the training's."""
        if self.cost is None:
            return None
        steps = len(self.probabilities) * self.cost.step_seconds
        return self.expected_checks * self.cost.check_seconds / steps

    def document(self) -> dict[str, object]:
        """JSON values."""
        return {
            "steps": len(self.probabilities),
            "expected_checks": self.expected_checks,
            "certificate": {name: getattr(self.certificate, name) for name in _GUARANTEED},
            "cost": None if self.cost is None else asdict(self.cost),
            "checking_seconds": self.checking_seconds,
            "overhead": self.overhead,
            "probabilities": self.probabilities.tolist(),
        }

    def json(self) -> str:
        """`document` as JSON."""
        return json.dumps(self.document(), indent=1)

    def __str__(self) -> str:
        low, high = float(self.probabilities.min()), float(self.probabilities.max())
        each = percent(low) if low == high else f"{percent(low)} to {percent(high)}"
        lines = [
            f"{counted(len(self.probabilities), 'step')}, about {number(self.expected_checks)} "
            f"checks: each step is checked with a probability of {each}"
        ]
        if self.cost is not None:
            lines.append(
                f"checks take about {duration(self.checking_seconds)}, which is "
                f"{percent(self.overhead)} of the training's time"
            )
        return "\n".join([*lines, self.certificate.sentence])


def plan(
    job: Job | str | os.PathLike[str] | None = None,
    *,
    rates: float | Sequence[float] | Steps | None = None,
    steps: int | None = None,
    momentum: float = 0.0,
    dampening: float = 0.0,
    nesterov: bool = False,
    clip: float | None = None,
    update_clip: float | None = None,
    probability: float = 0.999,
    displacement: float | None = None,
    steps_at_risk: int | None = None,
    tolerance: float = 0.0,
    miss_rate: float = 0.0,
    cost: CostModel | None = None,
) -> Plan:
    """How often each step of a training has to be checked.

    The recipe comes from `job`, from `rates` with `momentum` and so on, or is `update_clip`. The
    goal is either `displacement` or `steps_at_risk`.

    Args:
        job: What was agreed, or its file. Its optimizers must be `torch.optim.SGD`.
        rates: The learning rate of each step, or of all; with a job, in the place of its recipe.
        steps: Number of steps, where nothing else says it.
        momentum: As `torch.optim.SGD` has it.
        dampening: As `torch.optim.SGD` has it.
        nesterov: As `torch.optim.SGD` has it.
        clip: Largest l2 norm of a step's gradient, which the trusted side sees to; None for the
            job's `grad_clip`.
        update_clip: Instead of rates and `clip`: largest l2 norm of a step's update, for an
            optimizer that keeps nothing between steps. Tolerance is then that of updates.
        probability: With which the certificate holds.
        displacement: How far (l2) false gradients may move the weights. Steps that can move them
            further are checked more often.
        steps_at_risk: So many false steps are caught, wherever they are. Every step is checked
            equally often, and the certificate says how far fewer can move the weights.
        tolerance: l2 distance from the true gradient beyond which a check sees it.
        miss_rate: Probability that a check passes a gradient beyond the tolerance.
        cost: What steps and checks take.

    Raises:
        UnsupportedError: No checks reach the goal ("unreachable"), or nothing bounds how far a
            gradient moves the weights; the remedy says what would have to change.
        UsageError: Arguments that are out of range or do not go together.

    Example:
        >>> print(plan(rates=0.1, steps=1000, clip=1.0, displacement=20.0))
        1,000 steps, about 66.7 checks: each step is checked with a probability of 6.7 %
        With probability 0.999 a false gradient is caught, or all of them together move the \
weights by at most 20 (l2). This bounds what is injected, not where the training goes from there.
    """
    agreed = None if job is None else as_job(job)
    own = Momentum(momentum=momentum, dampening=dampening, nesterov=nesterov)
    if update_clip is not None:
        if agreed is not None or rates is not None or clip is not None or own != Momentum():
            raise UsageError(
                "update_clip stands for a recipe of its own", "give it with steps= alone"
            )
        responses, largest = _responses.constant(steps), update_clip
    else:
        if clip is None and agreed is not None:
            clip = _responses.clip_of_job(agreed)
        if clip is None:
            raise UsageError(
                "nothing limits the gradients",
                "pass clip= (--clip), the largest norm of a step's gradient",
            )
        responses, largest = _of_recipe(agreed, rates, steps, own), clip
    found = _core.plan_displacement(
        responses,
        probability=probability,
        clip=largest,
        tolerance=tolerance,
        miss_rate=miss_rate,
        displacement=displacement,
        steps_at_risk=steps_at_risk,
    )
    return Plan(
        probabilities=np.frombuffer(found.probabilities),
        expected_checks=found.expected_checks,
        certificate=found.certificate,
        cost=cost,
    )


def _of_recipe(
    job: Job | None, rates: float | Sequence[float] | Steps | None, steps: int | None, own: Momentum
) -> Steps:
    if rates is not None:
        return own.responses(_responses.given(rates, steps if job is None else job.steps))
    if job is None:
        raise UsageError("a plan needs a recipe", "pass a job, or rates=")
    if steps is not None or own != Momentum():
        raise UsageError(
            "steps and momentum are the job's", "leave them out, or pass rates= with them"
        )
    return _responses.of_job(job)
