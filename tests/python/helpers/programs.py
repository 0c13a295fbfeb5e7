# SPDX-License-Identifier: Apache-2.0
"""`python` and `potl` for tests that run programs, without the seconds in which torch is imported.

They are processes forked from one that has imported torch and potl (program_server.py). A test of
what happens at the start or the violent end of a process takes sys.executable.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from places import HELPERS

import potl


@functools.cache
def folder(**environment: str) -> Path:
    """Where `python` and `potl` lie: a folder for a PATH."""
    path = Path(tempfile.mkdtemp(prefix="potl-"))
    client = (HELPERS / "program_client.py").read_text()
    for name in ("python", "potl"):
        (path / name).write_text(f"#!{sys.executable} -IS\n{client}")
        (path / name).chmod(0o755)
    address = path / "socket"
    server = subprocess.Popen(
        [sys.executable, HELPERS / "program_server.py", address],
        stdin=subprocess.PIPE,
        cwd=path,
        # Nothing but where the tests' own potl is found.
        env={**os.environ, "PYTHONPATH": str(Path(potl.__file__).parents[1]), **environment},
    )

    def end() -> None:
        assert server.stdin is not None
        server.stdin.close()
        server.wait()
        shutil.rmtree(path)

    atexit.register(end)
    while not address.exists():
        if server.poll() is not None:
            raise RuntimeError("the server of programs has ended")
        time.sleep(0.01)
    return path


def python(**environment: str) -> str:
    """A Python for programs that are run in an environment.

    Args:
        environment: What it has that a process reads when it starts (program_server.py).
    """
    others = {name: text for name, text in environment.items() if os.environ.get(name) != text}
    return str(folder(**others) / "python")


def command() -> str:
    """`potl`."""
    return str(folder() / "potl")
