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
other. Both ask `_gradients`. `_freivalds` checks single products, `_products` those of a whole step
(`_claims` says which).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._core import DisplacementCertificate as Certificate
from ._cost import CostModel as CostModel
from ._plan import Plan as Plan, plan as plan

if TYPE_CHECKING:
    from ._own_loop import OwnLoop as OwnLoop
    from ._worker import Served as Served, Worker as Worker

__all__ = ["Certificate", "CostModel", "OwnLoop", "Plan", "Served", "Worker", "plan"]


def __getattr__(name: str) -> Any:
    # These need torch.
    if name == "OwnLoop":
        from . import _own_loop

        return _own_loop.OwnLoop
    if name in ("Served", "Worker"):
        from . import _worker

        return getattr(_worker, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
