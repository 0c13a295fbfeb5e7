# SPDX-License-Identifier: Apache-2.0
"""Results of products that a number does not decide: operands that are not finite, or so large that
their sums may not be.

Freivalds' check adds everything up, and one NaN hides the rest. Here the parts are told apart: what
no order of additions makes finite, what the operands that are not finite do not reach, and what may
be either. Nobody is accused for the last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

import torch

from .. import _core
from ._claims import Claim

Tensor = torch.Tensor
# The same claim about other operands, by their places among the operator's arguments.
Again: TypeAlias = Callable[[Mapping[int, Tensor]], Claim]
Judged: TypeAlias = Literal["not finite", "inconsistent", "unusual", "diverged"]

_MOST = torch.finfo(torch.float32).max
# By how much sums of transformed operands may exceed those of the operands.
_ROOM = 1024


def is_finite(one: Tensor) -> bool:
    """All of it."""
    return bool(torch.isfinite(one).all())


def judged(
    claim: Claim,
    again: Again,
    given: Tensor,
    *,
    probes: int,
    false_alarm: float,
    pool: _core.ThreadPool | None,
) -> Judged:
    """What is to be said of a result that the check calls "not finite".

    Args:
        claim: What was checked.
        again: See `Again`.
        given: The worker's result.
        probes: Of the check of what is finite, like what follows.
        false_alarm: Probability that an honest result is found inconsistent.
        pool: Threads.

    Returns:
        "not finite" and "inconsistent" of what no honest product gives; "unusual" of what has to be
        computed again, and is finite; "diverged" where the honest result may not be.
    """
    if not claim.operands:
        return "not finite"
    if all(is_finite(one) for one in claim.operands.values()):
        return "not finite" if _fits(claim) else "diverged"
    if bool((_reached(claim, again, certainly=True) & torch.isfinite(given)).any()):
        return "inconsistent"
    clean = again({at: one.nan_to_num(0, 0, 0) for at, one in claim.operands.items()})
    own = clean.compute().reshape(given.shape)
    # What is not compared is what would hold.
    other = _reached(claim, again, certainly=False) | ~torch.isfinite(given)
    mixed = torch.where(other, own, given).contiguous()
    if is_finite(mixed) and clean.check(mixed, probes, false_alarm, pool).rejected:
        return "inconsistent"
    return "unusual" if is_finite(given) and is_finite(claim.compute()) else "diverged"


def _fits(claim: Claim) -> bool:
    """Whether sums of the products are finite in any order."""
    most = {at: float(one.abs().max()) for at, one in claim.operands.items()}
    first, second = claim.factors
    count = min(claim.operands[at].numel() for at in claim.factors)
    added = sum(size for at, size in most.items() if at not in claim.factors)
    return _ROOM * (count * most[first] * most[second] + added) < _MOST


def _reached(claim: Claim, again: Again, *, certainly: bool) -> Tensor:
    """Elements with something that is not finite among what they are the sum of; certainly: also
    where products with zero are left out.
    """

    def marked(one: Tensor) -> Tensor:
        return (~torch.isfinite(one)).to(one)

    def others(one: Tensor) -> Tensor:
        return (one != 0).to(one) if certainly else torch.ones_like(one)

    nothing = {at: torch.zeros_like(one) for at, one in claim.operands.items()}
    first, second = claim.factors
    found = torch.zeros(claim.shape, dtype=torch.bool)
    for at, one in claim.operands.items():
        if is_finite(one):
            continue
        marks = {**nothing, at: marked(one)}
        if at in claim.factors:
            other = second if at == first else first
            marks[other] = others(claim.operands[other])
        found |= again(marks).compute().reshape(claim.shape) > 0.5
    return found
