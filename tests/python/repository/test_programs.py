# SPDX-License-Identifier: Apache-2.0
"""The programs of the tests' server of programs do what a Python of their own does."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import programs
import pytest

PROGRAMS = {
    "words": "import sys; print(sys.argv, __name__); print('x', file=sys.stderr)",
    "input": "print(input(), input())",
    "environment": "import os; print(os.environ['MINE'], os.getcwd(), 'POTL_X' in os.environ)",
    "import": "import beside; print(beside.VALUE)",
    "exit": "import sys; sys.exit(7)",
    "exit with words": "raise SystemExit('no')",
    "error": "import nothing",
    "signal": "import os; os.kill(os.getpid(), 9)",
    "threads and exit functions": (
        "import atexit, threading, time; atexit.register(print, 'bye')\n"
        "threading.Thread(target=lambda: (time.sleep(0.1), print('later'))).start()"
    ),
    "torch": "import torch; torch.manual_seed(1); print(torch.get_num_threads(), torch.rand(1))",
}


def end_of(python: str, words: list[str], folder: Path, **more: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [python, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder / "path"), "MINE": "1"} | more,
        input="a\nb\n",
        capture_output=True,
        text=True,
        timeout=600,
    )
    return done.returncode, done.stdout, "\n".join(done.stderr.splitlines()[-1:])


@pytest.mark.parametrize("form", ["-c", "-m", "file"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_ends_as_it_does_alone(name: str, form: str, tmp_path: Path) -> None:
    if name == "torch" and form != "-c":
        pytest.skip("seconds, and the same")
    (tmp_path / "path").mkdir()
    (tmp_path / "path/beside.py").write_text("VALUE = 3")
    (tmp_path / "program.py").write_text(PROGRAMS[name])
    words = {"-c": ["-c", PROGRAMS[name]], "-m": ["-m", "program"], "file": ["program.py"]}[form]
    mine = end_of(programs.python(), [*words, "--more"], tmp_path)
    assert mine == end_of(sys.executable, [*words, "--more"], tmp_path)


def test_two_programs_draw_different_random_numbers(tmp_path: Path) -> None:
    draw = "import random, numpy, torch; print(random.random(), numpy.random.rand(), torch.rand(1))"
    one, two = (end_of(programs.python(), ["-c", draw], tmp_path)[1].split() for _ in range(2))
    assert len(one) == 3 and not set(one) & set(two)


def test_what_only_a_start_can_change_is_refused(tmp_path: Path) -> None:
    code, _, error = end_of(programs.python(), ["-c", ""], tmp_path, ATEN_CPU_CAPABILITY="avx2")
    assert code == 125 and "ATEN_CPU_CAPABILITY" in error


def test_a_program_ends_with_its_client(tmp_path: Path) -> None:
    program = "import time; print(1, flush=True); time.sleep(60); open('late', 'w')"
    with subprocess.Popen(
        [programs.python(), "-c", program], cwd=tmp_path, stdout=subprocess.PIPE
    ) as client:
        assert client.stdout is not None and client.stdout.readline() == b"1\n"
        client.kill()
        assert client.stdout.read() == b"", "the program has let go of its output"
    assert not (tmp_path / "late").exists()


def test_a_client_that_is_killed_while_it_asks_keeps_nobody_waiting(tmp_path: Path) -> None:
    for half in (b"", b' {"arguments"'):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(programs.folder() / "socket"))
            client.sendall(half)
    assert end_of(programs.python(), ["-c", "print(7)"], tmp_path) == (0, "7\n", "")


USER = """
import sys, programs
print(programs.folder(), flush=True)
sys.stdin.read()
"""


def test_a_server_ends_with_the_last_process_that_uses_it() -> None:
    alone = {
        "PYTEST_XDIST_TESTRUNUID": uuid4().hex,
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    with ExitStack() as stack:
        users = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", USER],
                    env={**os.environ, **alone},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for _ in range(2)
        ]
        one, two = (Path(user.stdout.readline().strip()) for user in users if user.stdout)
        assert one == two
        for user, code in zip(users, ("import time; time.sleep(0.5)", ""), strict=True):
            ran = subprocess.run([one / "python", "-c", f"{code}\nprint(7)"], capture_output=True)
            assert ran.stdout == b"7\n", ran.stderr
            assert user.stdin is not None
            user.stdin.close()
        for user in users:
            user.wait(timeout=600)
        assert not one.exists() and not one.with_suffix(".lock").exists()
