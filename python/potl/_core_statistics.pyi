# SPDX-License-Identifier: Apache-2.0
"""Types of potl._core, continued: how far a training can have been carried
(include/potl/statistics/displacement.hpp). No module of its own: everything here is in potl._core.
"""

from typing import Any, TypeAlias, TypedDict

Float64: TypeAlias = Any  # a contiguous array of float64, one value for each step

class DisplacementPlan(TypedDict):
    """`probabilities`: float64; the rest as the certificate in C++ names it."""

    probabilities: bytes
    expected_checks: float
    probability: float
    displacement: float
    leak: float
    clipped: float
    sentence: str

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
