# SPDX-License-Identifier: Apache-2.0
"""Evidence that changes, goes away or leads elsewhere while it is looked at."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import driver_tasks as tasks
import pytest
from transcript_helpers import rejected_by

import potl
from potl import _core
from potl._base import _imports
from potl._record._trace import OperatorTrace
from potl._verify import _answers, _ledger

CHECKS = [potl.PEV(fraction=0.25), potl.Replay(samples=4)]


@pytest.fixture(scope="module")
def job() -> potl.Job:
    return potl.Job.create(tasks.build, seed=7, checkpoint_every=4)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory, job: potl.Job) -> Path:
    folder = tmp_path_factory.mktemp("changes")
    run = potl.record(tasks.build, folder / "run", job=job, key=folder / "key.pem")
    run.commit().write(folder / "note.txt")
    return folder


@pytest.fixture
def folder(recorded: Path, tmp_path: Path) -> Path:
    shutil.copytree(recorded, tmp_path / "copy")
    return tmp_path / "copy"


def verify(folder: Path, job: potl.Job, **changes: Any) -> potl.Report:
    options = {"checks": CHECKS, "ledger": None, "task": tasks.build, **changes}
    return potl.verify(folder / "run", job=job, commitment=folder / "note.txt", **options)


def vanish(run: Path) -> None:
    run.rename(run.with_name("elsewhere"))


def unmount(run: Path) -> None:
    vanish(run)
    run.mkdir()


def become_a_file(run: Path) -> None:
    vanish(run)
    run.write_text("")


@pytest.mark.parametrize("happens", [vanish, unmount, become_a_file])
def test_a_run_that_goes_away_as_a_whole_is_inconclusive(
    folder: Path, job: potl.Job, monkeypatch: pytest.MonkeyPatch, happens: Callable[[Path], None]
) -> None:
    """Between the audit and the replays."""
    answer = _answers.Answers.to

    def late(self: _answers.Answers, plans: Any, **options: Any) -> Any:
        happens(folder / "run")
        return answer(self, plans, **options)

    monkeypatch.setattr(_answers.Answers, "to", late)
    report = verify(folder, job)
    assert report.verdict == "inconclusive", report.json()
    assert "not there any more" in report.json() or "cannot open" in report.json()


def test_a_challenged_file_that_is_missing_in_a_healthy_run_still_rejects(
    folder: Path, job: potl.Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = _answers.Answers.to

    def late(self: _answers.Answers, plans: Any, **options: Any) -> Any:
        shutil.rmtree(folder / "run" / "checkpoints")
        return answer(self, plans, **options)

    monkeypatch.setattr(_answers.Answers, "to", late)
    report = verify(folder, job)
    assert report.verdict == "rejected", report.json()
    assert rejected_by(report.findings) == {"transcript.withheld"}


@pytest.mark.parametrize("link", ["traces", "traces/step-4.json"])
def test_traces_do_not_lead_out_of_the_run(folder: Path, tmp_path: Path, link: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    target = outside / Path(link).name
    OperatorTrace(4, bytes(32), (("aten.mm", "0" * 64),)).write(folder / "run")
    shutil.move(folder / "run" / link, target)
    (folder / "run" / link).symlink_to(target)
    with pytest.raises(potl.MalformedError):
        OperatorTrace.read(folder / "run", 4)
    [there] = [path for path in outside.rglob("*") if path.is_file()]
    before = there.read_bytes()
    with pytest.raises(potl.MalformedError, match=r"symbolic|directory|link"):
        OperatorTrace(4, bytes(32), ()).write(folder / "run")
    assert there.read_bytes() == before


@pytest.mark.parametrize(
    "name", ["transcript.log", "telemetry.log", "checkpoints/step-4.safetensors"]
)
def test_a_pipe_in_the_place_of_a_file_makes_nobody_wait(
    folder: Path, job: potl.Job, name: str
) -> None:
    (folder / "run" / name).unlink()
    os.mkfifo(folder / "run" / name)
    with contextlib.suppress(potl.PotlError):
        assert verify(folder, job).verdict in ("rejected", "inconclusive")


@pytest.mark.parametrize("name", ["note.txt", "challenge.json", "job.json"])
def test_nor_among_the_verifiers_own_files(folder: Path, job: potl.Job, name: str) -> None:
    os.mkfifo(folder / "pipe")
    mine = {"note.txt": potl.Commitment, "challenge.json": potl.Challenge, "job.json": potl.Job}
    with pytest.raises(potl.MalformedError):
        mine[name].read(folder / "pipe")


def test_another_commitment_that_comes_up_meanwhile_ends_the_verification(
    folder: Path, job: potl.Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two verifications at the same time, each of which would have seen one commitment only."""
    ledger, note = folder / "ledger.json", (folder / "note.txt").read_text()
    opened = _core.Evidence.open

    class Late:
        @staticmethod
        def open(*args: Any, **options: Any) -> _core.Evidence:
            found = opened(*args, **options)
            other = potl.record(tasks.build, folder / "other", job=job, key=folder / "key.pem")
            _ledger.remember(ledger, job_id=job.id, commitment=str(other.commit()), challenge=None)
            return found

    monkeypatch.setattr(_core, "Evidence", Late)
    with pytest.raises(potl.StorageError, match="verified elsewhere"):
        verify(folder, job, ledger=ledger)
    monkeypatch.undo()
    assert note in json.loads(ledger.read_text())["commitments"]


def test_a_closed_directory_is_closed_under_all_its_names(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (tmp_path / "link").symlink_to(run)
    assert not _imports.is_closed(run)
    _imports.close(tmp_path / "link")
    for inside in (run, tmp_path / "link", run / "a" / "b", tmp_path / "link" / "a"):
        assert _imports.is_closed(inside)
    for outside in (tmp_path, tmp_path / "running", tmp_path / "run.py"):
        assert not _imports.is_closed(outside)
