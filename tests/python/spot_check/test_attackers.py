# SPDX-License-Identifier: Apache-2.0
"""Workers that adapt, against the coins of a plan: how often they are caught, how far they get.

Many trainings are played at once: a row for each. An attacker sees which of its false steps were
not caught, all rates, the probabilities of the plan and its goal. The coins are drawn after its
choice, and a row that is caught stays caught.
"""

import numpy as np
import pytest
from scipy.stats import binomtest

import potl
from potl._spot_check import _responses
from potl._spot_check._responses import Momentum

RUNS = 20_000
SIGNIFICANCE = 1e-6  # of each test of this file, over all that it compares
SEED = 20171
STEPS = 400
RATES = 0.1 * (1 + np.cos(np.pi * np.arange(STEPS) / STEPS)) + 0.001
MOMENTUM = 0.9


class Game:
    """What an attacker knows in each run."""

    def __init__(self, plan, weights, limit, seed):
        self.weights, self.limit = weights, limit
        self.rng = np.random.default_rng(seed)
        self.moved = np.full(RUNS, plan.certificate.leak)
        self.false = np.zeros(RUNS, dtype=int)
        self.caught = np.zeros(RUNS, dtype=bool)


def play(attack, plan, weights, *, miss_rate=0.0, limit=None, seed=SEED):
    """The game at its end; `attack(game, step)` says in which runs the step is false."""
    game = Game(plan, weights, plan.certificate.displacement if limit is None else limit, seed)
    coins = np.random.default_rng(seed + 1)
    for step, probability in enumerate(plan.probabilities):
        false = attack(game, step) & ~game.caught
        seen = coins.random((2, RUNS))
        game.caught |= false & (seen[0] < probability) & (seen[1] >= miss_rate)
        missed = false & ~game.caught
        game.moved += missed * weights[step]
        game.false += missed
    return game


def agrees(count, expected, comparisons=1):
    return binomtest(int(count), RUNS, expected).pvalue > SIGNIFICANCE / comparisons


def exceeds(count, most, comparisons=1):
    test = binomtest(int(count), RUNS, most, alternative="greater")
    return test.pvalue <= SIGNIFICANCE / comparisons


# ------------------------------------------------------------------ attackers


def always(game, step):
    return np.full(RUNS, True)


def at_random(game, step):
    return game.rng.random(RUNS) < 0.2


def largest_first(game, step):
    """Only where a step moves the weights far."""
    return np.full(RUNS, game.weights[step] >= np.quantile(game.weights, 0.8))


def smallest_last(game, step):
    """Only where steps are hardly checked."""
    return np.full(RUNS, game.weights[step] <= np.quantile(game.weights, 0.5))


def until_too_far(game, step):
    """Stops when it has what it wants: not one risk more than needed."""
    return game.moved <= game.limit


def what_just_suffices(game, step):
    """Takes a step only while the rest of the way cannot be gone without it, or luck was good."""
    ahead = game.weights[step + 1 :].sum()
    needed = game.moved + ahead <= game.limit * 1.5
    return (game.moved <= game.limit) & (needed | (game.false > 3))


def on_luck(game, step):
    """Dares more the longer nobody caught it."""
    return game.rng.random(RUNS) < np.minimum(1.0, 0.02 * (1 + game.false))


ATTACKERS = [
    always,
    at_random,
    largest_first,
    smallest_last,
    until_too_far,
    what_just_suffices,
    on_luck,
]


# ------------------------------------------------------------------ detection


def after_so_many(limit):
    """False at times of its own choice, and never more often than `limit`."""

    def attack(game, step):
        left = limit - game.false
        return (left > 0) & (game.rng.random(RUNS) < 2 * limit / STEPS)

    def force(game, step):
        return attack(game, step) | (limit - game.false >= STEPS - step)

    return force


@pytest.mark.parametrize(
    ("steps_at_risk", "probability"),
    # 100 false steps that are checked with .5 are caught but for one training in 2^100.
    [
        (steps, probability)
        for steps in (1, 10, 100)
        for probability in (0.5, 0.1, 0.0667, 0.007)
        if (steps, probability) != (100, 0.5)
    ],
)
def test_so_many_false_steps_are_caught_as_often_as_the_formula_says(steps_at_risk, probability):
    """The probability of a check is given, and detection follows from it."""
    goal = 1 - (1 - probability) ** steps_at_risk
    plan = potl.spot_check.plan(
        rates=RATES, clip=1.0, probability=goal, steps_at_risk=steps_at_risk
    )
    np.testing.assert_allclose(plan.probabilities, probability, rtol=1e-9)
    game = play(after_so_many(steps_at_risk), plan, np.ones(STEPS))
    assert np.all(game.caught | (game.false == steps_at_risk))
    detected = game.caught.sum()
    print(f"seed {SEED}: {detected} of {RUNS} caught, {goal * RUNS:.1f} expected")
    assert agrees(detected, goal, comparisons=11)


def test_a_check_that_misses_is_made_up_for():
    plan = potl.spot_check.plan(
        rates=RATES, clip=1.0, probability=0.9, steps_at_risk=20, miss_rate=0.3
    )
    game = play(after_so_many(20), plan, np.ones(STEPS), miss_rate=0.3)
    assert agrees(game.caught.sum(), 0.9)
    other = potl.spot_check.plan(rates=RATES, clip=1.0, probability=0.9, steps_at_risk=20)
    game = play(after_so_many(20), other, np.ones(STEPS), miss_rate=0.3)
    assert not agrees(game.caught.sum(), 0.9)


# ------------------------------------------------------------------ displacement


def goals():
    weights = 2 * Momentum(momentum=MOMENTUM).responses(RATES)
    total = float(weights.sum())
    # From a few steps to many; in the first one step alone is too much.
    yield "one", {"displacement": 0.9 * float(weights.max())}
    yield "some", {"displacement": 0.02 * total}
    yield "many", {"displacement": 0.2 * total}
    yield "leaking", {"displacement": 0.2 * total, "tolerance": 0.05}
    yield "missing", {"displacement": 0.1 * total, "miss_rate": 0.2}
    yield "uniform", {"steps_at_risk": 10}
    yield (
        "uniform, leaking and missing",
        {
            "steps_at_risk": 30,
            "tolerance": 0.01,
            "miss_rate": 0.2,
        },
    )


@pytest.mark.parametrize("attack", ATTACKERS, ids=lambda one: one.__name__)
@pytest.mark.parametrize("options", [pytest.param(one, id=name) for name, one in goals()])
def test_who_is_not_caught_has_not_moved_the_weights_further_than_certified(attack, options):
    plan = potl.spot_check.plan(
        rates=RATES, momentum=MOMENTUM, clip=1.0, probability=0.9, **options
    )
    weights = 2 * Momentum(momentum=MOMENTUM).responses(RATES)
    game = play(attack, plan, weights, miss_rate=options.get("miss_rate", 0.0))
    beyond = ~game.caught & (game.moved > plan.certificate.displacement * (1 + 1e-12))
    print(f"seed {SEED}: {beyond.sum()} of {RUNS} got further, at most {0.1 * RUNS:.0f} expected")
    assert not exceeds(beyond.sum(), 0.1, comparisons=len(ATTACKERS) * 7)


@pytest.mark.parametrize("options", [pytest.param(one, id=name) for name, one in goals()])
def test_the_best_attacker_gets_about_as_far_as_certified(options):
    """So that the test before this one can fail: who stops in time is near the bound."""
    plan = potl.spot_check.plan(
        rates=RATES, momentum=MOMENTUM, clip=1.0, probability=0.9, **options
    )
    weights = 2 * Momentum(momentum=MOMENTUM).responses(RATES)
    game = play(until_too_far, plan, weights, miss_rate=options.get("miss_rate", 0.0))
    beyond = ~game.caught & (game.moved > plan.certificate.displacement * (1 + 1e-12))
    assert beyond.sum() > 0.05 * RUNS


def test_half_the_checks_do_not_hold_the_certificate():
    weights = 2 * Momentum(momentum=MOMENTUM).responses(RATES)
    plan = potl.spot_check.plan(
        rates=RATES, momentum=MOMENTUM, clip=1.0, probability=0.9, displacement=10.0
    )
    halved = potl.spot_check.Plan(
        probabilities=plan.probabilities / 2,
        expected_checks=plan.expected_checks / 2,
        certificate=plan.certificate,
    )
    game = play(until_too_far, halved, weights)
    assert exceeds((~game.caught).sum(), 0.1)


def test_checks_that_do_not_follow_the_rates_do_not_hold_the_certificate():
    """As many checks, equally often: who is false only at large steps gets away."""
    weights = 2 * Momentum(momentum=MOMENTUM).responses(RATES)
    plan = potl.spot_check.plan(
        rates=RATES, momentum=MOMENTUM, clip=1.0, probability=0.9, displacement=10.0
    )
    even = potl.spot_check.Plan(
        probabilities=np.full(STEPS, plan.expected_checks / STEPS),
        expected_checks=plan.expected_checks,
        certificate=plan.certificate,
    )
    game = play(until_too_far, even, weights)
    assert exceeds((~game.caught & (game.moved > 10.0)).sum(), 0.1)


def test_updates_that_are_clipped_move_the_weights_by_no_more_than_twice_the_clip_each():
    plan = potl.spot_check.plan(
        steps=STEPS, update_clip=0.05, probability=0.9, displacement=2.0, tolerance=1e-4
    )
    weights = np.full(STEPS, 2 * 0.05)
    assert plan.certificate.clipped == pytest.approx(weights.sum())
    assert plan.certificate.leak == pytest.approx(1e-4 * STEPS)
    game = play(until_too_far, plan, weights)
    assert not exceeds((~game.caught).sum(), 0.1)
    np.testing.assert_array_equal(_responses.constant(STEPS), np.ones(STEPS))
