# SPDX-License-Identifier: Apache-2.0
"""Spot-checks: a small trusted side guards a worker that only returns gradients.

>>> import potl
>>> plan = potl.spot_check.plan(
...     rates=0.1, steps=1000, momentum=0.9, clip=1.0, probability=0.999, steps_at_risk=100
... )
>>> round(plan.expected_checks)
67

`plan` (`_plan`) says how often each step has to be checked and what that guarantees; `_responses`
finds out how far a step moves the weights; `_cost` measures what a check takes. `SpotCheck`
(`_guard`) is the trusted side, which owns the training (`_guarded`); `Worker` (`_worker`) is the
other. Both ask `_gradients`, and the guard `_coarse` before it accuses. `_freivalds` checks single
products; `record_products` and `check_products` (`_products`) those of a whole step: `_claims` says
which, and `_batch_norms` what of batch norms is with them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .._core import DisplacementCertificate as Certificate
from ._cost import CostModel as CostModel
from ._plan import Plan as Plan, plan as plan

if TYPE_CHECKING:
    from ._own_loop import OwnLoop as OwnLoop
    from ._products import (
        ProductFailure as ProductFailure,
        ProductsOutcome as ProductsOutcome,
        Witness as Witness,
        check_products as check_products,
        record_products as record_products,
    )
    from ._worker import Served as Served, Worker as Worker

__all__ = [
    "Certificate",
    "CostModel",
    "OwnLoop",
    "Plan",
    "ProductFailure",
    "ProductsOutcome",
    "Served",
    "Witness",
    "Worker",
    "check_products",
    "plan",
    "record_products",
]

# What needs torch, and where it is.
_WITH_TORCH = {
    "OwnLoop": "_own_loop",
    "ProductFailure": "_products",
    "ProductsOutcome": "_products",
    "Served": "_worker",
    "Witness": "_products",
    "Worker": "_worker",
    "check_products": "_products",
    "record_products": "_products",
}


def __getattr__(name: str) -> Any:
    if name in _WITH_TORCH:
        return getattr(import_module(f".{_WITH_TORCH[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
