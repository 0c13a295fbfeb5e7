# SPDX-License-Identifier: Apache-2.0
"""A worker that puts a backdoor into the model whose gradients it computes, against SpotCheck: in
short trainings of the experiment docs/experiments/spot_check.md.

With 5 steps at risk each step is checked with a probability of 0.749, so that 30 false steps pass
with one of 1e-18.
"""

import dataclasses

import pytest
from experiments import modules

STEPS, FALSE, AT_RISK = 120, range(90, 120), 5


@pytest.fixture(scope="module")
def guarded():
    with modules("spot_check_guarded", "spot_check_tasks") as (experiment, tasks):
        digits = dataclasses.replace(tasks.SETTINGS["digits"], steps=STEPS)
        yield lambda false, probability=0.999: experiment.guarded(
            digits, 1, false, steps_at_risk=AT_RISK, probability=probability
        )


def test_an_honest_worker_is_accepted_and_leaves_no_backdoor(guarded):
    found = guarded(())
    assert (found.verdict, found.final) == ("accepted", STEPS)
    assert found.success < 0.05


def test_a_worker_that_puts_a_backdoor_in_is_caught_before_it_is_there(guarded):
    found = guarded(FALSE)
    assert found.verdict == "rejected"
    assert found.step - 1 in FALSE and f"the gradient of step {found.step} is false" in found.reason
    assert found.final < found.step and found.success < 0.05


def test_without_checks_the_backdoor_goes_in(guarded):
    found = guarded(FALSE, probability=1e-9)
    assert (found.verdict, found.final) == ("accepted", STEPS)
    assert found.success > 0.5
