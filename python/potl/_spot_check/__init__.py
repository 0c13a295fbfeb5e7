# SPDX-License-Identifier: Apache-2.0
"""Spot-checks: a small trusted side guards a worker that only returns gradients.

>>> import potl
>>> plan = potl.spot_check.plan(
...     rates=0.1, steps=1000, momentum=0.9, clip=1.0, probability=0.999, steps_at_risk=100
... )
>>> round(plan.expected_checks)
67

`plan` (`_plan`) says how often each step has to be checked and what that guarantees; `_responses`
finds out how far a step moves the weights; `_cost` measures what a check takes. `_freivalds` checks
single products, `_products` those of a whole step (`_claims` says which).
"""

from .._core import DisplacementCertificate as Certificate
from ._cost import CostModel as CostModel
from ._plan import Plan as Plan, plan as plan

__all__ = ["Certificate", "CostModel", "Plan", "plan"]
