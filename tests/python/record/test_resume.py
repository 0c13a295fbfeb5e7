# SPDX-License-Identifier: Apache-2.0
"""Interrupted recordings: killed at any moment, stopped by Ctrl-C, continued by another process."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import driver_tasks as tasks
import programs
import pytest
from places import HELPERS

import potl
from potl import _core

KILLS = 100 if os.environ.get("POTL_FULL") else 10
# Between two lines: a start of torch or a step. How long a whole run takes says nothing, because
# other work on the machine slows down its dozen starts; that nothing moves any more does.
STALL_SECONDS = 300.0

PROGRAM = """
import os, sys
import potl, driver_tasks
prover = potl.Prover(driver_tasks.build_slow, sys.argv[1], job="job.json", key="trainer.pem")
with prover:
    for step in prover.steps():
        print(prover.acknowledged, flush=True)
        if step.number == int(sys.argv[2]):
            os.environ["POTL_TEST_STEP_SECONDS"] = "1000"
print("finished", prover.run.final_digest.hex(), flush=True)
"""


def start(folder: Path, name: str, python: str, stays_behind: int = 0) -> "subprocess.Popen[str]":
    """Records; behind a step it takes longer for the next one than anybody waits."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(HELPERS), *sys.path]),
        "POTL_TEST_STEP_SECONDS": "0.02",
    }
    return subprocess.Popen(
        [python, "-c", PROGRAM, name, str(stays_behind)],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # What a shell starts in the background ignores the signal, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("resume")
    job = potl.Job.create(tasks.build_slow, seed=7, checkpoint_every=4, max_resumes=1000)
    job.write(made / "job.json")
    return made


@pytest.fixture(scope="module")
def uninterrupted(folder: Path) -> potl.Run:
    return potl.record(
        tasks.build_slow, folder / "whole", job=folder / "job.json", key=folder / "trainer.pem"
    )


def lines_of(process: "subprocess.Popen[str]") -> Iterator[str]:
    """What the process prints. It is stopped, and the test fails, when it stands still."""
    assert process.stdout is not None
    while True:
        stalled = threading.Event()

        def stop(stalled: threading.Event = stalled) -> None:
            stalled.set()
            process.kill()

        watchdog = threading.Timer(STALL_SECONDS, stop)
        watchdog.start()
        line = process.stdout.readline()
        watchdog.cancel()
        assert not stalled.is_set(), f"nothing moved for {STALL_SECONDS} s"
        if not line:
            return
        yield line


def acknowledged_at(process: "subprocess.Popen[str]", lines: int) -> int:
    """What the last of so many lines says is durable; 0 when there was none."""
    acknowledged = 0
    for _, line in zip(range(lines), lines_of(process), strict=False):
        if line.startswith("finished"):
            break
        acknowledged = int(line)
    return acknowledged


def recorded_steps(path: Path) -> int:
    evidence = _core.Evidence.open(str(path), job=None, commitment=None)
    steps = evidence.steps()["step"] + evidence.superseded_steps()["step"]
    return max(steps, default=0)


def test_killed_at_random_moments_it_ends_in_the_same_state_and_is_accepted(
    folder: Path, uninterrupted: potl.Run
) -> None:
    seed = int(time.time())
    draw = random.Random(seed)
    print(f"seed {seed}, {KILLS} kills")
    kills, runs = 0, 0
    while kills < KILLS:
        runs += 1
        name = f"killed-{runs}"
        for _ in range(min(5, KILLS - kills)):
            process = start(folder, name, programs.python())
            acknowledged = acknowledged_at(process, draw.randint(1, 14))
            time.sleep(draw.random() * 0.02)
            process.send_signal(signal.SIGKILL)
            process.communicate()  # until the program, which holds its output, is dead
            kills += 1
            assert recorded_steps(folder / name) >= acknowledged, "an acknowledged step is lost"
        done = start(folder, name, programs.python())
        *_, last_line = lines_of(done)
        _, problems = done.communicate()
        assert done.returncode == 0, problems
        assert last_line == f"finished {uninterrupted.final_digest.hex()}\n"
    last = potl.Run(folder / name, key=folder / "trainer.pem")
    report = potl.verify(
        last, job=folder / "job.json", commitment=last.commit(), task=tasks.build_slow, ledger=None
    )
    assert report.verdict == "accepted", report.json()


def test_control_c_propagates_and_the_run_goes_on(folder: Path, uninterrupted: potl.Run) -> None:
    process = start(folder, "interrupted", sys.executable, stays_behind=20)
    acknowledged_at(process, 20)
    process.send_signal(signal.SIGINT)
    _, problems = process.communicate(timeout=STALL_SECONDS)
    assert process.returncode in (130, -signal.SIGINT), problems
    assert "KeyboardInterrupt" in problems
    resumed = potl.record(
        tasks.build_slow,
        folder / "interrupted",
        job=folder / "job.json",
        key=folder / "trainer.pem",
    )
    assert resumed.final_digest == uninterrupted.final_digest


def test_a_directory_resumes_only_its_own_job(folder: Path) -> None:
    with potl.Prover(
        tasks.build_slow, folder / "own", job=folder / "job.json", key=folder / "trainer.pem"
    ) as prover:
        next(iter(prover.steps()))
    other = potl.Job.create(tasks.build_slow, seed=8, checkpoint_every=4)
    with pytest.raises(potl.UsageError, match="job"):
        potl.record(tasks.build_slow, folder / "own", job=other, key=folder / "trainer.pem")


def test_a_directory_resumes_only_with_its_own_key(folder: Path) -> None:
    with potl.Prover(tasks.build_slow, folder / "keyed", job=folder / "job.json") as prover:
        next(iter(prover.steps()))
    with pytest.raises(potl.UsageError, match="key"):
        potl.record(
            tasks.build_slow, folder / "keyed", job=folder / "job.json", key=folder / "trainer.pem"
        )


def test_without_arguments_a_run_resumes_under_its_own_job(tmp_path: Path) -> None:
    with potl.Prover(tasks.build, tmp_path / "run", seed=3, checkpoint_every=4) as prover:
        for step in prover.steps():
            if step.number == 6:
                break
    with pytest.raises(potl.UsageError, match="seed 3"):
        potl.record(tasks.build, tmp_path / "run", seed=4, checkpoint_every=4)
    run = potl.record(tasks.build, tmp_path / "run", seed=3, checkpoint_every=4)
    assert len(run.losses) == 24


def test_telemetry_goes_on_after_a_resume(tmp_path: Path) -> None:
    with potl.Prover(tasks.build, tmp_path / "run", seed=3, checkpoint_every=4) as prover:
        for step in prover.steps():
            if step.number == 6:
                break
    before = (tmp_path / "run" / "telemetry.log").read_bytes()
    potl.record(tasks.build, tmp_path / "run", seed=3, checkpoint_every=4)
    after = (tmp_path / "run" / "telemetry.log").read_bytes()
    assert after.startswith(before) and len(after) > len(before)


def test_a_run_that_a_verifier_would_reject_is_not_trained_on(tmp_path: Path) -> None:
    job = potl.Job.create(tasks.build, seed=7, checkpoint_every=4, max_resumes=1)

    def train(**options: bool) -> None:
        with potl.Prover(tasks.build, tmp_path / "run", job=job, **options) as prover:
            next(prover.steps())

    train()
    train()
    with pytest.raises(potl.UsageError, match="the job allows 1 resume,") as refused:
        train()
    assert "max_resumes" in refused.value.remedy
    train(check_job=False)
