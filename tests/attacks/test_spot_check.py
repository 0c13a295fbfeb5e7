# SPDX-License-Identifier: Apache-2.0
"""A21: false gradients, against each rule of a guarded training that rejects.

With the rule on the worker is rejected for it; with that rule alone switched off it is accepted.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from guarded import KEY, Cheat, build

import potl

from .conftest import rule_off


def flipped(guard: potl.SpotCheck) -> Callable[[int, torch.Tensor, Cheat], None]:
    """Every gradient has the wrong sign."""
    return lambda step, gradient, cheat: gradient.neg_()  # type: ignore[return-value]


def biased(guard: potl.SpotCheck) -> Callable[[int, torch.Tensor, Cheat], None]:
    """What is added to every gradient stays below the tolerance."""

    def change(step: int, gradient: torch.Tensor, cheat: Cheat) -> None:
        gradient[5] += 0.7 * guard.tolerance * max(1.0, float(gradient.norm()))

    return change


CHEATS = {"spot_check.gradients": flipped, "spot_check.direction": biased}


def trained(rule: str) -> potl.Report:
    def longer() -> potl.Task:
        return build(epochs=8)

    job = potl.Job.create(longer, seed=3, checkpoint_every=29, arithmetic="stock")
    with potl.SpotCheck(longer, job=job, key=KEY, steps_at_risk=5) as guard:
        change = CHEATS[rule](guard)
        return guard.train(
            potl.spot_check.Worker(longer, wrap=lambda honest: Cheat(honest, change))
        )


@pytest.mark.parametrize("rule", CHEATS)
def test_each_rule_alone_stops_its_cheat(rule: str) -> None:
    report = trained(rule)
    assert report.verdict == "rejected", report.sentence
    assert [finding.rule for finding in report.findings] == [rule]
    (other,) = CHEATS.keys() - {rule}
    with rule_off(other):
        assert trained(rule).verdict == "rejected"
    with rule_off(rule):
        report = trained(rule)
    assert report.verdict == "accepted", report.sentence
