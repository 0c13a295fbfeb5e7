# SPDX-License-Identifier: Apache-2.0
"""A command that is told to end leaves no copies of anybody's data behind."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from pathlib import Path

import programs
import pytest

import potl
from potl._cli._ending import ends_tidily
from potl._record._keygen import write_pair

TASK = """
import os, time
import driver_tasks

def build():
    if "WAITS" in os.environ:
        with open(os.environ["WAITS"] + ".new", "w") as file:
            file.write(str(os.getpid()))
        os.rename(file.name, os.environ["WAITS"])
        time.sleep(3600)
    return driver_tasks.build()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_what_is_packed_does_not_stay(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "waiting_task.py").write_text(TASK)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        import waiting_task  # type: ignore[import-not-found]

        potl.Job.create(waiting_task.build, seed=1, checkpoint_every=8).write(tmp_path / "job.json")
    write_pair(tmp_path / "box", encryption=True)
    (copies := tmp_path / "copies").mkdir()
    words = "seal waiting_task:build job.json job.sealed --for box.pub"
    paths = f"{tmp_path}:{Path(programs.__file__).parent}"
    named = {"TMPDIR": str(copies), "WAITS": str(tmp_path / "waits"), "PYTHONPATH": paths}
    with subprocess.Popen(
        [programs.command(), *words.split()],
        cwd=tmp_path,
        env={**os.environ, **named},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        until = time.monotonic() + 300
        while not (tmp_path / "waits").exists() and time.monotonic() < until:
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        assert any(copies.glob("potl-*"))
        os.kill(int((tmp_path / "waits").read_text()), number)
        _, problems = process.communicate(timeout=60)
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert not any(copies.glob("potl-*"))
    assert "Traceback" not in problems


def test_a_signal_that_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ends_tidily():
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_process_that_a_task_forked_ends_as_always() -> None:
    libc, lock = ctypes.PyDLL(None), ctypes.create_string_buffer(64)
    with ends_tidily():
        child = os.fork()
        if not child:
            # As in a lock that a thread of the parent held: no handler of Python's would run.
            libc.pthread_mutex_lock(lock)
            libc.pthread_mutex_lock(lock)
            os._exit(7)
        time.sleep(0.5)
        os.kill(child, signal.SIGTERM)
        time.sleep(0.5)
        os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
    assert os.waitstatus_to_exitcode(status) == -signal.SIGTERM
