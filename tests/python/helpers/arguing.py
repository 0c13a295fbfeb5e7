# SPDX-License-Identifier: Apache-2.0
"""Parties of a dispute that are served by processes of their own, which can be killed."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import multiprocessing
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import traced_nets
from disputed import Liar, false_run

import potl
from potl import _core
from potl._dispute._seat import Seat

AT, STEPS = 3, 4


def build() -> potl.Task:
    task = traced_nets.mlp()
    task.max_steps = STEPS
    return task


@dataclasses.dataclass(frozen=True)
class Case:
    """A job, an honest run, its repetition, and a trainer's run that is false from a step on."""

    folder: Path
    operator: int
    name: str

    @staticmethod
    def make(folder: Path) -> Case:
        for who in ("trainer", "auditor", "referee"):
            key = _core.SigningKey.generate()
            (folder / f"{who}.pem").write_text(key.to_pem())
            (folder / f"{who}.pub").write_text(key.public_key.to_pem())
        job = potl.Job.create(
            build, seed=3, checkpoint_every=2, trainer=folder / "trainer.pub", arithmetic="ord32"
        )
        job.write(folder / "job.json")
        trainer = folder / "trainer.pem"
        run = potl.record(build, folder / "honest", job=job, key=trainer)
        run.commit()
        key = _core.SigningKey.from_pem(trainer.read_text())
        false_run(build, job, AT, folder / "false", key)
        found = potl.audit(
            folder / "false",
            job=job,
            task=build,
            log=folder / "audit",
            key=folder / "auditor.pem",
            to_the_end=True,
        )
        assert found.agrees is False and found.commitment is not None
        from potl._dispute._derive import derive_operators

        honest = potl.Party(run, job=job, task=build, key=trainer)
        operators = derive_operators(build, job, AT, before=honest.story(AT).before)
        operator = max(i for i, one in enumerate(operators) if "mm" in one.name)
        return Case(folder, operator, operators[operator].name)

    build = staticmethod(build)

    @property
    def job(self) -> potl.Job:
        return potl.Job.read(self.folder / "job.json")

    def key(self, who: str) -> _core.PublicKey:
        return _core.PublicKey.from_pem((self.folder / f"{who}.pub").read_text())

    def party(self, who: str) -> potl.Party:
        """The trainer lies about an operator of step AT; the auditor does not."""
        options: dict[str, Any] = {"job": self.job, "task": build}
        if who == "trainer":
            key = self.folder / "trainer.pem"
            return Liar(self.folder / "false", **options, key=key, at=AT, operator=self.operator)
        return potl.Party(self.folder / "audit", **options, key=self.folder / "auditor.pem")

    def referee(self) -> potl.Referee:
        return potl.Referee(self.job, task=build, key=self.folder / "referee.pem")

    def is_found_in(self, verdict: potl.Verdict) -> bool:
        """Whether it is the only right verdict."""
        place = (verdict.winner, verdict.why, verdict.step, verdict.operator)
        return place == ("auditor", "value", AT, (self.operator, self.name))


class Served:
    """A party's server. It comes up again at the same place whenever it is killed.

    Args:
        dies: It is killed once before each message that it has signed is sent.
    """

    def __init__(self, case: Case, who: str, *, dies: bool = False, token: str = "") -> None:
        with socket.create_server(("127.0.0.1", 0)) as one:
            port = one.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.signed = case.folder / f"signed-{who}-{port}"
        self.starts = 0
        self._arguments = (case, who, port, self.signed, dies, token)
        self._context = _context()
        self._ended = False
        self._up = threading.Event()
        self._process: BaseProcess | None = None
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()
        assert self._up.wait(120)

    def messages(self) -> list[str]:
        """What was signed, again and again."""
        return self.signed.read_text().splitlines() if self.signed.exists() else []

    def kill(self) -> None:
        """As a machine fails."""
        assert self._process is not None and self._process.pid is not None
        os.kill(self._process.pid, signal.SIGKILL)

    def end(self) -> None:
        self._ended = True
        self.kill()
        self._thread.join()

    def _keep(self) -> None:
        while not self._ended:
            mine, its = self._context.Pipe(duplex=False)
            process = self._context.Process(
                target=_serve, args=(*self._arguments, its), daemon=True
            )
            process.start()
            its.close()
            with contextlib.suppress(EOFError):
                mine.recv()
                self.starts += 1
            self._process = process
            self._up.set()
            process.join()
            mine.close()


@contextlib.contextmanager
def serving(case: Case, *whose: str, **options: Any) -> Iterator[list[Served]]:
    """Servers of parties."""
    servers = [Served(case, who, **options) for who in whose]
    try:
        yield servers
    finally:
        for one in servers:
            one.end()


def _serve(case: Case, who: str, port: int, signed: Path, dies: bool, token: str, up: Any) -> None:
    true: Callable[[Seat], str | None] = Seat.message

    def message(self: Seat) -> str | None:
        out = true(self)
        if out is not None:
            before = signed.read_text().splitlines() if signed.exists() else []
            with signed.open("a") as file:
                file.write(out + "\n")
            place = place_of(out)
            if dies and place not in map(place_of, before):
                os.kill(os.getpid(), signal.SIGKILL)
        return out

    Seat.message = message  # type: ignore[method-assign]
    party = case.party(who)
    potl.serve(
        party.directory,
        listen=f"127.0.0.1:{port}",
        token=token or None,
        disputes=party,
        referee_key=case.folder / "referee.pub",
        ready=lambda url: up.send(url),
    )


def place_of(message: str) -> tuple[object, ...]:
    """Where a message belongs."""
    document = json.loads(message)
    return document["parent"], document["level"], document["index"], document["what"]


def _context() -> multiprocessing.context.ForkServerContext:
    """Processes that begin where imports and first calls are done."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["arguing_warm", "uvicorn", "potl._serve._app"])
    before = os.environ.get("PYTHONPATH")
    # The server of processes has the path of the environment alone.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    try:
        forkserver.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
    return context
