# SPDX-License-Identifier: Apache-2.0
"""A run is watched while it is recorded: what is replayed when, what rejects, and what does not."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import driver_tasks as tasks
import pytest
import torch
from growing_runs import Growing, watch
from places import HELPERS

import potl
from potl import _core
from potl._attacks import Scene
from potl._job._session import Session
from potl._verify import _schema
from potl._verify._ahead import log_of
from potl._verify._monitor import _Watch
from potl._verify._workload import Workload

EVERY = 4  # steps of a segment, of 24 steps
NONCE = bytes(range(32))
ALL = [f"{start}-{start + EVERY}" for start in range(0, 24, EVERY)]


@pytest.fixture(scope="module")
def job() -> potl.Job:
    return potl.Job.create(tasks.build, seed=7, checkpoint_every=EVERY)


@pytest.fixture(scope="module")
def whole(job: potl.Job, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("monitor")
    return potl.record(tasks.build, folder / "run", job=job, key=folder / "key.pem").path


@pytest.fixture
def growing(whole: Path, tmp_path: Path) -> Growing:
    return Growing(whole, tmp_path / "run")


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    folder = tmp_path_factory.mktemp("forged")
    return Scene(folder, tasks.build, checkpoint_every=EVERY, arithmetic="ord32")


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The steps that are replayed from now on."""
    trained: list[int] = []
    run_step = Workload.run_step

    def run(self: Workload, step: int) -> Any:
        trained.append(step)
        return run_step(self, step)

    monkeypatch.setattr(Workload, "run_step", run)
    return trained


def move(session: Session, step: int) -> None:
    """Somebody moves the weights at the end of the third segment."""
    if step == 12:
        with torch.no_grad():
            next(session.task.model.parameters()).add_(0.01)


@pytest.fixture(scope="module")
def forged(scene: Scene) -> Path:
    return scene.forge("moved", rewrite=move)


# ---------------------------------------------------------------------- honest runs


def test_each_segment_is_replayed_once_as_soon_as_it_is_recorded(
    job: potl.Job, growing: Growing
) -> None:
    growing.show(3)
    seen = watch(growing, [8, 8, 17, None], job=job)
    assert seen.segments() == [[], ALL[:2], [], ALL[2:4], ALL[4:]]
    assert [look.step for look in seen.looks] == [3, 8, 8, 17, 24]
    assert all(replay["equal"] for replay in seen.report.document["replays"])


def test_what_was_as_agreed_to_the_end_is_never_accepted(job: potl.Job, growing: Growing) -> None:
    growing.show(None)
    seen = watch(growing, [], job=job)
    assert (seen.report.verdict, seen.report.exit_code) == ("inconclusive", 3)
    assert seen.rules("inconclusive") == seen.rules("reject") == set()
    assert "interim look" in seen.report.document["answer"]
    assert seen.report.document["nonce"] == ""
    assert "--commitment COMMITMENT" in seen.report.document["reproduce"]
    assert any("--commitment" in s for s in seen.report.document["next"]["steps"])
    assert "after the commitment" not in seen.report.json()


def test_segments_are_drawn_once_whatever_is_recorded_by_then(
    job: potl.Job, growing: Growing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_core, "fresh_nonce", lambda: NONCE)
    growing.show(1)
    seen = watch(growing, [*range(2, 25), None], job=job, samples=2)
    # The first and the last segment are always replayed; the others are drawn from.
    drawn = _core.draw_without_replacement(NONCE, bytes(32), "replay", 4, 2)
    expected = [ALL[0], *(ALL[1 + index] for index in sorted(drawn)), ALL[-1]]
    assert seen.all() == expected


def test_states_that_the_job_does_not_store_are_derived(tmp_path: Path) -> None:
    job = potl.Job.create(tasks.build, seed=7, checkpoint_every=2, store_every=8)
    run = potl.record(tasks.build, tmp_path / "whole", job=job, key=tmp_path / "key.pem")
    growing = Growing(run.path, tmp_path / "run")
    growing.show(5)
    seen = watch(growing, [11, None], job=job)
    assert [len(look) for look in seen.segments()] == [2, 3, 7]
    assert seen.rules("inconclusive") == seen.rules("reject") == set()


def test_states_are_judged_by_the_log_of_the_look_that_opens_them(
    job: potl.Job, growing: Growing, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[int] = []

    def noted(steps: Any) -> Any:
        logged.append(len(steps["step"]))
        return log_of(steps)

    monkeypatch.setattr(_schema, "log_of", noted)
    growing.show(5)
    watch(growing, [13, None], job=job)
    assert logged == [5, 13, 24]


def test_stock_arithmetic_has_its_tolerances(tmp_path: Path) -> None:
    job = potl.Job.create(tasks.build, seed=7, checkpoint_every=EVERY, arithmetic="stock")
    run = potl.record(tasks.build, tmp_path / "whole", job=job, key=tmp_path / "key.pem")
    growing = Growing(run.path, tmp_path / "run")
    growing.show(9)
    seen = watch(growing, [17, None], job=job)
    assert [len(look) for look in seen.segments()] == [2, 2, 2]
    assert seen.rules("reject") == set()


@pytest.mark.parametrize("keeps_newest", [True, False])
def test_a_run_that_was_killed_and_resumed_is_not_rejected(
    job: potl.Job, tmp_path: Path, keeps_newest: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tmp_path / "whole"

    class KilledError(Exception):
        pass

    with (
        pytest.raises(KilledError),
        potl.Prover(tasks.build, whole, job=job, key=tmp_path / "key.pem") as prover,
    ):
        for step in prover.steps():
            if step.number == 10:
                raise KilledError
    growing = Growing(whole, tmp_path / "run")
    # What a kill leaves of a record that was being written.
    growing.show(None, b"\x90\x00\x00\x00\x03")

    def resumed() -> None:
        if not keeps_newest:
            (whole / "checkpoints/step-8.safetensors").unlink()
        potl.record(tasks.build, whole, job=job, key=tmp_path / "key.pem")
        if not keeps_newest:
            (growing.place / "checkpoints/step-8.safetensors").unlink()
        growing.show(None)

    trained = counted(monkeypatch)
    seen = watch(growing, [resumed], job=job)
    assert seen.rules("reject") == seen.rules("inconclusive") == set()
    assert seen.segments() == [ALL[:2], ALL[2:]]
    # What the resume recorded anew with the same bits is not replayed again.
    assert trained == list(range(1, 25))


# ---------------------------------------------------------------------- cheats


def test_a_false_segment_is_rejected_once_it_is_recorded(
    scene: Scene, forged: Path, tmp_path: Path
) -> None:
    growing = Growing(forged, tmp_path / "run")
    growing.show(11)
    seen = watch(growing, [12], job=scene.job)
    assert (seen.report.verdict, seen.report.exit_code) == ("rejected", 1)
    rejecting = [one for one in seen.report.findings if one.result == "reject"]
    assert {one.rule for one in rejecting} == {"replay.parameters"}
    assert {(one.first_step, one.last_step) for one in rejecting} == {(9, 12)}
    # It was replayed again at once: what the log binds needs no other look.
    assert [look.step for look in seen.looks] == [11, 12]
    assert seen.looks[1].report is seen.report


def test_a_false_segment_is_rejected_whatever_another_look_found(
    scene: Scene, forged: Path, tmp_path: Path
) -> None:
    growing = Growing(forged, tmp_path / "run")
    growing.show(13)
    state = growing.place / "checkpoints/step-8.safetensors"
    late = state.rename(growing.place / "late")
    seen = watch(growing, [lambda: late.rename(state)], job=scene.job)
    assert seen.report.verdict == "rejected"
    assert seen.rules("reject") == {"replay.parameters"}
    # What only one look found, of the state that is there again.
    assert any("found once and not again" in one.reason for one in seen.report.findings)


def test_states_that_are_withheld_by_turns_reject(job: potl.Job, growing: Growing) -> None:
    growing.show(13)
    first, other = (growing.place / f"checkpoints/step-{step}.safetensors" for step in (4, 8))
    late = first.rename(growing.place / "late")

    def swap(back: Path, away: Path) -> None:
        late.rename(back)
        away.rename(late)

    turns = [lambda: swap(first, other), lambda: swap(other, first)]
    seen = watch(growing, turns, job=job)
    assert seen.report.verdict == "rejected"
    assert seen.rules("reject") == {"transcript.withheld"}


def test_what_a_resume_records_anew_is_judged_anew(scene: Scene, tmp_path: Path) -> None:
    job, whole = scene.job, scene.path("resumed")
    growing = Growing(whole, tmp_path / "run")
    recorder = _core.Recorder.create(str(whole), job.core, scene.key, software="")
    with Session.open(tasks.build, seed=job.seed, job=job) as session:

        def record(first: int) -> None:
            for step, ids, batch in session.batches(first, 13):
                result = session.run_step(step, batch)
                if first > 1:
                    move(session, step)
                scene.append(recorder, session, step, ids, result)
            recorder.abandon()

        recorder.append_initial(session.capture())
        record(1)
        growing.show(None)
        # Watched as it was, and then resumed from a state before the last segment.
        (whole / "checkpoints/step-12.safetensors").unlink()
        recorder, last, state = _core.Recorder.resume(str(whole), job.core, scene.key, software="")
        session.restore(state)
        record(last + 1)
    seen = watch(growing, [lambda: growing.show(None), lambda: None], job=job)
    assert last == 8 and seen.segments()[0] == ALL[:3]
    assert seen.report.verdict == "rejected"
    assert "replay.parameters" in seen.rules("reject")


def test_a_state_that_is_withheld_rejects(job: potl.Job, growing: Growing) -> None:
    growing.show(9)
    (growing.place / "checkpoints/step-4.safetensors").unlink()
    seen = watch(growing, [lambda: None], job=job)
    assert seen.report.verdict == "rejected"
    assert "transcript.withheld" in seen.rules("reject")


def test_a_forged_log_rejects_and_nothing_of_it_is_replayed(
    job: potl.Job, growing: Growing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> None:
        raise AssertionError("a step was trained for a rejected record")

    monkeypatch.setattr(Workload, "run_step", refused)
    growing.show(9)
    log = bytearray(growing.log(9))
    log[len(log) // 2] ^= 1
    growing.write_log(bytes(log))
    seen = watch(growing, [lambda: None], job=job)
    assert "transcript.chain" in seen.rules("reject")


# ---------------------------------------------------------------------- misfortunes


def test_a_computation_that_goes_wrong_once_rejects_nobody(
    job: potl.Job, growing: Growing, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = [True]
    run_step, forget = Workload.run_step, _Watch._forget

    def flipping(self: Workload, step: int) -> Any:
        out = run_step(self, step)
        if broken[0] and step == 6:
            with torch.no_grad():
                next(self.task.model.parameters()).view(-1)[0] += 1
        return out

    def mended(self: _Watch, rejections: Any) -> None:
        broken[0] = False
        forget(self, rejections)

    monkeypatch.setattr(Workload, "run_step", flipping)
    monkeypatch.setattr(_Watch, "_forget", mended)
    growing.show(9)
    seen = watch(growing, [None], job=job)
    assert not broken[0]
    assert seen.report.verdict == "inconclusive"
    assert seen.rules("reject") == set()
    doubts = [one for one in seen.report.findings if one.result == "inconclusive"]
    assert doubts
    assert all("found once and not again" in one.reason for one in doubts)
    assert {5, 6, 7, 8}.issuperset(one.first_step for one in doubts)
    assert seen.all() == ALL


def test_a_state_that_comes_late_is_not_withheld(job: potl.Job, growing: Growing) -> None:
    growing.show(9)
    state = growing.place / "checkpoints/step-8.safetensors"
    state.rename(growing.place / "late")
    seen = watch(growing, [lambda: (growing.place / "late").rename(state), None], job=job)
    assert seen.report.verdict == "inconclusive"
    assert seen.rules("reject") == set()
    assert sorted(seen.all()) == sorted(ALL)


def test_a_state_that_comes_and_goes_makes_no_work(
    job: potl.Job, growing: Growing, monkeypatch: pytest.MonkeyPatch
) -> None:
    growing.show(9)
    state = growing.place / "checkpoints/step-4.safetensors"
    late = growing.place / "late"
    trained = counted(monkeypatch)
    turns = [lambda: state.rename(late), lambda: late.rename(state)] * 3
    seen = watch(growing, [*turns, None], job=job)
    assert seen.rules("reject") == set()
    assert any("found once and not again" in one.reason for one in seen.report.findings)
    assert trained == list(range(1, 25))


@pytest.mark.parametrize(("times", "judges"), [(1, True), (9, False)])
def test_what_this_machine_could_not_do_is_tried_once_more(
    job: potl.Job, growing: Growing, monkeypatch: pytest.MonkeyPatch, times: int, judges: bool
) -> None:
    run_step = Workload.run_step
    failures: list[int] = []

    def scarce(self: Workload, step: int) -> Any:
        if step == 6 and len(failures) < times:
            failures.append(step)
            raise MemoryError("no memory")
        return run_step(self, step)

    monkeypatch.setattr(Workload, "run_step", scarce)
    growing.show(None)
    seen = watch(growing, [lambda: None], job=job)
    assert len(seen.looks) == 2
    assert (seen.report.verdict, seen.rules("reject")) == ("inconclusive", set())
    untold = [one.reason for one in seen.report.findings if one.result == "inconclusive"]
    assert (untold == []) == judges
    assert any("MemoryError" in one for one in untold) != judges


def test_a_log_that_became_shorter_ends_it_without_a_verdict(
    job: potl.Job, growing: Growing
) -> None:
    growing.show(9)
    seen = watch(growing, [7, lambda: None], job=job)
    assert seen.report.verdict == "inconclusive"
    assert any("became shorter" in one.reason for one in seen.report.findings)
    assert [look.step for look in seen.looks] == [9, 9, 9]


def test_a_log_whose_old_records_changed_ends_it_without_a_verdict(
    job: potl.Job, growing: Growing, tmp_path: Path
) -> None:
    again = potl.record(tasks.build, tmp_path / "again", job=job, key=tmp_path / "other.pem")
    growing.show(9)
    other = Growing(again.path, growing.place)
    seen = watch(growing, [lambda: other.show(17), lambda: None], job=job)
    assert seen.report.verdict == "inconclusive"
    assert any("earlier records changed" in one.reason for one in seen.report.findings)


def test_a_log_that_is_whole_again_is_watched_on(job: potl.Job, growing: Growing) -> None:
    growing.show(9)
    seen = watch(growing, [7, 17, None], job=job)
    assert "became shorter" in seen.looks[1].waits_for
    assert seen.all() == ALL
    assert seen.rules("inconclusive") == set()


def test_a_log_that_cannot_be_read_twice_raises(job: potl.Job, growing: Growing) -> None:
    growing.show(9)
    growing.write_log(b"no log")
    with pytest.raises(potl.MalformedError, match="does not begin like a log"):
        watch(growing, [lambda: None], job=job)


def test_a_log_that_cannot_be_read_once_is_looked_at_again(job: potl.Job, growing: Growing) -> None:
    growing.show(9)
    growing.write_log(b"potl")
    seen = watch(growing, [9, None], job=job)
    assert [bool(look.waits_for) for look in seen.looks] == [True, False, False]


# ---------------------------------------------------------------------- its beginning and its end


def test_a_run_that_is_not_there_is_waited_for(job: potl.Job, growing: Growing) -> None:
    seen = watch(growing, [lambda: None, 0, None], job=job)
    waits = [look.waits_for for look in seen.looks]
    assert ["there is no run" in one for one in waits] == [True, True, False, False]
    assert "no step" in waits[2]


def test_what_a_monitor_waits_for_is_logged_once_where_nobody_is_told(
    job: potl.Job, growing: Growing, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(potl.MissingError):
        potl.monitor(growing.place, job=job, task=tasks.build, every=0.01, timeout=0.05)
    assert ["there is no run" in one for one in caplog.messages] == [True]


def test_a_run_that_disappears_is_waited_for(job: potl.Job, growing: Growing) -> None:
    growing.show(9)
    seen = watch(growing, [lambda: shutil.rmtree(growing.place), None], job=job)
    assert "not there any more" in seen.looks[1].waits_for
    assert seen.segments() == [ALL[:2], [], ALL[2:]]


def test_a_folder_in_place_of_the_log_is_waited_out(job: potl.Job, growing: Growing) -> None:
    log = growing.place / "transcript.log"

    def replaced() -> None:
        log.unlink()
        log.mkdir()
        for count in range(9999):
            if log.stat().st_size >= len(growing.log(1)):
                break
            (log / f"{count}{'x' * 200}").touch()

    def mended() -> None:
        shutil.rmtree(log)
        growing.show(None)

    growing.show(1)
    seen = watch(growing, [replaced, mended], job=job)
    assert "Is a directory" in seen.looks[1].waits_for
    assert seen.all() == ALL


def test_it_ends_after_the_look_in_which_its_time_is_over(job: potl.Job, growing: Growing) -> None:
    growing.show(9)
    report = potl.monitor(growing.place, job=job, task=tasks.build, every=0, timeout=0)
    assert report.verdict == "inconclusive"
    assert len(report.document["replays"]) >= 1


def test_what_may_be_wrong_is_looked_at_again_even_when_its_time_is_over(
    job: potl.Job, growing: Growing
) -> None:
    growing.show(9)
    (growing.place / "checkpoints/step-4.safetensors").unlink()
    report = potl.monitor(growing.place, job=job, task=tasks.build, every=0, timeout=0)
    assert report.verdict == "rejected"


def test_without_a_run_in_time_it_says_so(job: potl.Job, growing: Growing) -> None:
    with pytest.raises(potl.MissingError, match="there is no run"):
        potl.monitor(growing.place, job=job, task=tasks.build, every=0, timeout=0)


def test_an_interrupt_ends_it(job: potl.Job, growing: Growing) -> None:
    def interrupt(_: potl.Look) -> None:
        raise KeyboardInterrupt

    growing.show(9)
    with pytest.raises(KeyboardInterrupt):
        potl.monitor(growing.place, job=job, task=tasks.build, every=0, on_look=interrupt)


@pytest.mark.parametrize(
    "options",
    [{"every": -1}, {"every": math.nan}, {"timeout": math.inf}, {"samples": -1}],
)
def test_numbers_that_are_none_are_refused(
    job: potl.Job, growing: Growing, options: dict[str, Any]
) -> None:
    with pytest.raises(potl.UsageError, match=next(iter(options))):
        potl.monitor(growing.place, job=job, task=tasks.build, **options)


def test_another_task_is_refused_before_it_waits(job: potl.Job, growing: Growing) -> None:
    with pytest.raises(potl.JobMismatch):
        potl.monitor(growing.place, job=job, task=tasks.build_less_momentum)


# ---------------------------------------------------------------------- a recorder beside it

PROGRAM = """
import pathlib, time
import potl, driver_tasks
with potl.Prover(driver_tasks.build, "run", job="job.json", key="trainer.pem") as prover:
    for step in prover.steps():
        while step.number in (6, 14) and not pathlib.Path(f"on-{step.number}").exists():
            time.sleep(0.01)
"""


def test_a_recorder_is_watched_while_it_runs(job: potl.Job, tmp_path: Path) -> None:
    """The recorder goes on only when the segments before were judged: no time decides."""
    job.write(tmp_path / "job.json")
    recorder = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HELPERS), *sys.path])},
    )
    judged: list[str] = []

    def after(look: potl.Look) -> None:
        judged.extend(str(one.details["segment"]) for one in look.judged)
        assert recorder.poll() in (None, 0), "the recorder failed"
        for segment, step in ((ALL[0], 6), (ALL[2], 14)):
            if segment in judged:
                (tmp_path / f"on-{step}").touch()

    try:
        report = potl.monitor(
            tmp_path / "run",
            job=job,
            task=tasks.build,
            samples=9,
            every=0.05,
            timeout=600,
            on_look=after,
        )
    finally:
        recorder.kill()
        recorder.wait()
    assert judged == ALL
    assert [one for one in report.findings if one.result in ("reject", "inconclusive")] == []
