# SPDX-License-Identifier: Apache-2.0
"""Honest replay noise as measured before a job is agreed."""

import json
import math
from pathlib import Path

import driver_tasks as tasks
import pytest
import torch

import potl
from potl import _core
from potl._job._calibrate import _relative


@pytest.fixture(scope="module")
def measured() -> potl.Calibration:
    return potl.calibrate(tasks.build, steps=12, repeats=3)


def test_every_length_and_group_is_measured(measured: potl.Calibration) -> None:
    assert list(dict.fromkeys(entry.steps for entry in measured.noise)) == [1, 2, 5, 10, 12]
    assert {entry.group for entry in measured.noise} >= {"parameters", "optimizer", "buffers"}


def test_honest_noise_is_small_and_not_zero(measured: potl.Calibration) -> None:
    largest = [entry.largest for entry in measured.noise if entry.group == "parameters"]
    assert not measured.deterministic
    assert all(math.isfinite(value) and value < 1e-3 for value in largest)
    assert any(value > 0 for value in largest)


def test_a_quiet_task_may_use_the_longest_interval(measured: potl.Calibration) -> None:
    assert measured.checkpoint_every == 12


def test_the_table_and_the_json_say_the_same(measured: potl.Calibration) -> None:
    assert "checkpoint_every=12" in measured.table()
    document = json.loads(measured.json())
    assert document["checkpoint_every"] == 12
    assert len(document["noise"]) == len(measured.noise)


def test_more_steps_than_a_run_has_are_not_measured() -> None:
    assert potl.calibrate(tasks.build, steps=1000, repeats=1).noise[-1].steps == 24


@pytest.mark.parametrize("options", [{"steps": 0}, {"repeats": 0}])
def test_nothing_to_measure_is_a_usage_error(options: "dict[str, int]") -> None:
    with pytest.raises(potl.UsageError):
        potl.calibrate(tasks.build, **options)


def of_one_step(noise: float) -> potl.Calibration:
    group = potl.Noise(steps=1, group="parameters", median=noise, largest=noise, worst_tensor="w")
    return potl.Calibration(
        noise=(group,),
        deterministic=False,
        repeats=1,
        tolerance_cap=0.1,
        checkpoint_every=None,
        seconds_per_step=0.1,
        checkpoint_bytes=8,
    )


def test_one_step_of_too_much_noise_recommends_nothing() -> None:
    assert "drifts too far" in of_one_step(0.5).table()


def test_a_checkpoint_is_as_large_as_those_of_a_run(
    measured: potl.Calibration, tmp_path: Path
) -> None:
    """With the optimizer's state, which the initial one lacks, and the file's header."""
    run = potl.record(tasks.build, tmp_path / "run", seed=0, checkpoint_every=12)
    stored = (run.path / "checkpoints" / "step-12.safetensors").stat().st_size
    assert measured.checkpoint_bytes == pytest.approx(stored, rel=0.01)


def test_a_larger_disk_makes_verification_cheaper(measured: potl.Calibration) -> None:
    state = measured.checkpoint_bytes
    small = measured.storage(steps=1000, budget_bytes=20 * state)
    large = measured.storage(steps=1000, budget_bytes=500 * state)
    assert small.bytes <= 20 * state and large.bytes <= 500 * state
    assert large.checkpoint_every < small.checkpoint_every
    assert large.verification_fraction < small.verification_fraction
    assert large.noise_fits and not small.noise_fits


def test_a_form_that_differs_is_within_no_share_of_an_update() -> None:
    """A verification of such a segment ends inconclusive, however far its floats are off."""
    form = _core.TensorDistance(path="state/own/kept", l2=1.0, judged="codes")
    distance = _core.GroupDistance(group="other", tensors=[form])
    assert _relative(distance) == math.inf
    assert _relative(_core.GroupDistance(group="other")) == 0.0


def diverging() -> potl.Task:
    task = tasks.build()
    (optimizer,) = task.optimizers
    rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 if step < 7 else 1e30)
    task.schedulers = (rate,)
    return task


def test_a_training_that_diverges_recommends_nothing() -> None:
    with pytest.raises(potl.NotReplayable, match=r"after 10 steps, .* no verifier accepts"):
        potl.calibrate(diverging, steps=12, repeats=1)


def test_noise_without_a_bound_is_json() -> None:
    document = json.loads(of_one_step(math.inf).json(), parse_constant=pytest.fail)
    assert document["noise"][0]["largest"] == "inf"
