# SPDX-License-Identifier: Apache-2.0
"""What small differences of a worker's gradients have in common, and when nobody looks for it."""

from __future__ import annotations

import torch
from docs_setup_digits import train_set
from guarded import KEY, Cheat, build
from torch import nn

import potl
from potl._spot_check import _coarse
from potl._spot_check._gradients import Gradients


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


def still() -> potl.Task:
    """Forty-five steps that hardly move the weights, each on the whole data."""
    layers = [nn.Unflatten(1, (1, 8)), nn.Conv2d(1, 8, 3, padding=1), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10))
    return potl.Task(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=1e-8),
        dataset=torch.utils.data.Subset(train_set, list(range(256))),
        loss=nn.functional.cross_entropy,
        batch_size=256,
        epochs=45,
        grad_clip=1.0,
    )


class Tf32(Gradients):
    """Computes convolutions as a GPU does unless it is told otherwise."""

    def __init__(self, honest: Gradients) -> None:
        self.__dict__.update(honest.__dict__)

    def gradient(self, step: int, weights: memoryview, way: int, out: memoryview) -> float:
        with _coarse._Rounding(_coarse._CONVOLUTIONS):
            return super().gradient(step, weights, way, out)


def test_rounding_that_is_the_same_in_every_step_accuses_nobody() -> None:
    stock = potl.Job.create(still, seed=1, checkpoint_every=20, arithmetic="stock")
    with potl.SpotCheck(still, job=stock, key=KEY, steps_at_risk=1, tolerance=0.004) as guard:
        report = guard.train(potl.spot_check.Worker(still, wrap=Tf32))
    assert report.verdict == "inconclusive", report.sentence
    assert "in one direction" in report.sentence and "rounding may do that" in report.sentence
