# SPDX-License-Identifier: Apache-2.0
"""Spot-checked trainings with LibTorch, from an installed tree: gradients, and the example."""

import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("potl._torch", reason="potl was built without torch")

from libtorch_build import run, run_well  # noqa: E402

import potl  # noqa: E402


@pytest.fixture
def place(digits: Path, tmp_path: Path) -> Path:
    (tmp_path / "key").write_bytes(bytes(range(32)))
    (tmp_path / "data").symlink_to(digits)
    return tmp_path


@contextmanager
def listening(program: Path, place: Path, *words: object) -> Iterator["subprocess.Popen[str]"]:
    address = f"unix:{place}/socket"
    command = [program, place / "data", address, place / "key", *words]
    worker = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True)
    try:
        yield worker
        assert worker.wait(60) == 0
    finally:
        worker.kill()
        worker.communicate()


def guard(programs: Path, place: Path) -> "subprocess.CompletedProcess[str]":
    address = f"unix:{place}/socket"
    return run(
        programs / "spot_check/guard", place / "data", place / "guard", address, place / "key"
    )


def test_gradients_are_those_of_a_training(programs: Path) -> None:
    run_well(programs / "exact_programs", "gradients_test")


def test_an_honest_worker_is_accepted_also_after_the_guard_was_killed(
    programs: Path, place: Path
) -> None:
    with listening(programs / "spot_check/worker", place):
        address = f"unix:{place}/socket"
        command = [programs / "spot_check/guard", place / "data", place / "guard", address]
        first = subprocess.Popen([*map(str, command), str(place / "key")])
        while not (place / "guard/state").exists():
            assert first.poll() is None
            time.sleep(0.001)
        first.kill()
        first.wait()
        done = guard(programs, place)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "verdict: accepted" in done.stdout
    found = re.match(r"goes on after step (\d+)\n", done.stdout)
    assert found is not None and int(found[1]) % 8 == 0


def test_a_false_worker_is_rejected_with_its_step_and_another_one_goes_on(
    programs: Path, place: Path
) -> None:
    with listening(programs / "cheating_worker", place, 41):
        done = guard(programs, place)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "verdict: rejected" in done.stdout
    found = re.search(r"the gradient of step (\d+) is false", done.stdout)
    assert found is not None and int(found[1]) >= 41
    final = (place / "guard/state").read_bytes()[40:48]
    assert int.from_bytes(final, "little") == (int(found[1]) - 1) // 8 * 8
    with listening(programs / "spot_check/worker", place):
        done = guard(programs, place)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 session ended at a check" in done.stdout


def test_one_guard_at_a_time_trains_in_a_folder(programs: Path, place: Path) -> None:
    (place / "guard").mkdir()
    other = potl._core.DirectoryLock(str(place / "guard"), "a guard in Python", "")
    done = guard(programs, place)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "another guard trains in" in done.stderr
    other.release()
    with listening(programs / "spot_check/worker", place):
        assert guard(programs, place).returncode == 0


def test_a_worker_without_the_key_decides_nothing(programs: Path, place: Path) -> None:
    (place / "own").mkdir()
    (place / "own/key").write_bytes(bytes(32))
    (place / "own/data").symlink_to(place / "data")
    worker = programs / "spot_check/worker"
    socket = f"unix:{place}/socket"
    other = subprocess.Popen([str(worker), str(place / "data"), socket, str(place / "own/key")])
    try:
        done = guard(programs, place)
    finally:
        other.kill()
        other.wait()
    assert done.returncode == 3, done.stdout + done.stderr
    assert "verdict: inconclusive" in done.stdout


def test_only_the_task_knows_libtorch(programs: Path) -> None:
    for name, knows in (("guard", False), ("worker", False), ("task", True)):
        [built] = (programs / f"spot_check/CMakeFiles/{name}.dir").glob("*.o")
        names = run_well("nm", "-C", built)
        assert bool(re.search(r"\b(at|torch|c10)::", names)) == knows, name
