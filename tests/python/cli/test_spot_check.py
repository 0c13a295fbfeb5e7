# SPDX-License-Identifier: Apache-2.0
"""potl spot-check."""

import json

import pytest
import tasks

import potl
from potl._cli import _cli

NUMBERS = ["--rate", "0.1", "--steps", "1000", "--clip", "1"]


def run(*words):
    return _cli.run(["spot-check", "plan", *map(str, words)])


@pytest.fixture
def job(tmp_path):
    def build():
        return tasks.task(tasks.mlp(), grad_clip=0.5)

    made = potl.Job.create(build, seed=1, checkpoint_every=4)
    made.write(tmp_path / "job.json")
    return tmp_path / "job.json"


def test_a_plan_is_printed_for_people_and_for_machines(capsys):
    assert run(*NUMBERS, "--displacement", 20) == 0
    said = capsys.readouterr().out
    expected = potl.spot_check.plan(rates=0.1, steps=1000, clip=1.0, displacement=20.0)
    assert said == str(expected) + "\n"
    assert run(*NUMBERS, "--displacement", 20, "--json") == 0
    assert json.loads(capsys.readouterr().out) == expected.document()


def test_every_number_reaches_the_plan(capsys):
    words = ["--momentum", 0.9, "--nesterov", "--steps-at-risk", 50, "--probability", 0.99]
    words += ["--tolerance", 0.001, "--miss-rate", 0.01, "--json"]
    words += ["--step-seconds", 0.5, "--check-seconds", 2]
    assert run(*NUMBERS, *words) == 0
    expected = potl.spot_check.plan(
        rates=0.1,
        steps=1000,
        clip=1.0,
        momentum=0.9,
        nesterov=True,
        steps_at_risk=50,
        probability=0.99,
        tolerance=0.001,
        miss_rate=0.01,
        cost=potl.spot_check.CostModel(step_seconds=0.5, check_seconds=2.0),
    )
    assert json.loads(capsys.readouterr().out) == expected.document()
    words = ["--momentum", 0.9, "--dampening", 0.5, "--displacement", 20, "--json"]
    assert run(*NUMBERS, *words) == 0
    expected = potl.spot_check.plan(
        rates=0.1, steps=1000, clip=1.0, momentum=0.9, dampening=0.5, displacement=20.0
    )
    assert json.loads(capsys.readouterr().out) == expected.document()
    assert run("--update-clip", 0.1, "--steps", 100, "--displacement", 2, "--json") == 0
    expected = potl.spot_check.plan(update_clip=0.1, steps=100, displacement=2.0)
    assert json.loads(capsys.readouterr().out) == expected.document()


def test_a_job_is_planned_and_its_task_measured(job, capsys, monkeypatch):
    monkeypatch.setattr(tasks, "clipped", lambda: tasks.task(tasks.mlp(), grad_clip=0.5), False)
    assert run(job, "--steps-at-risk", 3, "--task", "tasks:clipped") == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("12 steps, about ")
    assert said[1].startswith("checks take about ")
    assert said[3].startswith("a step takes ")


def test_what_cannot_be_reached_ends_with_3_and_says_what_would_do(capsys):
    assert run(*NUMBERS, "--displacement", 1, "--tolerance", 0.1) == 3
    said = capsys.readouterr().err
    assert said.startswith("potl: unreachable: ") and "a tolerance below 0.01" in said


@pytest.mark.parametrize(
    "words",
    [
        [*NUMBERS],
        [*NUMBERS, "--displacement", "1", "--steps-at-risk", "2"],
        [*NUMBERS, "--displacement", "1", "--step-seconds", "2"],
        [*NUMBERS, "--displacement", "1", "--step-seconds", "2", "--task", "tasks:plain"],
        ["--displacement", "1"],
        ["nowhere.json", "--displacement", "1"],
    ],
    ids=" ".join,
)
def test_wrong_usage_ends_with_2(words, capsys):
    assert run(*words) == 2
    assert capsys.readouterr().err
