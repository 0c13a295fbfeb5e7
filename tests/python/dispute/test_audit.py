# SPDX-License-Identifier: Apache-2.0
"""An audit repeats a run: it agrees with honest ones, and names the first step of others."""

from __future__ import annotations

import functools
import itertools
import json
import shutil
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import places
import programs
import pytest
import torch
import traced_nets
from disputed import false_build, kill_audit
from verifying import judged

import potl
from potl import _core
from potl._dispute import _audit

pytest.importorskip("potl._torch", reason="potl was built without torch")

EVERY, STEPS = 8, 57


build = traced_nets.mlp


@pytest.fixture(scope="module")
def trainer() -> _core.SigningKey:
    return _core.SigningKey.generate()


@pytest.fixture(scope="module")
def job(trainer: _core.SigningKey, tmp_path_factory: pytest.TempPathFactory) -> potl.Job:
    public = tmp_path_factory.mktemp("key") / "trainer.pub"
    public.write_text(trainer.public_key.to_pem())
    return potl.Job.create(build, seed=3, checkpoint_every=EVERY, trainer=public)


@pytest.fixture(scope="module")
def honest(
    job: potl.Job, trainer: _core.SigningKey, tmp_path_factory: pytest.TempPathFactory
) -> potl.Run:
    run = potl.record(build, tmp_path_factory.mktemp("honest") / "run", job=job, key=trainer)
    run.commit()
    return run


def test_an_honest_run_agrees_in_every_step(
    honest: potl.Run, job: potl.Job, tmp_path: Path
) -> None:
    note = (honest.path / "commitment").read_text()
    told: list[int] = []
    found = potl.audit(
        honest,
        job=job,
        task=build,
        log=tmp_path / "log",
        commitment=note,
        progress=lambda done, total: told.append(done),
    )
    assert found.agrees is True and found.steps == job.steps and found.difference is None
    assert "the commitment is that of its log" in found.reason
    assert told == list(range(1, job.steps + 1))
    assert found.commitment is not None
    again = potl.audit(honest, job=job, task=build, log=tmp_path / "log", commitment=note)
    assert again.agrees is True and again.commitment == found.commitment


class Counting(potl.Task):
    """Keeps a count where no checkpoint holds it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.count = itertools.count()

    def step(self, batch: Any) -> Any:
        loss = super().step(batch)
        return loss / 2 if next(self.count) > STEPS // 2 else loss


def test_an_audit_clears_whom_replays_convict_of_the_tasks_hidden_state(tmp_path: Path) -> None:
    def counting() -> potl.Task:
        plain = build()
        return Counting(
            model=plain.model,
            optimizer=plain.optimizer,
            dataset=plain.dataset,
            loss=plain.loss,
            batch_size=plain.batch_size,
            epochs=plain.epochs,
        )

    # As if the trial did not come to the step where it acts.
    job = potl.Job.create(counting, seed=3, checkpoint_every=EVERY, check=False)
    run = potl.record(counting, tmp_path / "run", job=job)
    report = judged(run, job, counting)
    assert report.verdict == "rejected"
    assert "First repeat the run in one go" in report.document["next"]["steps"][0]
    found = potl.audit(run, job=job, task=counting, log=tmp_path / "log")
    assert found.agrees is True


def test_without_a_log_each_run_has_a_place_of_its_own(
    honest: potl.Run,
    job: potl.Job,
    trainer: _core.SigningKey,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    false = potl.record(
        false_build(build, job, 9), tmp_path / "run", job=job, key=trainer, check_job=False
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    found = potl.audit(honest, job=job, task=build)
    assert found.agrees is True
    assert found.log.parent == tmp_path / "state/potl/audits"
    stopped = potl.audit(false, job=job, task=build)
    assert stopped.agrees is False and stopped.commitment is None
    # Called again it goes on there, however the run is named, and the rest from anywhere.
    again = potl.audit(honest.path, job=job, task=build)
    assert again.log == found.log and again.commitment == found.commitment
    assert potl.audit("run", job=job, task=build).log == stopped.log
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    whole = stopped.finish()
    assert whole.log == stopped.log and whole.commitment is not None
    assert len(list(found.log.parent.iterdir())) == 2


def test_who_has_no_state_directory_is_told_to_name_a_log(
    honest: potl.Run, job: potl.Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    for home in ("/dev/null", ""):  # no directory; and none named, by nobody
        monkeypatch.setenv("XDG_STATE_HOME", home)
        with pytest.raises(potl.StorageError, match=r"no place for the repetition: .*log="):
            potl.audit(honest, job=job, task=build)
        monkeypatch.setattr(Path, "expanduser", nobody)


def test_a_repetition_that_came_with_the_run_is_not_the_auditors(
    job: potl.Job, trainer: _core.SigningKey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trainer that delivers one below the working directory has nothing repeated."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    place, false = Path("audits", _audit._own_place("run", job).name), false_build(build, job, 9)
    for path, key in (("run", trainer), (place, None)):  # None: kept in the repetition
        potl.record(false, path, job=job, key=key, check_job=False)
    assert potl.audit("run", job=job, task=build).agrees is False


@pytest.mark.parametrize("at", [1, 21, STEPS])
def test_a_false_step_is_found_where_it_is(
    at: int,
    job: potl.Job,
    trainer: _core.SigningKey,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert job.steps == STEPS
    false = false_build(build, job, at)
    run = potl.record(false, tmp_path / "run", job=job, key=trainer, check_job=False)
    found = potl.audit(run, job=job, task=build, log=tmp_path / "log")
    assert found.agrees is False
    assert found.difference is not None
    assert (found.difference.step, found.difference.field) == (at, "state")
    assert found.steps == at - 1
    assert "stops after" not in caplog.text  # it had no more to do
    # No more is repeated than the recorder had in its queue; and all of it for a dispute.
    assert len(potl.Run(tmp_path / "log").losses) <= min(at + 4, STEPS)
    whole = potl.audit(run, job=job, task=build, log=tmp_path / "log", to_the_end=True)
    assert whole.agrees is False and whole.difference == found.difference
    assert whole.commitment is not None
    assert len(potl.Run(tmp_path / "log").losses) == STEPS


def test_what_differs_is_named_also_when_an_audit_goes_on(
    job: potl.Job, trainer: _core.SigningKey, tmp_path: Path
) -> None:
    def smoothed() -> potl.Task:
        task = build()
        task.loss = functools.partial(torch.nn.functional.cross_entropy, label_smoothing=0.1)
        return task

    run = potl.record(smoothed, tmp_path / "run", job=job, key=trainer, check_job=False)
    audit = functools.partial(potl.audit, run, job=job, task=build, log=tmp_path / "log")
    found = [audit(), audit(), audit(to_the_end=True), audit(to_the_end=True)]
    assert found[0].difference is not None and found[0].difference.field == "loss"
    assert all(one.difference == found[0].difference for one in found[1:])


def test_to_the_end_goes_on_whenever_the_difference_becomes_known(
    job: potl.Job, trainer: _core.SigningKey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from potl._dispute import _audit

    run = potl.record(
        false_build(build, job, 5), tmp_path / "run", job=job, key=trainer, check_job=False
    )
    hear, calls = _audit._Pair._hear_own, itertools.count()

    def late(pair: _audit._Pair) -> None:  # the recorder's thread writes between two looks
        if next(calls) % 2:
            hear(pair)

    monkeypatch.setattr(_audit._Pair, "_hear_own", late)
    found = potl.audit(run, job=job, task=build, log=tmp_path / "log", to_the_end=True)
    assert found.difference is not None and found.difference.step == 5
    assert found.commitment is not None


def test_a_commitment_to_another_log_does_not_agree(
    honest: potl.Run, job: potl.Job, trainer: _core.SigningKey, tmp_path: Path
) -> None:
    other = potl.record(
        false_build(build, job, 5), tmp_path / "run", job=job, key=trainer, check_job=False
    )
    note = other.commit()
    found = potl.audit(honest, job=job, task=build, log=tmp_path / "log", commitment=note)
    assert found.agrees is False and found.difference is None


def test_a_run_that_stops_early_decides_nothing(
    job: potl.Job, trainer: _core.SigningKey, tmp_path: Path
) -> None:
    with potl.Prover(build, tmp_path / "run", job=job, key=trainer) as prover:
        for step in prover.steps():
            if step.number == 10:
                break
    found = potl.audit(tmp_path / "run", job=job, task=build, log=tmp_path / "log")
    assert found.agrees is None and found.steps == 10 and found.commitment is None
    assert f"10 of {STEPS} steps" in found.reason
    potl.record(build, tmp_path / "run", job=job, key=trainer)
    found = potl.audit(tmp_path / "run", job=job, task=build, log=tmp_path / "log")
    assert found.agrees is True and found.steps == STEPS


def test_the_log_is_read_while_it_grows(honest: potl.Run, job: potl.Job, tmp_path: Path) -> None:
    """A log that is written in pieces of any size, with a pause: what is there is compared."""
    whole = (honest.path / "transcript.log").read_bytes()
    run = tmp_path / "run"
    shutil.copytree(honest.path, run)
    log = run / "transcript.log"
    log.write_bytes(whole[:3000])
    seen: list[tuple[int, int]] = []

    def grow(done: int, total: int) -> None:
        size = log.stat().st_size
        seen.append((done, size))
        log.write_bytes(whole[: size + 371])

    found = potl.audit(
        run, job=job, task=build, log=tmp_path / "log", follow=True, timeout=60, progress=grow
    )
    assert found.steps >= 10
    log.write_bytes(whole)
    found = potl.audit(run, job=job, task=build, log=tmp_path / "log", follow=True)
    assert found.agrees is True


def test_a_damaged_or_foreign_log_is_an_error_and_no_verdict(
    honest: potl.Run, job: potl.Job, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(honest.path, run)
    log = run / "transcript.log"
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    with pytest.raises(potl.MalformedError):
        potl.audit(run, job=job, task=build, log=tmp_path / "a")
    log.unlink()
    with pytest.raises(potl.UsageError, match=r"no transcript\.log"):
        potl.audit(run, job=job, task=build, log=tmp_path / "b")
    with pytest.raises(potl.UsageError, match="there is no run directory"):
        potl.audit(tmp_path / "other", job=job, task=build, log=tmp_path / "b")
    log.symlink_to(honest.path / "transcript.log")
    with pytest.raises(potl.StorageError, match="links in a run directory are not followed"):
        potl.audit(run, job=job, task=build, log=tmp_path / "c")
    other = potl.Job.create(build, seed=4, checkpoint_every=EVERY)
    with pytest.raises(potl.MismatchError, match="another job"):
        potl.audit(honest, job=other, task=build, log=tmp_path / "d")


def test_mistakes_name_their_remedy(
    honest: potl.Run, job: potl.Job, trainer: _core.SigningKey, tmp_path: Path
) -> None:
    other = potl.Job.create(build, seed=3, checkpoint_every=EVERY, arithmetic="stock")
    with pytest.raises(potl.UnsupportedError, match="ord32"):
        potl.audit(honest, job=other, task=build, log=tmp_path / "log")
    with pytest.raises(potl.UsageError, match="a key of its own"):
        potl.audit(honest, job=job, task=build, log=tmp_path / "log", key=trainer)
    with pytest.raises(potl.UsageError, match="name another log"):
        potl.audit(honest, job=job, task=build, log=honest.path)


def test_an_audit_that_was_killed_goes_on(honest: potl.Run, job: potl.Job, tmp_path: Path) -> None:
    log = kill_audit(honest.path, job, tmp_path)
    found = potl.audit(honest, job=job, task=build, log=log)
    assert found.agrees is True and found.steps == STEPS
    assert len(potl.Run(log).inspect()["resumes"]) == 1


def test_a_streaming_audit_reports_while_the_training_runs(
    job: potl.Job, trainer: _core.SigningKey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trainer pauses in the middle: what is false before it is reported then, and at once,
    however slow the thread is that writes the repetition.
    """
    hear, flush, written = _audit._Pair._hear_own, potl.Prover.flush, []

    def hear_what_is_written(self: Any) -> None:
        if written:
            hear(self)

    def write(self: potl.Prover) -> None:
        flush(self)
        written.append(self)

    def sleep(_: float) -> None:
        raise AssertionError("it waits for more")

    monkeypatch.setattr(_audit._Pair, "_hear_own", hear_what_is_written)
    monkeypatch.setattr(_audit._Repeater, "flush", write)
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=sleep)
    monkeypatch.setattr(_audit, "time", clock)
    (tmp_path / "trainer.pem").write_text(trainer.to_pem())
    with potl.Prover(
        false_build(build, job, 13), tmp_path / "run", job=job, key=trainer, check_job=False
    ) as prover:
        steps = prover.steps()
        for _ in range(13):
            next(steps)
        prover.flush()
        found = potl.audit(
            tmp_path / "run", job=job, task=build, log=tmp_path / "log", follow=True, timeout=5
        )
    assert found.agrees is False
    assert found.difference is not None and found.difference.step == 13


def test_the_command(honest: potl.Run, job: potl.Job, tmp_path: Path) -> None:
    job.write(tmp_path / "job.json")
    (tmp_path / "trainer.py").write_text(
        f"import sys\nsys.path.append({str(places.HELPERS)!r})\nfrom traced_nets import mlp\n"
    )
    command = [programs.command(), "audit", str(honest.path), "--job", "job.json"]
    command += ["--task", "trainer:mlp", "--log", "log"]
    run = functools.partial(subprocess.run, cwd=tmp_path, capture_output=True, text=True)
    done = run([*command, "--json"])
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["agrees"] is True and document["steps"] == STEPS
    done = run(command)
    assert done.returncode == 0 and "agrees: all" in done.stdout
