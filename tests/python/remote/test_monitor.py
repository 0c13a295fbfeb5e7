# SPDX-License-Identifier: Apache-2.0
"""A run elsewhere is watched while it is recorded: what is brought, and what a network can do."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import driver_tasks as tasks
import pytest
import torch
from growing_runs import Growing, watch
from serving import Recorded, proxied, served

import potl
from potl import _core
from potl._attacks import Scene
from potl._job._session import Session
from potl._record._records import CHAIN
from potl._remote._http import Http
from potl._remote._source import LOG, rounding_of, state_of
from potl._remote._storage import Storage
from potl._verify._monitor import _Watch
from potl._verify._workload import Workload


@pytest.fixture
def growing(recorded: Recorded, tmp_path: Path) -> Growing:
    return Growing(recorded.run, tmp_path / "run")


def test_over_http_each_byte_comes_once(
    recorded: Recorded, growing: Growing, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, int, int]] = []
    read = Http.read

    def counted(self: Http, name: str, offset: int, size: int, write: Any) -> None:
        asked.append((name, offset, size))
        read(self, name, offset, size, write)

    monkeypatch.setattr(Http, "read", counted)
    growing.show(3)
    with served(growing.place) as url:
        seen = watch(growing, [9, 9, 16, None], run=url, job=recorded.job)
    assert seen.all() == watch(growing, [], job=recorded.job).all()
    assert seen.rules("reject") == seen.rules("inconclusive") == set()
    assert url in seen.report.document["reproduce"]
    # An exact replay compares its end with a digest in the log.
    states = [name for name, _, _ in asked if name.startswith("checkpoints/")]
    assert sorted(states) == sorted(f"checkpoints/step-{n}.safetensors" for n in range(0, 24, 2))
    # Each look asks for what is new of the log, and whether what was there still is.
    log = [(offset, size) for name, offset, size in asked if name == LOG]
    ends = [len(growing.log(step)) for step in (3, 9, 9, 16)]
    assert [one for one in log if one[1] == CHAIN] == [(end - CHAIN, CHAIN) for end in ends]
    whole = len(growing.log(24))
    starts = sorted({0, *ends})
    assert [one for one in log if one[1] != CHAIN] == [
        (start, end - start) for start, end in zip(starts, [*starts[1:], whole], strict=True)
    ]


def build() -> potl.Task:
    """12 steps of a net that log64 computes quickly."""
    return potl.Task(**tasks.options(model=torch.nn.Linear(16, 4), epochs=1))


@pytest.fixture(scope="module")
def rounded(tmp_path_factory: pytest.TempPathFactory) -> tuple[potl.Job, Path]:
    folder = tmp_path_factory.mktemp("rounded")
    job = potl.Job.create(build, seed=7, checkpoint_every=4, arithmetic="log64")
    return job, potl.record(build, folder / "run", job=job, key=folder / "key.pem").path


def test_rounding_logs_grow_too(rounded: tuple[potl.Job, Path], tmp_path: Path) -> None:
    job, run = rounded
    growing = Growing(run, tmp_path / "run")
    growing.show(5)
    seen = watch(growing, [9, None], run=f"file://{growing.place}", job=job, task=build)
    assert [len(look) for look in seen.segments()] == [1, 1, 1]
    assert seen.rules("reject") == seen.rules("inconclusive") == set()


def test_a_rounding_log_that_was_damaged_on_its_way_once_rejects_nobody(
    rounded: tuple[potl.Job, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, run = rounded
    growing = Growing(run, tmp_path / "run")
    damaged: list[str] = []
    read = Storage.read

    def once(self: Storage, name: str, offset: int, size: int, write: Any) -> None:
        def change(piece: bytes) -> None:
            if rounding_of(name) is not None and not damaged:
                damaged.append(name)
                piece = piece[:-1] + bytes([piece[-1] ^ 1])
            write(piece)

        read(self, name, offset, size, change)

    monkeypatch.setattr(Storage, "read", once)
    growing.show(None)
    seen = watch(growing, [lambda: None], run=f"file://{growing.place}", job=job, task=build)
    assert damaged and seen.looks[0].report is None
    assert seen.rules("reject") == set()


def test_the_end_of_a_crash_is_taken_back_here_too(recorded: Recorded, growing: Growing) -> None:
    """A resume writes other bytes where the crash left half a record."""
    growing.show(9, b"\x90\x00\x00\x00" + bytes(60))
    seen = watch(growing, [16, None], run=f"file://{growing.place}", job=recorded.job)
    assert seen.rules("reject") == seen.rules("inconclusive") == set()
    assert len(seen.all()) == 12


def test_a_served_log_that_became_shorter_ends_it_without_a_verdict(
    recorded: Recorded, growing: Growing
) -> None:
    growing.show(9)
    with served(growing.place) as url:
        seen = watch(growing, [7, lambda: None], run=url, job=recorded.job)
    assert seen.report.verdict == "inconclusive"
    assert any("became shorter" in one.reason for one in seen.report.findings)


def test_a_server_that_does_not_answer_is_waited_for(recorded: Recorded, growing: Growing) -> None:
    answers = [True]

    def change(path: str, raw: bytes) -> Iterator[bytes]:
        if answers[0]:
            yield raw

    def fails() -> None:
        answers[0] = False

    def answers_again() -> None:
        answers[0] = True
        growing.show(None)

    growing.show(9)
    with served(growing.place) as url, proxied(url, change) as proxy:
        seen = watch(growing, [fails, lambda: None, answers_again], run=proxy.url, job=recorded.job)
    assert [bool(look.waits_for) for look in seen.looks] == [False, True, True, False]
    assert seen.rules("reject") == seen.rules("inconclusive") == set()
    assert len(seen.all()) == 12


def test_a_state_that_was_damaged_on_its_way_once_rejects_nobody(
    recorded: Recorded, growing: Growing
) -> None:
    damaged: list[str] = []

    def change(path: str, raw: bytes) -> Iterator[bytes]:
        if path == "/v1/checkpoints/4/0" and not damaged:
            damaged.append(path)
            raw = raw[:-1] + bytes([raw[-1] ^ 1])
        yield raw

    growing.show(9)
    with served(growing.place) as url, proxied(url, change) as proxy:
        seen = watch(growing, [lambda: None, None], run=proxy.url, job=recorded.job)
    assert damaged and seen.looks[0].report is None
    assert seen.report.verdict == "inconclusive" and seen.rules("reject") == set()
    assert any("found once and not again" in one.reason for one in seen.report.findings)


@pytest.mark.parametrize(
    ("options", "moved", "samples"),
    # In the last one, nobody draws the segment that is false: its end is not stored, and the last
    # segment begins there.
    [
        ({"arithmetic": "ord32"}, 12, 100),
        ({"arithmetic": "stock"}, 12, 100),
        ({"arithmetic": "ord32", "store_every": 8}, 20, 0),
    ],
)
def test_who_serves_what_is_false_cannot_take_it_back(
    options: dict[str, Any],
    moved: int,
    samples: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def move(session: Session, step: int) -> list[int]:
        if step == moved:
            with torch.no_grad():
                next(session.task.model.parameters()).add_(1)
        return session.sample_ids(step)

    given: set[tuple[str, int, int]] = set()
    read = Storage.read

    def once(self: Storage, name: str, offset: int, size: int, write: Any) -> None:
        if state_of(name) is not None and (name, offset, size) in given:
            raise potl.StorageError(f"{name}: nobody answers any more", "")
        given.add((name, offset, size))
        read(self, name, offset, size, write)

    monkeypatch.setattr(Storage, "read", once)
    scene = Scene(tmp_path / "scene", tasks.build, **options)
    growing = Growing(scene.forge("moved", sample_ids=move), tmp_path / "run")
    growing.show(None)
    url = f"file://{growing.place}"
    seen = watch(growing, [], run=url, job=scene.job, samples=samples)
    assert seen.report.verdict == "rejected"


def test_a_copy_that_is_damaged_here_rejects_nobody(
    recorded: Recorded, growing: Growing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First this machine computes something else, and then its disk fails."""
    fails = [True]
    run_step, forget = Workload.run_step, _Watch._forget

    def failing(self: Workload, step: int) -> Any:
        out = run_step(self, step)
        if step == 6 and fails[0]:
            with torch.no_grad():
                next(self.task.model.parameters()).view(-1)[0] += 1
        return out

    def damaging(self: _Watch, rejections: Any) -> None:
        if fails[0]:
            (copy,) = Path(tempfile.gettempdir()).glob(f"*/run/{_core.checkpoint_entry(4, 0)}")
            raw = copy.read_bytes()
            copy.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
            fails[0] = False
        forget(self, rejections)

    monkeypatch.setattr(Workload, "run_step", failing)
    monkeypatch.setattr(_Watch, "_forget", damaging)
    growing.show(9)
    url = f"file://{growing.place}"
    seen = watch(growing, [lambda: None, None], run=url, job=recorded.job)
    assert "does not hash to its leaf" in seen.looks[0].waits_for
    assert seen.report.verdict == "inconclusive" and seen.rules("reject") == set()


def test_a_run_on_storage_is_waited_for(recorded: Recorded, growing: Growing) -> None:
    url = f"file://{growing.place}"
    seen = watch(growing, [lambda: None, 9, None], run=url, job=recorded.job)
    assert ["there is no run" in look.waits_for for look in seen.looks] == [
        True,
        True,
        False,
        False,
    ]
    assert len(seen.all()) == 12


def test_more_files_than_the_job_can_make_are_refused(
    recorded: Recorded, growing: Growing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(potl._remote._remote, "_MOST_FILES", 3)
    growing.show(9)
    with pytest.raises(potl.LimitError, match="files"):
        watch(growing, [], run=f"file://{growing.place}", job=recorded.job)


def test_who_has_no_token_is_told_at_once(
    recorded: Recorded, growing: Growing, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("a-word-of-sixteen-characters")
    growing.show(9)
    with (
        served(growing.place, "--token-file", tmp_path / "token") as url,
        pytest.raises(potl.UsageError, match="token"),
    ):
        watch(growing, [], run=url, job=recorded.job)


def test_an_interrupt_leaves_nothing_behind(recorded: Recorded, growing: Growing) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    growing.show(9)
    with served(growing.place) as url, pytest.raises(KeyboardInterrupt):
        watch(growing, [interrupt], run=url, job=recorded.job)
