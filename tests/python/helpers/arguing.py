# SPDX-License-Identifier: Apache-2.0
"""Parties of a dispute that are served by processes of their own, which can be killed."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import forked
import torch
import traced_nets
from disputed import Liar, false_run

import potl
from potl import _core
from potl._dispute._seat import Seat
from potl._dispute._table import Store
from potl._serve._host import host_disputes

AT, STEPS = 3, 4
FULL = bool(os.environ.get("POTL_FULL"))


def build() -> potl.Task:
    task = traced_nets.mlp()
    task.max_steps = STEPS
    return task


def another() -> potl.Task:
    """A task that is not the job's."""
    task = build()
    task.batch_size = 16
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
        auditors = _core.SigningKey.from_pem((folder / "auditor.pem").read_text())
        false_run(build, job, AT, folder / "false audit", auditors)
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
        operators = derive_operators(build, job, AT, before=honest._story(AT).before)
        operator = max(i for i, one in enumerate(operators) if "mm" in one.name)
        return Case(folder, operator, operators[operator].name)

    build = staticmethod(build)

    @property
    def job(self) -> potl.Job:
        return potl.Job.read(self.folder / "job.json")

    def key(self, who: str) -> _core.PublicKey:
        return _core.PublicKey.from_pem((self.folder / f"{who}.pub").read_text())

    def party(self, who: str) -> potl.Party:
        """The trainer lies about an operator of step AT; the auditor does not. Or the other way
        round: "honest trainer", "lying auditor".
        """
        options: dict[str, Any] = {"job": self.job, "task": build}
        options["key"] = self.folder / f"{who.split()[-1]}.pem"
        lie = {"at": AT, "operator": self.operator}
        if who == "trainer":
            return Liar(self.folder / "false", **options, **lie)
        if who == "lying auditor":
            return Liar(self.folder / "false audit", **options, **lie)
        return potl.Party(self.folder / ("audit" if who == "auditor" else "honest"), **options)

    def referee(self) -> potl.Referee:
        return potl.Referee(self.job, task=build, key=self.folder / "referee.pem")

    def at(self) -> dict[str, Any]:
        """What a party knows of a referee that listens."""
        return {
            "referee_key": self.folder / "referee.pub",
            "keys": {"auditor": self.key("auditor")},
        }

    def is_found_in(self, verdict: potl.Verdict, winner: str = "auditor") -> bool:
        """Whether it is the only right verdict."""
        place = (verdict.winner, verdict.why, verdict.step, verdict.operator)
        return place == (winner, "value", AT, (self.operator, self.name))


class StillClock:
    """Stands still, but for what a test adds."""

    def __init__(self) -> None:
        self.at = 1_000_000

    def now(self) -> int:
        return self.at

    def sleep(self, seconds: float) -> None:
        raise NotImplementedError


class Served:
    """A party's server, or a listening referee. It comes up again at the same place whenever it is
    killed.

    Args:
        dies: It is killed once before each message that it has signed is sent (`is_killed_before`);
            a referee around each line that it writes.
        more: Of a referee; or of a party `works`, a file that says that it works without end,
            `reader`, the public key to which it encrypts, and `referee_key`, whom it answers.
    """

    def __init__(
        self, case: Case, who: str, *, dies: bool = False, token: str = "", **more: Any
    ) -> None:
        # Held, though nobody listens: whoever connects or listens at the time of a restart gets
        # another port.
        self._place = socket.socket()
        self._place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._place.bind(("127.0.0.1", 0))
        port = self._place.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.signed = case.folder / f"signed-{who}-{port}"
        self.starts = 0
        self._arguments = (case, who, port, self.signed, dies, token, more)
        self._context = forked.context()
        self._ended = False
        self._up = threading.Event()
        self._process: BaseProcess | None = None
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()
        assert self._up.wait(600)

    def messages(self) -> list[str]:
        """What was signed, again and again."""
        return self.signed.read_text().splitlines() if self.signed.exists() else []

    def kill(self) -> None:
        """As a machine fails."""
        assert self._process is not None and self._process.pid is not None
        os.kill(self._process.pid, signal.SIGKILL)

    def end(self, number: int = signal.SIGKILL) -> int | None:
        """Its exit code."""
        assert self._process is not None and self._process.pid is not None
        if not self._ended:
            self._ended = True
            os.kill(self._process.pid, number)
            self._thread.join()
            self._place.close()
        return self._process.exitcode

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


def _serve(
    case: Case,
    who: str,
    port: int,
    signed: Path,
    dies: bool,
    token: str,
    more: dict[str, Any],
    up: Any,
) -> None:
    if who == "referee":
        _host(case, port, signed, dies, {"token": token or None, **more}, up)
        return
    works = more.get("works")
    true: Callable[[Seat], str | None] = Seat.message

    def message(self: Seat) -> str | None:
        while works:
            works.touch()
            torch.ones(64, 64) @ torch.ones(64, 64)
        out = true(self)
        if out is not None:
            before = signed.read_text().splitlines() if signed.exists() else []
            with signed.open("a") as file:
                file.write(out + "\n")
            places = set(map(place_of, before))
            if dies and place_of(out) not in places and is_killed_before(len(places)):
                os.kill(os.getpid(), signal.SIGKILL)
        return out

    Seat.message = message  # type: ignore[method-assign]
    party = case.party(who)
    potl.serve(
        party.directory,
        listen=f"127.0.0.1:{port}",
        token=token or None,
        readers=[more["reader"]] if "reader" in more else [],
        disputes=party,
        referee_key=more.get("referee_key", case.folder / "referee.pub"),
        ready=lambda url: up.send(url),
    )


def _host(case: Case, port: int, died: Path, dies: bool, more: dict[str, Any], up: Any) -> None:
    append = Store.append

    def dying(self: Store, line: str) -> None:
        at = Path(self._path).read_text().count("\n")
        before = died.read_text().splitlines() if died.exists() else []
        # All lines, or some of each way to die.
        if not (dies and (FULL or at % 4 == 2)) or '"restarted"' in line or str(at) in before:
            append(self, line)
            return
        with died.open("a") as file:
            file.write(f"{at}\n")
        # Before a line is written, in the middle of it, or after it.
        if len(before) % 3 == 1:
            append(self, line)
        elif len(before) % 3 == 2:
            with Path(self._path).open("a") as file:
                file.write(line[: len(line) // 2])
        os.kill(os.getpid(), signal.SIGKILL)

    Store.append = dying  # type: ignore[method-assign]
    host_disputes(
        case.referee(),
        keys={"auditor": case.key("auditor")},
        listen=f"127.0.0.1:{port}",
        ready=lambda url: up.send(url),
        **{"turn_seconds": 60.0, "transcripts": case.folder / f"lines-{port}", **more},
    )


@contextlib.contextmanager
def playing(case: Case, who: str, url: str, **options: Any) -> Iterator[Callable[[], Any]]:
    """A party in a process of its own; what is called returns its verdict."""
    mine, its = forked.context().Pipe(duplex=False)
    process = forked.context().Process(
        target=_play, args=(case, who, url, options, its), daemon=True
    )
    process.start()
    its.close()
    try:
        yield mine.recv
    finally:
        process.kill()
        process.join()
        mine.close()


def _play(case: Case, who: str, url: str, options: dict[str, Any], out: Any) -> None:
    out.send(potl.dispute_at(url, party=case.party(who), **case.at(), **options))


def is_killed_before(message: int) -> bool:
    """Whether a party that dies does so before its message of that number, from 0 on: at all of
    them with POTL_FULL, else at some of each level.
    """
    return FULL or message % 5 == 1


def place_of(message: str) -> tuple[object, ...]:
    """Where a message belongs."""
    document = json.loads(message)
    return document["parent"], document["level"], document["index"], document["what"]
