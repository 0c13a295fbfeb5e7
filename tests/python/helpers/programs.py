# SPDX-License-Identifier: Apache-2.0
"""`python` and `potl` for tests that run programs, without the seconds in which torch is imported.

They are processes forked from one that has imported torch and potl (program_server.py). A test of
what happens at the start or the violent end of a process takes sys.executable.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import functools
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

from places import HELPERS

import potl


def folder(**environment: str) -> Path:
    """Where `python` and `potl` lie: a folder for a PATH."""
    return _folder(tuple(sorted(environment.items())))


@functools.cache
def _folder(environment: tuple[tuple[str, str], ...]) -> Path:
    # One for all processes of pytest-xdist, which have a name for their run.
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or uuid4().hex
    name = hashlib.sha256(repr((run, environment)).encode()).hexdigest()[:16]
    path = Path(tempfile.gettempdir()) / f"potl-{name}"
    with locked(path):
        user = attached(path)
        if user is not None:
            atexit.register(os.close, user)
        else:
            start(path, dict(environment))
    return path


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Nobody else begins or ends the server of a folder."""
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def attached(path: Path) -> int | None:
    """One more user of a server that runs: a file that ends it when all of them are closed."""
    try:
        return os.open(path / "users", os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENXIO):
            raise
        return None


def start(path: Path, environment: dict[str, str]) -> None:
    path.mkdir(mode=0o700)
    client = (HELPERS / "program_client.py").read_text()
    for name in ("python", "potl"):
        (path / name).write_text(f"#!{sys.executable} -IS\n{client}")
        (path / name).chmod(0o755)
    os.mkfifo(path / "users", 0o600)
    users = os.open(path / "users", os.O_RDONLY | os.O_NONBLOCK)
    user = os.open(path / "users", os.O_WRONLY)
    server = subprocess.Popen(
        [sys.executable, HELPERS / "program_server.py", path],
        stdin=users,
        cwd=path,
        # Nothing but where the tests' own potl is found.
        env={**os.environ, "PYTHONPATH": str(Path(potl.__file__).parents[1]), **environment},
    )
    os.close(users)

    def end() -> None:
        os.close(user)
        server.wait()  # for the other users, too: who starts it answers for its time

    atexit.register(end)
    while not (path / "socket").exists():
        if server.poll() is not None:
            raise RuntimeError("the server of programs has ended")
        time.sleep(0.01)


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
