# SPDX-License-Identifier: Apache-2.0
"""How far a gradient moves the weights is what torch.optim.SGD does with it."""

import functools
import struct

import numpy as np
import pytest
import tasks
import torch

import potl
from potl._spot_check import _responses
from potl._spot_check._responses import Momentum

RATES = np.array([0.05, 0.1, 0.3, 0.2, 0.2, 0.01, 0.0, 0.15])
OPTIONS = [
    {},
    {"dampening": 0.4},  # which torch ignores without momentum
    {"momentum": 0.9},
    {"momentum": 0.9, "dampening": 0.4},
    {"momentum": 0.5, "dampening": 1.0},
    {"momentum": 0.9, "nesterov": True},
]


def moved_by(impulse, *, momentum=0.0, dampening=0.0, nesterov=False):
    """Where torch.optim.SGD takes a weight whose gradient is 1 at one step and 0 at the others."""
    weight = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = torch.optim.SGD(
        [weight], lr=1.0, momentum=momentum, dampening=dampening, nesterov=nesterov
    )
    for step, rate in enumerate(RATES):
        optimizer.param_groups[0]["lr"] = float(rate)
        weight.grad = torch.full_like(weight, float(step == impulse))
        optimizer.step()
    return -weight.item()


@pytest.mark.parametrize("options", OPTIONS, ids=repr)
def test_a_unit_of_gradient_moves_the_weights_as_torch_moves_them(options):
    found = Momentum(**options).responses(RATES)
    np.testing.assert_allclose(found, [moved_by(step, **options) for step in range(8)], rtol=1e-12)


@pytest.mark.parametrize("options", OPTIONS, ids=repr)
def test_clipping_alone_allows_what_the_certificate_says_and_no_more(options):
    """Two trainings as different as the clip allows end exactly so far from each other."""
    clip, ends = 0.7, []
    direction = torch.tensor([0.6, 0.0, 0.8], dtype=torch.float64)
    for sign in (1, -1):
        weights = torch.nn.Parameter(torch.zeros(3, dtype=torch.float64))
        optimizer = torch.optim.SGD([weights], lr=1.0, **options)
        for rate in RATES:
            optimizer.param_groups[0]["lr"] = float(rate)
            weights.grad = sign * clip * direction
            optimizer.step()
        ends.append(weights.detach())
    found = potl.spot_check.plan(rates=RATES, clip=clip, steps_at_risk=1, **options)
    assert float((ends[0] - ends[1]).norm()) == pytest.approx(found.certificate.clipped, rel=1e-12)


@functools.cache
def job_of(momentum=0.9, **options):
    def build():
        model = tasks.mlp()
        first, second = model[0].parameters(), model[-1].parameters()
        groups = [{"params": list(first)}, {"params": list(second), "lr": 0.02, "momentum": 0.5}]
        optimizer = torch.optim.SGD(groups, lr=0.1, momentum=momentum, weight_decay=1e-4)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        return tasks.task(model, optimizer, scheduler=schedule, **options)

    return potl.Job.create(build, seed=1, checkpoint_every=4)


def rates_of(job, group):
    table = job.core.fields()["learning_rates"]
    rates = [struct.unpack(">d", bytes.fromhex(run["rates"][group]))[0] for run in table]
    return np.repeat(rates, [run["steps"] for run in table])


def test_a_job_gives_the_recipe_and_the_group_that_moves_furthest_counts():
    job = job_of(grad_clip=0.5)
    first = Momentum(momentum=0.9).responses(rates_of(job, 0))
    second = Momentum(momentum=0.5).responses(rates_of(job, 1))
    found = _responses.of_job(job)
    np.testing.assert_array_equal(found, np.maximum(first, second))
    assert _responses.clip_of_job(job) == 0.5
    assert len(set(found)) > 3  # the schedule was read


def test_the_second_group_counts_where_it_moves_further():
    job = job_of(momentum=0.0, grad_clip=0.5)
    second = Momentum(momentum=0.5).responses(rates_of(job, 1))
    slow = job.core.fields()
    slow["learning_rates"] = [
        {"steps": run["steps"], "rates": ["0" * 16, run["rates"][1]]}
        for run in slow["learning_rates"]
    ]
    job = job.replace(learning_rates=slow["learning_rates"])
    np.testing.assert_array_equal(_responses.of_job(job), second)


def test_a_plan_of_a_job_is_that_of_its_numbers():
    job = job_of(grad_clip=0.5)
    of_job = potl.spot_check.plan(job, displacement=0.5)
    responses = _responses.of_job(job)
    spelled_out = potl.spot_check.plan(rates=responses, clip=0.5, displacement=0.5)
    np.testing.assert_array_equal(of_job.probabilities, spelled_out.probabilities)
    assert of_job.certificate == spelled_out.certificate


def test_a_job_may_be_a_file_and_a_clip_of_ones_own_counts(tmp_path):
    job_of().write(tmp_path / "job.json")
    found = potl.spot_check.plan(tmp_path / "job.json", clip=0.25, steps_at_risk=2)
    assert found.certificate.clipped == pytest.approx(0.5 * _responses.of_job(job_of()).sum())
    with pytest.raises(potl.UsageError, match="nothing limits the gradients"):
        potl.spot_check.plan(tmp_path / "job.json", steps_at_risk=2)


@pytest.mark.parametrize(
    ("name", "why", "remedy"),
    [
        ("Adam", "7.27 learning rates", "update_clip"),
        ("AdamW", "thousands of steps", "torch.optim.SGD"),
        ("RMSprop", "not a sum of gradients", "torch.optim.SGD"),
        ("LBFGS", "not a sum of gradients", "update_clip"),
    ],
)
def test_other_optimizers_are_refused_with_the_reason(name, why, remedy):
    job = job_of(grad_clip=0.5)
    task = job.core.fields()["task"]
    task["optimizers"][0]["class"] = name
    with pytest.raises(potl.UnsupportedError, match=f"no certificate for {name}: .*{why}") as seen:
        potl.spot_check.plan(job.replace(task=task), displacement=0.5)
    assert remedy in seen.value.remedy


def test_the_jobs_of_adam_that_potl_makes_are_refused():
    job = potl.Job.create(tasks.adam, seed=1, checkpoint_every=4)
    with pytest.raises(potl.UnsupportedError, match="no certificate for Adam"):
        potl.spot_check.plan(job, clip=1.0, displacement=0.5)


def refused(job, match, **changed):
    task = {**job.core.fields()["task"], **changed}
    with pytest.raises((potl.UnsupportedError, potl.MalformedError), match=match):
        potl.spot_check.plan(job.replace(task=task), displacement=0.5)


def test_what_is_no_sum_of_gradients_or_not_fixed_is_refused():
    job = job_of(grad_clip=0.5)
    refused(job, "scaler skips", scaler={"scale": "1.0"})
    refused(job, "does not fix", varying=None)
    changing = {"optimizers": [["lr", "momentum"]], "schedulers": [[]]}
    refused(job, "a scheduler changes momentum", varying=changing)
    refused(job, "does not describe", optimizers=None)
    refused(job, "not described as one", optimizers=["SGD"])
    refused(job, "is not a list", optimizers=[{"class": "SGD"}])
    [one] = job.core.fields()["task"]["optimizers"]
    refused(job, "not one for each", optimizers=[{**one, "groups": one["groups"][:1]}])
    refused(job, "is not a number", optimizers=[{**one, "groups": [{"momentum": None}] * 2}])
    with pytest.raises(potl.UnsupportedError, match="does not fix"):
        potl.spot_check.plan(job.replace(learning_rates=None), displacement=0.5)
    found = potl.spot_check.plan(
        job.replace(learning_rates=None), rates=0.1, momentum=0.9, displacement=0.5
    )
    assert len(found.probabilities) == job.steps


def test_one_cycle_changes_the_momentum_and_is_refused():
    def build():
        model = tasks.mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=13)
        return tasks.task(
            model, optimizer, scheduler=schedule, scheduler_interval="step", grad_clip=1.0
        )

    job = potl.Job.create(build, seed=1, checkpoint_every=4)
    with pytest.raises(potl.UnsupportedError, match="a scheduler changes momentum"):
        potl.spot_check.plan(job, displacement=0.5)
