# SPDX-License-Identifier: Apache-2.0
"""Recording, inspecting and pruning through Python."""

import itertools
import shutil
from pathlib import Path
from typing import Any

import pure_format as pure
import pytest
from transcript_helpers import (
    append_step,
    append_steps,
    job_text,
    key,
    long_job,
    record_run,
    rejected_by,
    state_at,
)

from potl import _core


@pytest.fixture
def job() -> _core.Job:
    return _core.Job.parse(job_text())


def opened(path: Path, job: _core.Job, **options: Any) -> _core.Evidence:
    note = (path / "commitment").read_text()
    return _core.Evidence.open(str(path), job=job, commitment=note, **options)


def test_a_recorded_run_passes_the_audit(tmp_path: Path, job: _core.Job) -> None:
    record_run(tmp_path / "run", job)
    evidence = opened(tmp_path / "run", job)
    assert {one.result for one in evidence.findings()} == {"pass"}
    assert evidence.committed and evidence.job_is_own and evidence.job.id == job.id
    columns = evidence.steps()
    assert columns["step"] == [1, 2, 3, 4, 5, 6]
    assert columns["loss"] == [1.0 / step for step in range(1, 7)]
    assert columns["state"] == [state_at(step).digest() for step in range(1, 7)]
    assert evidence.load_state(4).digest() == evidence.state_digest(4) == state_at(4).digest()


def test_published_roots_are_checked(tmp_path: Path, job: _core.Job) -> None:
    path = tmp_path / "run"
    recorder = _core.Recorder.create(str(path), job, key(), software="")
    recorder.append_initial(state_at(0))
    append_steps(recorder, job, 1, 3)
    early = recorder.publish()
    append_steps(recorder, job, 4, 6)
    recorder.close()
    _core.commit_run(str(path), key())
    assert not rejected_by(opened(path, job, published=[early]).findings())

    run = pure.Run.read(path)
    run.change(run.steps()[0], duration_ns=1)
    run.write()
    (path / "commitment").unlink()
    _core.commit_run(str(path), key())
    assert rejected_by(opened(path, job, published=[early]).findings()) == {"transcript.history"}


def test_a_crash_can_be_ground_but_is_counted(tmp_path: Path, job: _core.Job) -> None:
    """Three resumes where two are agreed."""
    path = str(tmp_path / "run")
    recorder = _core.Recorder.create(path, job, key(), software="")
    recorder.append_initial(state_at(0))
    step = 0
    for _ in range(3):
        append_step(recorder, job, step + 1)
        recorder.abandon()
        recorder, step, _state = _core.Recorder.resume(
            path, job, key(), software="", past_limits=True
        )
    append_steps(recorder, job, step + 1, 6)
    recorder.close()
    _core.commit_run(path, key())
    evidence = opened(tmp_path / "run", job)
    assert rejected_by(evidence.findings()) == {"transcript.resume"}
    assert [row["from_step"] for row in evidence.superseded()] == [0, 0, 0]


def test_states_of_superseded_branches_can_be_loaded(tmp_path: Path) -> None:
    job = _core.Job.parse(job_text(checkpoint_every=1))
    path = tmp_path / "run"
    recorder = _core.Recorder.create(str(path), job, key(), software="")
    recorder.append_initial(state_at(0))
    append_steps(recorder, job, 1, 3)
    recorder.abandon()
    newest = path / "checkpoints" / "step-3.safetensors"
    hidden = newest.rename(path / "hidden")
    recorder, step, _state = _core.Recorder.resume(str(path), job, key(), software="")
    hidden.rename(newest)
    append_steps(recorder, job, step + 1, 6)
    recorder.close()
    _core.commit_run(str(path), key())
    evidence = opened(path, job)
    assert evidence.superseded() == [
        {"branch": 0, "from_step": 2, "last_step": 3, "start_branch": 0}
    ]
    assert evidence.load_state(3, branch=0).digest() == state_at(3).digest()
    assert evidence.load_state(3, branch=1).digest() == evidence.load_state(3).digest()
    with pytest.raises(_core.MissingError):
        evidence.load_state(3, branch=2)


def test_an_empty_commitment_is_not_no_commitment(tmp_path: Path, job: _core.Job) -> None:
    record_run(tmp_path / "run", job)
    with pytest.raises(_core.MalformedError):
        _core.Evidence.open(str(tmp_path / "run"), job=job, commitment="")


def test_inspection_needs_no_job(tmp_path: Path, job: _core.Job) -> None:
    record_run(tmp_path / "run", job, resume_after=3)
    (tmp_path / "run" / "job.json").unlink()
    facts = _core.inspect_run(str(tmp_path / "run"))
    assert (facts["steps"], facts["closed"], facts["committed"]) == (6, True, True)
    assert facts["resumes"] == [{"from_step": 2, "last_step": 3}]
    assert facts["losses"] == [1.0 / step for step in range(1, 7)]
    assert [one["step"] for one in facts["checkpoints"]] == [0, 2, 4, 6]
    assert facts["agreed_steps"] is None and len(facts["damage"]) == 1


def test_inspection_shows_damage_and_is_a_json_document(tmp_path: Path, job: _core.Job) -> None:
    path = tmp_path / "run"
    recorder = _core.Recorder.create(str(path), job, key(), software="")
    recorder.append_initial(state_at(0))
    append_step(recorder, job, 1, loss=float("nan"))
    recorder.abandon()
    log = path / "transcript.log"
    log.write_bytes(log.read_bytes()[:-3] + b"\x00")
    (path / "checkpoints" / ".step-2.safetensors.1.tmp").write_bytes(b"")
    facts = _core.inspect_run(str(path))
    assert _core.parse_json(_core.canonical_json(facts)) == facts
    assert facts["unused"] == ["checkpoints/.step-2.safetensors.1.tmp"]
    assert "breaks off" in facts["damage"][0]


def test_losses_of_a_long_run_are_means(tmp_path: Path) -> None:
    job = long_job(2000, checkpoint_every=500, max_segment=500)
    record_run(tmp_path / "run", job)
    losses = _core.inspect_run(str(tmp_path / "run"))["losses"]
    assert len(losses) == 512
    assert losses[0] == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)


def prune(path: Path, plan: dict[str, Any]) -> None:
    for name in plan["remove"]:
        (path / name).unlink()


def test_a_pruned_run_still_passes_and_fits(tmp_path: Path) -> None:
    job = long_job(40, checkpoint_every=2, max_segment=10)
    path = tmp_path / "run"
    record_run(path, job, resume_after=7)
    total = sum(one.stat().st_size for one in path.rglob("*") if one.is_file())
    one_file = (path / "checkpoints" / "step-0.safetensors").stat().st_size
    budget = total - 8 * one_file
    plan = _core.prune_plan(str(path), max_bytes=budget)
    assert plan["bytes"] <= budget
    assert "checkpoints/step-6.safetensors" in plan["keep"]  # where the resume started
    prune(path, plan)
    evidence = opened(path, job)
    assert not rejected_by(evidence.findings())
    steps = [one["step"] for one in evidence.checkpoints()]
    assert max(b - a for a, b in itertools.pairwise(steps)) == plan["segment"]
    assert _core.prune_plan(str(path), max_bytes=budget)["remove"] == []


def test_the_smallest_verifiable_run_is_named_when_a_budget_is_too_small(tmp_path: Path) -> None:
    job = long_job(40, checkpoint_every=2, max_segment=10)
    path = tmp_path / "run"
    record_run(path, job)
    with pytest.raises(_core.UsageError) as caught:
        _core.prune_plan(str(path), max_bytes=1000)
    reachable = int(str(caught.value).split("smaller than ")[1].split()[0])
    plan = _core.prune_plan(str(path), max_bytes=reachable)
    assert (plan["bytes"], plan["segment"]) == (reachable, 10)
    prune(path, plan)
    assert not rejected_by(opened(path, job).findings())


def test_what_a_crash_left_goes_first(tmp_path: Path) -> None:
    job = _core.Job.parse(job_text())
    path = tmp_path / "run"
    record_run(path, job)
    left = path / "checkpoints" / "step-6.b9.safetensors"
    shutil.copy(path / "checkpoints" / "step-6.safetensors", left)
    plan = _core.prune_plan(str(path), max_bytes=10**9)
    assert plan["remove"] == ["checkpoints/step-6.b9.safetensors"]
