# SPDX-License-Identifier: Apache-2.0
"""Runs elsewhere are repeated and compared as those on a disk are."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
import traced_nets
from disputed import false_run
from serving import proxied, served

import potl
from potl import _core
from potl._dispute import _audit
from potl._record._keygen import write_pair
from potl._remote import _follow, _remote
from potl._remote._http import Http

pytest.importorskip("potl._torch", reason="potl was built without torch")

STEPS, AT = 6, 4


def build() -> potl.Task:
    task = traced_nets.mlp()
    task.max_steps = STEPS
    return task


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> potl.Job:
    return potl.Job.create(build, seed=3, checkpoint_every=2, arithmetic="ord32")


@pytest.fixture(scope="module")
def honest(job: potl.Job, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = potl.record(build, tmp_path_factory.mktemp("honest") / "run", job=job)
    run.commit()
    return run.path


@pytest.fixture(scope="module")
def false(job: potl.Job, tmp_path_factory: pytest.TempPathFactory) -> Path:
    key = _core.SigningKey.generate()
    return false_run(build, job, AT, tmp_path_factory.mktemp("false") / "run", key).path


@pytest.fixture(scope="module")
def url(honest: Path) -> Iterator[str]:
    with served(honest) as where:
        yield where


@pytest.fixture(scope="module")
def false_url(false: Path) -> Iterator[str]:
    with served(false) as where:
        yield where


def test_an_audit_over_http_is_one_from_the_disk(
    job: potl.Job, honest: Path, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_follow, "_PIECE", 400)  # pieces end within records
    note = (honest / "commitment").read_text()
    with proxied(url) as proxy:
        found = potl.audit(proxy.url, job=job, task=build, log=tmp_path / "log", commitment=note)
        assert set(proxy.sent) == {"/v1/run", "/v1/log", "/v1/telemetry"}
    here = potl.audit(honest, job=job, task=build, log=tmp_path / "here", commitment=note)
    assert found.agrees is here.agrees is True
    assert (found.steps, found.reason) == (here.steps, here.reason)


def test_a_false_step_is_named(job: potl.Job, false: Path, false_url: str, tmp_path: Path) -> None:
    found = potl.audit(false_url, job=job, task=build, log=tmp_path / "log")
    assert found.agrees is False and found.difference is not None
    assert (found.difference.step, found.difference.field) == (AT, "state")


def when_it_waits(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """What happens once an audit has asked more than once for what does not come."""
    sleeps: list[float] = []

    def sleep(seconds: float) -> None:
        sleeps.append(seconds)
        if len(sleeps) == 3:
            act()
        time.sleep(seconds)

    monkeypatch.setattr(_follow, "_POLL_SECONDS", 0.05)
    monkeypatch.setattr(_audit, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))


def test_a_run_is_followed_while_it_grows(
    job: potl.Job, false: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is false is reported before the run has come to its end. All is encrypted here."""
    key, public, _ = write_pair(tmp_path / "auditor", encryption=True)
    whole = (false / "transcript.log").read_bytes()
    run = shutil.copytree(false, tmp_path / "run")
    log = run / "transcript.log"
    log.write_bytes(whole[: len(whole) // 3])
    when_it_waits(monkeypatch, lambda: log.write_bytes(whole[: 9 * len(whole) // 10]))
    with served(run, "--for", public) as where:
        remote = potl.Remote(where, key=key)
        found = potl.audit(
            remote, job=job, task=build, log=tmp_path / "log", follow=True, timeout=60
        )
    assert found.agrees is False and found.difference is not None
    assert found.difference.step == AT


class SmallDisk:
    """In the place of `os`: a disk that is full for a while, of which the last write was a half."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_full, self.refused = False, 0
        self._pwrite = os.pwrite
        monkeypatch.setattr(os, "pwrite", self.pwrite)

    def pwrite(self, file: int, data: bytes, at: int) -> int:
        if self.is_full and self.refused % 2:
            self.refused += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.refused += self.is_full
        return self._pwrite(file, data[: len(data) // 2] if self.is_full else data, at)


@pytest.mark.parametrize("for_good", [False, True])
def test_a_disk_that_is_full_here_is_not_the_end_of_the_run(
    job: potl.Job, honest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, for_good: bool
) -> None:
    whole = (honest / "transcript.log").read_bytes()
    run = shutil.copytree(honest, tmp_path / "run")
    log = run / "transcript.log"
    log.write_bytes(whole[: len(whole) // 3])
    disk = SmallDisk(monkeypatch)

    def fill() -> None:
        disk.is_full = True
        log.write_bytes(whole)
        until = time.monotonic() + 30
        while disk.refused < 6 and time.monotonic() < until:
            time.sleep(0.05)
        disk.is_full = for_good

    when_it_waits(monkeypatch, fill)

    def audit(where: str, timeout: float) -> potl.Audit:
        return potl.audit(
            where, job=job, task=build, log=tmp_path / "log", follow=True, timeout=timeout
        )

    with served(run) as where:
        if for_good:
            with pytest.raises(potl.StorageError, match=r"transcript.log cannot be written: No sp"):
                audit(where, 2)
            disk.is_full = False
        found = audit(where, 60)
    assert found.agrees is True, found.reason


# Bytes of the record that is torn there.
TORN = 78


def torn_and_resumed(job: potl.Job, folder: Path) -> tuple[Path, bytes]:
    """A run that a full disk interrupted in the middle of a record, and its log at that time."""
    with potl.Prover(build, folder / "run", job=job) as prover:
        for step in prover.steps():
            if step.number == 3:
                break
    log = folder / "run" / "transcript.log"
    record = b"\x03\x01" + job.core.id + bytes(40)
    with log.open("ab") as file:
        file.write((182).to_bytes(4, "little") + record)
    torn = log.read_bytes()
    assert len(record) + 4 == TORN
    run = potl.record(build, folder / "run", job=job)
    assert torn[: -len(record) - 4] == log.read_bytes()[: len(torn) - len(record) - 4]
    assert not log.read_bytes().startswith(torn)
    return run.path, torn


@pytest.mark.parametrize("scheme", ["http", "file"])
def test_a_run_that_was_torn_and_resumed_is_followed(
    scheme: str, job: potl.Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, torn = torn_and_resumed(job, tmp_path)
    log = run / "transcript.log"
    whole = log.read_bytes()
    log.write_bytes(torn)
    when_it_waits(monkeypatch, lambda: log.write_bytes(whole))
    with served(run) if scheme == "http" else contextlib.nullcontext(f"file://{run}") as where:
        found = potl.audit(
            where, job=job, task=build, log=tmp_path / "log", follow=True, timeout=60
        )
    assert found.agrees is True and found.steps == STEPS, found.reason


@pytest.mark.parametrize("cut", [0, 40], ids=["nothing of a record", "some of it"])
@pytest.mark.parametrize("scheme", ["", "http", "file"])
def test_a_run_with_zeros_of_a_power_cut_is_followed(
    scheme: str, cut: int, job: potl.Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system may know a file's size and not what was written."""
    run, torn = torn_and_resumed(job, tmp_path)
    log = run / "transcript.log"
    whole = log.read_bytes()
    log.write_bytes(torn[: cut - TORN] + bytes(5000))
    at: Any = f"file://{run}" if scheme == "file" else run
    with served(run) if scheme == "http" else contextlib.nullcontext(at) as place:
        # Without following, it is a run that goes no further yet.
        found = potl.audit(place, job=job, task=build, log=tmp_path / "before")
        assert found.agrees is None and "all of them alike" in found.reason
        when_it_waits(monkeypatch, lambda: log.write_bytes(whole))
        found = potl.audit(
            place, job=job, task=build, log=tmp_path / "log", follow=True, timeout=60
        )
    assert found.agrees is True and found.steps == STEPS, found.reason


def test_a_damaged_log_elsewhere_is_an_error(job: potl.Job, honest: Path, tmp_path: Path) -> None:
    run = shutil.copytree(honest, tmp_path / "run")
    log = run / "transcript.log"
    whole = log.read_bytes()
    for at, change in ((len(whole) // 2, b"?"), (16, (1 << 20).to_bytes(4, "little"))):
        log.write_bytes(whole[:at] + change + whole[at + len(change) :])
        with pytest.raises(potl.MalformedError):
            potl.audit(f"file://{run}", job=job, task=build, log=tmp_path / "log")


def test_a_server_that_goes_away_is_an_error_and_no_answer(
    job: potl.Job, honest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = shutil.copytree(honest, tmp_path / "run")
    log = run / "transcript.log"
    whole = log.read_bytes()
    log.write_bytes(whole[: len(whole) // 2])
    with served(run) as where:
        found = potl.audit(where, job=job, task=build, log=tmp_path / "log")
        assert found.agrees is None and 0 < found.steps < STEPS
    with pytest.raises(potl.StorageError):
        potl.audit(where, job=job, task=build, log=tmp_path / "log")
    with served(run) as where, proxied(where) as proxy:
        # Both wait equally long: for more of the log, and for a server that answers.
        when_it_waits(monkeypatch, proxy.end)
        with pytest.raises(potl.StorageError):
            potl.audit(proxy.url, job=job, task=build, log=tmp_path / "log", follow=True, timeout=2)
    log.write_bytes(whole)
    with served(run) as where:
        assert potl.audit(where, job=job, task=build, log=tmp_path / "log").agrees is True


def test_a_log_that_is_another_one_when_it_is_read_again_does_not_agree(
    job: potl.Job, honest: Path, url: str, tmp_path: Path
) -> None:
    """The committed run has the states of the agreed one, and losses of its own."""

    class Smooth(potl.Task):
        def step(self, batch: Any) -> torch.Tensor:
            loss = super().step(batch)
            return loss + (0.001 - loss).detach()

    def smooth() -> potl.Task:
        task = build()
        task.__class__ = Smooth
        return task

    key = _core.SigningKey.from_pem((honest / "key.pem").read_text())
    run = potl.record(smooth, tmp_path / "run", job=job, key=key, check_job=False)
    note = str(run.commit())
    true, committed = ((one / "transcript.log").read_bytes() for one in (honest, run.path))
    assert len(true) == len(committed)
    logs: list[bytes] = []

    def swapped(path: str, raw: bytes) -> Iterator[bytes]:
        if path == "/v1/log":
            logs.append(raw)
            if len(logs) > 1:
                raw = raw.replace(true, committed)
        yield raw

    with proxied(url, swapped) as proxy:
        found = potl.audit(proxy.url, job=job, task=build, log=tmp_path / "served", commitment=note)
    assert len(logs) == 2
    assert found.agrees is None and "changed while it was read" in found.reason
    found = potl.audit(run, job=job, task=build, log=tmp_path / "here", commitment=note)
    assert found.agrees is False and found.difference is not None
    assert (found.difference.step, found.difference.field) == (1, "loss")


def test_more_than_there_is_room_for_is_refused(job: potl.Job, url: str, tmp_path: Path) -> None:
    with pytest.raises(potl.LimitError, match="cache_bytes"):
        potl.audit(potl.Remote(url, cache_bytes=100), job=job, task=build, log=tmp_path / "log")


def test_more_files_than_the_job_can_make_are_not_copied(
    job: potl.Job, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor fewer at a time, if they have other names each time."""
    many = {f"rounding/branch-{i}.log": 0 for i in range(20_000)}
    real, made = Http.sizes, []
    monkeypatch.setattr(Http, "sizes", lambda http: {**real(http), **many})
    monkeypatch.setattr(_follow._Copy, "_bring", lambda *what: made.append(what))
    with pytest.raises(potl.LimitError, match=r"200\d\d files, more than its job allows"):
        potl.audit(url, job=job, task=build, log=tmp_path / "log")
    monkeypatch.undo()
    assert not made
    most, names = _remote._most_files(job.core), iter(many)
    source = SimpleNamespace(
        sizes=lambda: {"transcript.log": 0, **dict.fromkeys(islice(names, 100), 0)}
    )
    copy = _follow._Copy(tmp_path, potl.Remote(url), cast(Any, source), job.core, 0.0)
    with pytest.raises(potl.LimitError, match="more than its job allows"):
        for _ in range(most):
            copy.bring()
    assert len(list((tmp_path / "rounding").iterdir())) < most


@pytest.mark.parametrize("swap", [False, True])
def test_runs_elsewhere_are_compared(
    swap: bool, honest: Path, false: Path, url: str, false_url: str
) -> None:
    here = potl.diff(honest, false, task=build)
    there = potl.diff(*((honest, false_url) if swap else (url, false)), task=build)
    assert here.step == there.step == AT
    assert (there.parts, there.operator, there.reproduced) == (
        here.parts,
        here.operator,
        here.reproduced,
    )
    assert potl.diff(url, honest).same
