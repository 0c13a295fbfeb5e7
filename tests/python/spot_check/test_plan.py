# SPDX-License-Identifier: Apache-2.0
"""What a plan says, and what it refuses."""

import dataclasses
import doctest
import json
import pickle

import numpy as np
import pytest
import tasks
from guarded import KEY, build

import potl
from potl._spot_check import _responses

plan, CostModel = potl.spot_check.plan, potl.spot_check.CostModel


def some(**options):
    return plan(**{"rates": 0.1, "steps": 1000, "clip": 1.0, **options})


@pytest.mark.parametrize(
    ("steps_at_risk", "digits", "probability"),
    [(1, 3, 0.999), (10, 3, 0.499), (100, 3, 0.067), (1000, 4, 0.0069)],
)
def test_the_probability_of_a_check_is_that_of_the_table(steps_at_risk, digits, probability):
    found = some(steps_at_risk=steps_at_risk)
    assert round(float(found.probabilities[0]), digits) == probability
    assert found.expected_checks == pytest.approx(1000 * found.probabilities[0])


@pytest.mark.parametrize(("epochs", "steps_at_risk"), [(1, 2), (2, 5), (40, 100)])
def test_a_guard_catches_a_tenth_of_the_steps_by_default(epochs, steps_at_risk):
    """A hundred of 116 false steps would be a certificate of nothing."""

    def some_epochs():
        return build(epochs=epochs)

    job = potl.Job.create(some_epochs, seed=3, checkpoint_every=29)
    with potl.SpotCheck(some_epochs, job=job, key=KEY) as guard:
        asked = plan(job, clip=1.0, steps_at_risk=steps_at_risk)
        assert guard.plan.probabilities == pytest.approx(asked.probabilities)


def test_examples_of_docstrings_are_true():
    names = {"plan": plan, "CostModel": CostModel}
    for module in (potl._spot_check, potl._spot_check._plan, potl._spot_check._cost):
        found = doctest.testmod(module, extraglobs=names)
        assert found.attempted and not found.failed


def test_steps_that_move_the_weights_further_are_checked_more_often():
    found = plan(rates=np.linspace(0.1, 0.01, 100), clip=1.0, displacement=1.0)
    assert np.all(np.diff(found.probabilities) < 0)
    # Equally often it takes more checks for a weaker certificate.
    even = plan(rates=np.linspace(0.1, 0.01, 100), clip=1.0, steps_at_risk=9)
    assert even.expected_checks > found.expected_checks
    assert even.certificate.displacement > 1.5


def test_a_plan_says_what_it_guarantees_and_costs():
    cost = CostModel(step_seconds=0.1, check_seconds=0.25)
    found = some(displacement=20.0, tolerance=0.001, cost=cost)
    assert found.certificate.displacement == 20.0
    assert found.certificate.leak == pytest.approx(0.1)
    assert found.certificate.clipped == pytest.approx(200.0)
    assert found.checking_seconds == pytest.approx(0.25 * found.expected_checks)
    assert found.overhead == pytest.approx(0.25 * found.expected_checks / 100)
    said = str(found).splitlines()
    assert said[0] == (
        "1,000 steps, about 67.1 checks: each step is checked with a probability of 6.7 %"
    )
    assert said[1] == "checks take about 16.8 s, which is 16.8 % of the training's time"
    assert said[2] == found.certificate.sentence
    assert "at most 20 (l2), of which 0.1 is what stays below the tolerance" in said[2]


def test_a_certificate_survives_pickling_and_is_compared_by_its_numbers():
    found = some(displacement=20.0).certificate
    again = pickle.loads(pickle.dumps(found))
    assert again == found and again.sentence == found.sentence
    assert found != some(displacement=21.0).certificate


def test_a_range_of_probabilities_is_said_as_one():
    found = plan(rates=[0.1, 0.0, 0.2], clip=1.0, displacement=0.3)
    assert "a probability of 0 % to " in str(found)


def test_a_plan_without_cost_says_nothing_of_time():
    found = some(displacement=20.0)
    assert found.overhead is None and found.checking_seconds is None
    assert len(str(found).splitlines()) == 2


def test_the_document_of_a_plan_has_everything():
    found = plan(rates=[0.1, 0.2], clip=1.0, steps_at_risk=1)
    document = json.loads(found.json())
    assert document["probabilities"] == found.probabilities.tolist()
    guaranteed = found.certificate
    assert document["certificate"] == {
        "probability": guaranteed.probability,
        "displacement": guaranteed.displacement,
        "leak": guaranteed.leak,
        "clipped": guaranteed.clipped,
        "sentence": guaranteed.sentence,
    }
    assert document["steps"] == 2 and document["overhead"] is None


def test_nobody_changes_a_plan():
    found = some(steps_at_risk=10)
    with pytest.raises(ValueError, match="read-only"):
        found.probabilities[0] = 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.expected_checks = 0


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"displacement": 1.0, "tolerance": 0.1}, "unreachable: what stays below the tolerance"),
        ({"displacement": 0.1, "miss_rate": 0.1}, "unreachable: a step would have to be checked"),
        ({"steps_at_risk": 2, "miss_rate": 0.1}, "unreachable: a step would have to be checked"),
    ],
)
def test_what_no_checks_reach_is_unreachable_and_says_what_would_be(options, match):
    with pytest.raises(potl.UnsupportedError, match=match) as seen:
        some(**options)
    assert seen.value.remedy.endswith("would do")


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"rates": None}, "a plan needs a recipe"),
        ({"clip": None}, "nothing limits the gradients .*--clip"),
        ({"steps": None}, "neither one number with steps= nor one for each step"),
        ({"rates": [[0.1]]}, "neither one number"),
        ({"rates": [0.1, 0.2]}, "there are 2 rates"),
        ({"rates": [], "steps": None}, "at least one step"),
        ({"rates": "fast"}, "rates are not numbers"),
        ({"rates": -0.1}, "negative or not finite"),
        ({"steps": 0}, "positive whole number"),
        ({"steps": 2.5}, "positive whole number"),
        ({"momentum": 1.0}, "momentum is 1"),
        ({"nesterov": True}, "Nesterov momentum needs"),
        ({"update_clip": 0.1}, "a recipe of its own"),
        ({"rates": None, "clip": None, "steps": None, "update_clip": 0.1}, "the number of steps"),
        ({"displacement": None}, "a displacement or for steps at risk"),
        ({"steps_at_risk": 3}, "a displacement or for steps at risk"),
        ({"displacement": None, "steps_at_risk": 1001}, "steps_at_risk is 1001"),
        ({"probability": 1.0}, "probability is 1"),
        ({"clip": float("nan")}, "clip is nan"),
        ({"tolerance": -1.0}, "tolerance is -1"),
        ({"miss_rate": 1.0}, "miss_rate is 1"),
    ],
    ids=repr,
)
def test_arguments_that_mean_nothing_are_the_callers_mistake(options, match):
    with pytest.raises(potl.UsageError, match=match):
        some(**{"displacement": 20.0, **options})


def test_a_plan_for_a_billion_steps_is_refused_before_memory_is_taken(monkeypatch):
    with monkeypatch.context() as lowered:
        lowered.setattr(_responses, "MOST_STEPS", 999)
        with pytest.raises(potl.LimitError, match="1,000 steps"):
            some(displacement=20.0)
        some(steps=999, displacement=20.0)
    with pytest.raises(potl.LimitError, match="1,000,000,000 steps"):
        some(steps=10**9, displacement=20.0)
    with pytest.raises(potl.LimitError, match="1,000,000,000 steps"):
        plan(steps=10**9, update_clip=1.0, displacement=20.0)


def test_the_core_takes_arrays_of_float64_alone():
    for bad in (np.ones(3, dtype=np.float32), np.ones((2, 2)), np.ones(6)[::2]):
        with pytest.raises(potl.UsageError, match="is no array"):
            potl._core.gradient_responses(bad)


def test_steps_and_momentum_are_the_jobs():
    job = potl.Job.create(tasks.plain, seed=1, checkpoint_every=4)
    for own in ({"steps": 5}, {"momentum": 0.5}, {"nesterov": True}):
        with pytest.raises(potl.UsageError, match="are the job's"):
            plan(job, clip=1.0, displacement=1.0, **own)
    with pytest.raises(potl.UsageError, match="a recipe of its own"):
        plan(job, update_clip=1.0, displacement=1.0)
    with pytest.raises(potl.UsageError, match="there are 2 rates"):
        plan(job, rates=[0.1, 0.1], clip=1.0, displacement=1.0)


# ------------------------------------------------------------------ cost


def test_the_cost_is_that_of_the_task_on_this_machine():
    job = potl.Job.create(tasks.plain, seed=1, checkpoint_every=4)
    for options in ({}, {"job": job}):
        found = CostModel.measure(tasks.plain, steps=3, **options)
        assert 0 < found.step_seconds < 10
        assert 0 < found.check_seconds < 10


def test_a_check_takes_what_a_slow_step_takes():
    """Both run the task's own step, as often as each other."""
    import time

    calls = []

    class Slow(potl.Task):
        def step(self, batch):
            calls.append(1)
            time.sleep(0.05)
            return super().step(batch)

    def build():
        plain = tasks.plain()
        return Slow(
            model=plain.model,
            optimizer=plain.optimizers[0],
            dataset=plain.dataset,
            loss=plain.loss,
            batch_size=12,
            epochs=3,
        )

    found = CostModel.measure(build, steps=2)
    assert found.step_seconds >= 0.05 and found.check_seconds >= 0.05
    assert len(calls) == 2 * 3


def test_a_cost_that_is_none_is_the_callers_mistake():
    for bad in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(potl.UsageError, match="check_seconds is"):
            CostModel(step_seconds=1.0, check_seconds=bad)
        with pytest.raises(potl.UsageError, match="step_seconds is"):
            CostModel(step_seconds=bad, check_seconds=1.0)
    with pytest.raises(potl.UsageError, match="measure at least one"):
        CostModel.measure(tasks.plain, steps=0)
    with pytest.raises(potl.UsageError, match="a single step"):
        CostModel.measure(lambda: tasks.task(tasks.mlp(), batch_size=48, epochs=1))
