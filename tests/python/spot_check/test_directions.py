# SPDX-License-Identifier: Apache-2.0
"""What small differences of a worker's gradients have in common, and when nobody looks for it."""

from __future__ import annotations

import torch
from guarded import KEY, Cheat, build

import potl


def longer() -> potl.Task:
    return build(epochs=8)


def test_a_bias_below_the_tolerance_shows_in_the_sum() -> None:
    stock = potl.Job.create(longer, seed=3, checkpoint_every=29, arithmetic="stock")

    def change(step: int, gradient: torch.Tensor, cheat: Cheat) -> None:
        gradient[5] += 0.7 * guard.tolerance * max(1.0, float(gradient.norm()))

    with potl.SpotCheck(longer, job=stock, key=KEY, steps_at_risk=5) as guard:
        cheating = potl.spot_check.Worker(longer, wrap=lambda honest: Cheat(honest, change))
        report = guard.train(cheating)
    (finding,) = report.findings
    assert report.verdict == "rejected", report.sentence
    assert finding.rule == "spot_check.direction"
    assert finding.error_probability == 1e-6
    assert "deviate in one direction" in finding.reason


def test_a_bias_in_sessions_too_short_for_the_sum_is_told_of() -> None:
    """Whoever leaves before 36 drawn steps is not tested, and the certificate counts the bias."""
    stock = potl.Job.create(build, seed=3, checkpoint_every=29, arithmetic="stock")
    asked: list[int] = []

    def change(step: int, gradient: torch.Tensor, cheat: Cheat) -> None:
        asked.append(step)
        if step == 30 and asked.count(step) == 1:
            raise RuntimeError("out of memory")
        gradient[5] += 0.7 * guard.tolerance * max(1.0, float(gradient.norm()))

    with potl.SpotCheck(build, job=stock, key=KEY, steps_at_risk=5) as guard:
        cheating = potl.spot_check.Worker(build, wrap=lambda honest: Cheat(honest, change))
        first, second = guard.train(cheating), guard.train(cheating)
    assert (first.verdict, second.verdict) == ("inconclusive", "accepted"), second.sentence
    assert any("a common direction" in one["text"] for one in second.document["limits"])
    assert float(second.findings[0].details["leak"]) > 0
