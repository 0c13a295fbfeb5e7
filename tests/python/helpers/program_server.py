# SPDX-License-Identifier: Apache-2.0
"""Forks a process for each program that a test runs, so that torch is imported once for all.

`program_server.py FOLDER` listens at FOLDER/socket until its standard input, which is a FIFO, has
no writers any more; then it deletes the folder. A client (program_client.py) sends arguments,
folder and environment of a Python program, and its own standard streams; it is told how the program
ended. A client that goes away takes its program with it.

The forked process ends as Python ends one, except that it leaves objects where they are: touching
what torch is made of would copy it.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import gc
import io
import json
import multiprocessing
import os
import random
import runpy
import select
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import threading
import traceback
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

# What the interpreter or a library reads once, when it starts or is loaded.
READ_AT_THE_START = (
    *("PYTHON", "LD_", "GLIBC_", "OMP_", "GOMP_", "MKL_", "OPENBLAS_"),
    *("TORCH_", "ATEN_"),
)
OF_THE_PROGRAM = ("PYTHONPATH",)
MOST_FILES = 250


def preload() -> None:
    """Imports what programs import, and starts no thread."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    import sklearn.datasets

    # torch imports it, and sympy with it, when the first optimizer is made: two seconds.
    import torch._dynamo  # noqa: F401

    import potl
    from potl._cli import _cli  # noqa: F401

    for name in potl.__all__:
        getattr(potl, name)
    # Programs read the digits each time that they build a task.
    load = sklearn.datasets.load_digits = functools.cache(sklearn.datasets.load_digits)
    load(), load(return_X_y=True)
    gc.freeze()
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads != 1:
        raise RuntimeError(f"a process of {threads} threads cannot be forked")


def fixed(environment: dict[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(READ_AT_THE_START) and name not in OF_THE_PROGRAM
    }


class Server:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.selector = selectors.DefaultSelector()
        self.listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listening.bind(f"{folder}/new")
        self.listening.listen(64)
        self.fixed = fixed(dict(os.environ))
        # Process -> its client.
        self.running: dict[int, socket.socket] = {}

    def serve(self) -> dict[str, Any]:
        """Returns in a forked process alone: what it shall be."""
        # No sooner: the time that a test gives a program is not for what comes before it.
        (self.folder / "new").rename(self.folder / "socket")
        self.selector.register(self.listening, selectors.EVENT_READ, self.accept)
        self.selector.register(sys.stdin.fileno(), selectors.EVENT_READ, self.finish)
        while True:
            for key, _ in self.selector.select():
                program: dict[str, Any] | None = key.data(key.fileobj)
                if program is not None:
                    return program

    def accept(self, listening: socket.socket) -> dict[str, Any] | None:
        client, _ = listening.accept()
        with client.makefile("rb") as stream:
            data, received, _, _ = socket.recv_fds(client, 1 << 20, MOST_FILES)
            data += b"" if data.endswith(b"\n") else stream.readline()
        if not data.endswith(b"\n"):  # it was killed while it asked
            client.close()
            for one in received:
                os.close(one)
            return None
        program: dict[str, Any] = json.loads(data)
        files = dict(zip(program["files"], received, strict=True))
        changed = self.fixed.items() ^ fixed(program["environment"]).items()
        if changed:
            text = f"only a process of its own gets another {sorted(dict(changed))}\n"
            os.write(files[2], text.encode())
            self.answer(client, 125 << 8)
        else:
            process = os.fork()
            if process == 0:
                client.close()
                self.become(program, files)
                return program
            self.running[process] = client
            ended = os.pidfd_open(process)
            self.selector.register(
                ended, selectors.EVENT_READ, lambda _: self.reap(process, client, ended)
            )
            self.selector.register(
                client, selectors.EVENT_READ, lambda _: self.abandoned(process, client)
            )
        for one in received:
            os.close(one)
        return None

    def become(self, program: dict[str, Any], files: dict[int, int]) -> None:
        self.selector.close()
        self.listening.close()
        for client in self.running.values():
            client.close()
        sys.stdin.close()
        # Out of the way of each other's numbers first.
        files = {one: fcntl.fcntl(files[one], fcntl.F_DUPFD, MOST_FILES) for one in files}
        os.closerange(3, MOST_FILES)
        for number, file in files.items():
            os.dup2(file, number)
            os.close(file)
        os.chdir(program["folder"])
        os.environ.clear()
        os.environ.update(program["environment"])
        # As a terminal starts it: what a shell starts in the background ignores these.
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)

    def reap(self, process: int, client: socket.socket, ended: int) -> None:
        _, status = os.waitpid(process, 0)
        self.selector.unregister(ended)
        os.close(ended)
        if self.running.pop(process, None) is not None:
            self.selector.unregister(client)
            self.answer(client, status)

    def abandoned(self, process: int, client: socket.socket) -> None:
        if self.running.pop(process, None) is not None:
            self.selector.unregister(client)
            client.close()
            os.kill(process, signal.SIGKILL)

    @staticmethod
    def answer(client: socket.socket, status: int) -> None:
        with client, contextlib.suppress(OSError):
            client.sendall(b"%d\n" % status)

    def finish(self, _: Any) -> None:
        lock = self.folder.with_suffix(".lock")
        with lock.open("w") as held:  # as in programs.py
            fcntl.flock(held, fcntl.LOCK_EX)
            users = select.poll()
            users.register(sys.stdin.fileno(), 0)  # says whether it has ended, and nothing else
            if not users.poll(0):
                return  # somebody came in between
            shutil.rmtree(self.folder)
            lock.unlink()
        for process in self.running:
            os.kill(process, signal.SIGKILL)
        sys.exit()


def play(program: dict[str, Any], path: list[str]) -> None:
    """What `python ARGUMENTS` does."""
    import numpy
    import torch

    # multiprocessing passes on the flags of its process, which are the server's.
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    first, *rest = [one for one in program["arguments"] if one not in flags]
    random.seed()
    numpy.random.seed()
    torch.default_generator.seed()
    sys.stdin = open(0)  # noqa: SIM115
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdout = io.TextIOWrapper(open(1, "wb"), write_through=unbuffered)  # noqa: SIM115
    sys.stderr = io.TextIOWrapper(
        open(2, "wb"),  # noqa: SIM115
        errors="backslashreplace",
        write_through=unbuffered,
        line_buffering=True,
    )
    more = os.environ.get("PYTHONPATH", "")
    sys.path[:] = [*(more.split(os.pathsep) if more else []), *path]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if first == "-c":
        sys.argv[:] = ["-c", *rest[1:]]
        sys.path.insert(0, "")
        exec(compile(rest[0], "<string>", "exec"), main.__dict__)
    elif first == "-m":
        sys.argv[:] = ["-m", *rest[1:]]
        sys.path.insert(0, str(Path.cwd()))
        runpy._run_module_as_main(rest[0])  # type: ignore[attr-defined]
    else:
        sys.argv[:] = [first, *rest]
        sys.path.insert(0, str(Path(first).resolve().parent))
        main.__file__ = str(Path.cwd() / first)
        exec(compile(Path(first).read_bytes(), first, "exec"), main.__dict__)


def exit_code_of(work: Callable[[], None]) -> int:
    try:
        work()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 0xFF
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    server = Server(Path(sys.argv[1]))
    # The folder of this file is not a program's; neither are the variables of this process.
    own = sys.path[1:]
    preload()
    # Workers that programs start are programs too.
    multiprocessing.set_executable(str(server.folder / "python"))
    program = server.serve()
    code = exit_code_of(lambda: play(program, own))
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if not stream.closed:
            stream.flush()
    os._exit(code)
