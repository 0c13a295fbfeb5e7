# SPDX-License-Identifier: Apache-2.0
"""`potl serve` in a process of its own, and a proxy before it that counts and changes answers."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import os
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import driver_tasks as tasks
import programs

import potl
from potl._serve._limits import ServeLimits

CHECKS = [potl.PEV(fraction=0.25), potl.Replay(samples=2)]
NONCE = bytes(range(32))

Change = Callable[[str, bytes], Iterator[bytes]]
"""From a path and the whole answer, head and body, to the pieces that are sent."""


@dataclasses.dataclass(frozen=True)
class Recorded:
    """A run of 24 steps, 13 states, and how it is verified: with the same draw each time."""

    folder: Path
    job: potl.Job
    run: Path
    note: str

    @staticmethod
    def make(folder: Path) -> Recorded:
        job = potl.Job.create(tasks.build, seed=7, checkpoint_every=2)
        job.write(folder / "job.json")
        run = potl.record(tasks.build, folder / "run", job=job, key=folder / "key.pem")
        note = run.commit()
        note.write(folder / "note.txt")
        return Recorded(folder, job, run.path, str(note))

    def verify(self, where: str | Path | potl.Remote, **changes: Any) -> potl.Report:
        options: dict[str, Any] = {
            "job": self.job,
            "commitment": self.note,
            "task": tasks.build,
            "ledger": None,
            "nonce": NONCE,
            "checks": CHECKS,
            "policy": potl.Policy(probability=0),
        }
        return potl.verify(where, **{**options, **changes})


class Server:
    """A running server."""

    def __init__(self, run: Path, *options: str | Path, python: str = sys.executable) -> None:
        serve = ("-m", "potl", "serve", run, "--listen", "127.0.0.1:0")
        self._start(python, *serve, *options)

    @staticmethod
    def limited(run: Path, limits: ServeLimits, **options: str) -> Server:
        """One that spends less."""
        program = (
            "import sys, potl\n"
            "from potl._serve._limits import ServeLimits\n"
            f"potl.serve(sys.argv[1], listen='127.0.0.1:0', limits={limits!r}, **{options!r},\n"
            "           ready=lambda url: print(url, file=sys.stderr, flush=True))\n"
        )
        server = object.__new__(Server)
        server._start(sys.executable, "-c", program, run)
        return server

    def _start(self, *command: str | Path) -> None:
        self._process = subprocess.Popen(
            command,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(potl.__file__).parents[1])},
        )
        # Also where a test fails before its end.
        weakref.finalize(self, self._process.kill)
        assert self._process.stderr is not None
        words = self._process.stderr.readline().split()
        if not words or "://" not in words[-1]:
            raise RuntimeError(" ".join(words) + self._process.stderr.read())
        self.url = words[-1]

    def files(self) -> int:
        """How many files and connections it has open."""
        return len(list(Path(f"/proc/{self._process.pid}/fd").iterdir()))

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Exit code, and what it said."""
        assert self._process.stderr is not None
        self._process.send_signal(number)
        said = self._process.stderr.read()
        self._process.stderr.close()
        return self._process.wait(), said


@contextlib.contextmanager
def served(run: Path, *options: str | Path) -> Iterator[str]:
    """The URL of a server. It is killed in the end."""
    server = Server(run, *options, python=programs.python())
    try:
        yield server.url
    finally:
        server.end(signal.SIGKILL)


class _Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        with contextlib.suppress(OSError):
            while self._answered():
                pass

    def _answered(self) -> bool:
        """Whether it was asked for something, and may be for something else."""
        proxy = self.server
        assert isinstance(proxy, Proxy)
        first = self.rfile.readline().decode("latin-1").split()
        headers = http.client.parse_headers(self.rfile)
        if not first:
            return False
        upstream = http.client.HTTPConnection(proxy.upstream)
        kept = {k: v for k, v in headers.items() if k.lower() not in ("host", "connection")}
        if not first[1].startswith(proxy.below):
            return False
        upstream.request(first[0], first[1][len(proxy.below) :], headers=kept)
        answer = upstream.getresponse()
        body = answer.read()
        upstream.close()
        lines = [f"HTTP/1.1 {answer.status} {answer.reason}"]
        lines += [f"{name}: {value}" for name, value in answer.getheaders()]
        lines += [] if proxy.keeps else ["Connection: close"]
        raw = "\r\n".join([*lines, "", ""]).encode("latin-1") + body
        for piece in proxy.change(first[1], raw):
            # Before a client has it, which may look at the counts at once.
            proxy.count(first[1], len(piece))
            self.connection.sendall(piece)
        return proxy.keeps


class Proxy(socketserver.ThreadingTCPServer):
    """Stands before a server. Counts bytes of answers, heads included, by path."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, url: str, change: Change | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = urlsplit(url).netloc
        self.change: Change = change or (lambda path, raw: iter([raw]))
        self.asked: list[str] = []
        self.sent: dict[str, int] = {}
        self.below = ""  # the path of the server's root here
        self.keeps = False  # connections, for further requests
        self._counting = threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self._thread = threading.Thread(target=lambda: self.serve_forever(0.01), daemon=True)
        self._thread.start()

    def count(self, path: str, size: int) -> None:
        with self._counting:
            if path not in self.sent:
                self.asked.append(path)
            self.sent[path] = self.sent.get(path, 0) + size

    def end(self) -> None:
        """Nobody listens any more."""
        self.shutdown()
        self.server_close()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is what some tests are about."""


@contextlib.contextmanager
def proxied(url: str, change: Change | None = None) -> Iterator[Proxy]:
    """A proxy before a server."""
    proxy = Proxy(url, change)
    try:
        yield proxy
    finally:
        with contextlib.suppress(OSError):
            proxy.end()


def raw_request(url: str, text: bytes) -> bytes:
    """What a server says to bytes that no library would send. One that has heard enough closes the
    connection, and what it has not read by then makes that a reset, which may take its answer away.
    """
    place = urlsplit(url)
    assert place.hostname is not None
    with socket.create_connection((place.hostname, place.port or 0)) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(text)
        return taken(connection)


def taken(connection: socket.socket) -> bytes:
    """What had been sent when the connection ended or was cut."""
    parts = []
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(1 << 20):
            parts.append(part)
    return b"".join(parts)
