# SPDX-License-Identifier: Apache-2.0
"""Worker processes end with `potl verify`, however it ends, and their end is no verdict."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import programs
import pytest
from places import HELPERS

import potl

TASK = """
import os, time
from multiprocessing import parent_process
import driver_tasks, potl

class Slow(potl.Task):
    def step(self, batch):
        if "SLOW" in os.environ:
            open(os.environ["SLOW"], "a").write(f"{os.getpid()} {parent_process().pid}\\n")
            time.sleep(3600)
        return super().step(batch)

def build():
    return Slow(**driver_tasks.options())
"""


def session_of(process: int) -> int | None:
    """The session that a living process belongs to."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] == "Z" else int(fields[3])
    return None


def living(session: int) -> list[int]:
    processes = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [one for one in processes if session_of(one) == session]


def eventually(holds: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds():
            return True
        time.sleep(0.05)
    return holds()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("workers")
    (path / "slow_task.py").write_text(TASK)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(path))
        import slow_task  # type: ignore[import-not-found]

        job = potl.Job.create(slow_task.build, seed=3, checkpoint_every=8)
        run = potl.record(slow_task.build, path / "run", job=job, key=path / "key.pem")
    job.write(path / "job.json")
    run.commit().write(path / "note.txt")
    return path


class Verification:
    """`potl verify` with two workers, each in the middle of a step."""

    def __init__(self, folder: Path, marks: Path) -> None:
        words = "run --job job.json --commitment note.txt --task slow_task:build --no-ledger"
        self.marks = marks
        self.process = subprocess.Popen(
            [programs.command(), "verify", *words.split(), "--workers", "2"],
            cwd=folder,
            env={**os.environ, "SLOW": str(marks), "PYTHONPATH": str(HELPERS)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert eventually(lambda: len(self.workers()) == 2, 600), self.process.communicate()
        (self.main,) = {parent for _, parent in self.rows()}

    def rows(self) -> list[list[int]]:
        lines = self.marks.read_text().splitlines() if self.marks.exists() else []
        return [list(map(int, line.split())) for line in lines]

    def workers(self) -> set[int]:
        return {worker for worker, _ in self.rows()}

    def living(self) -> list[int]:
        """Each program of the server has a session of its own."""
        return [one for session in {self.main, *self.workers()} for one in living(session)]

    def ended(self) -> tuple[int, str]:
        output, _ = self.process.communicate(timeout=600)
        assert eventually(lambda: not self.living(), 60), "processes are left behind"
        return self.process.returncode, output


@pytest.fixture
def verification(folder: Path, tmp_path: Path) -> Iterator[Verification]:
    running = Verification(folder, tmp_path / "marks")
    try:
        yield running
    finally:
        for one in running.living():
            os.kill(one, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_no_process_outlives_a_verification_that_is_ended(
    verification: Verification, number: signal.Signals
) -> None:
    os.kill(verification.main, number)
    code, output = verification.ended()
    assert code == -number, output


@pytest.mark.parametrize("everybody", [False, True])
def test_an_interrupt_ends_all_of_it_with_130(verification: Verification, everybody: bool) -> None:
    if everybody:  # as a terminal does
        for one in {verification.main, *verification.workers()}:
            os.kill(one, signal.SIGINT)
    else:
        os.kill(verification.main, signal.SIGINT)
    code, output = verification.ended()
    assert code == 130, output
    assert "Traceback" not in output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_worker_that_is_killed_leaves_no_verdict(
    verification: Verification, number: signal.Signals
) -> None:
    os.kill(min(verification.workers()), number)
    code, output = verification.ended()
    assert code == 3, output
    assert "a worker failed" in output
