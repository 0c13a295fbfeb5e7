# SPDX-License-Identifier: Apache-2.0
"""Types of potl._core, continued: how far a training can have been carried
(include/potl/statistics/displacement.hpp). No module of its own: everything here is in potl._core.
"""

from typing import Any, TypeAlias

Float64: TypeAlias = Any  # a contiguous array of float64, one value for each step

class DisplacementCertificate:
    """What a plan guarantees, against workers that adapt too.

    It bounds what is injected. Weight decay and later gradients respond to that, and their
    response is not in it; see docs/reference/spot_check_plan.md.

    Attributes:
        probability: Of what follows.
        displacement: Either a false gradient is caught, or all of them together move the weights
            by at most this (l2).
        leak: The part of it that stays below the tolerance, summed over all steps.
        clipped: What clipping alone allows if every gradient is false.
    """

    probability: float
    displacement: float
    leak: float
    clipped: float
    def __init__(self, **fields: float) -> None: ...
    @property
    def sentence(self) -> str:
        """The same in words."""

class DisplacementPlan:
    """How often each step is checked, and what that guarantees."""

    @property
    def probabilities(self) -> bytes:
        """For each step, float64."""

    @property
    def expected_checks(self) -> float:
        """The sum of the probabilities."""

    @property
    def certificate(self) -> DisplacementCertificate:
        """What they guarantee."""

def gradient_responses(
    rates: Float64, *, momentum: float = 0.0, dampening: float = 0.0, nesterov: bool = False
) -> bytes:
    """For each step, how far a gradient of length 1 moves the weights by the end, float64."""

def plan_displacement(
    responses: Float64,
    *,
    probability: float,
    clip: float,
    tolerance: float = 0.0,
    miss_rate: float = 0.0,
    displacement: float | None = None,
    steps_at_risk: int | None = None,
) -> DisplacementPlan:
    """The checks that reach a goal. UnsupportedError: none do ("unreachable")."""
