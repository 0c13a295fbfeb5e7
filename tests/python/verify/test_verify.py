# SPDX-License-Identifier: Apache-2.0
"""Verification end to end: honest runs are accepted, the verifier's own mistakes and troubles are
not verdicts.
"""

import functools
import importlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import driver_tasks as tasks
import programs
import pytest
from places import HELPERS

import potl
from potl._job import _session
from potl._remote._remote import Place
from potl._verify import _worker, _workload

CHECKS = [potl.Telemetry(), potl.PEV(fraction=0.25), potl.Replay(samples=4)]


class Delivery:
    """A job, its recorded run, the commitment and the model."""

    def __init__(
        self, folder: Path, build: Any = tasks.build, seed: int = 7, **options: Any
    ) -> None:
        self.folder = folder
        self.build = build
        self.job = potl.Job.create(build, seed=seed, **{"checkpoint_every": 4, **options})
        self.key = folder / "trainer.pem"
        self.run = potl.record(build, folder / "run", job=self.job, key=self.key)
        self.commitment = self.run.commit()
        self.model = folder / "model.safetensors"
        self.run.export(self.model)

    def verify(self, **changes: Any) -> potl.Report:
        arguments: dict[str, Any] = {
            "job": self.job,
            "commitment": self.commitment,
            "task": self.build,
            "checks": CHECKS,
            "model": self.model,
            "ledger": None,
        }
        return potl.verify(self.run, **{**arguments, **changes})


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Delivery:
    return Delivery(tmp_path_factory.mktemp("honest"))


# ---------------------------------------------------------------------- careless clients


def test_a_link_in_the_run_directory_is_the_trainer_s_too(tmp_path: Path) -> None:
    """It may lead to a job in another run of the trainer's."""
    (tmp_path / "run").mkdir()
    link = tmp_path / "run" / "agreed.json"
    link.symlink_to(tmp_path / "job.json")
    with pytest.raises(potl.UsageError, match="lies in the run directory"):
        potl.verify(tmp_path / "run", job=link, commitment="note.txt")


def test_a_file_in_the_place_of_a_run_is_no_run_directory(honest: Delivery, tmp_path: Path) -> None:
    """And nothing lies in it: who names the job twice is told of the run."""
    job = tmp_path / "job.json"
    honest.job.write(job)
    with pytest.raises(potl.UsageError, match="there is no run directory"):
        potl.verify(job, job=job, commitment=honest.commitment, task=tasks.build)


def test_the_trainer_s_copy_of_the_job_is_not_the_client_s(
    honest: Delivery, tmp_path: Path
) -> None:
    """It says what the trainer likes: the run fits it, whatever was agreed."""
    run, given = honest.run.path, {"task": tasks.build}
    link = tmp_path / "job.json"
    link.symlink_to(run / "job.json")
    judges: list[Callable[..., object]] = [
        honest.verify,
        functools.partial(potl.challenge, run, commitment=honest.commitment, ledger=None),
        functools.partial(potl.monitor, run, **given),
        functools.partial(potl.audit, run, log=tmp_path / "audit", **given),
        functools.partial(potl.check_audit, run, run=run, nonce=bytes([9] * 32), **given),
    ]
    for judge in judges:
        for job in (run / "job.json", link):
            with pytest.raises(potl.UsageError, match="lies in the run directory"):
                judge(job=job)


# ---------------------------------------------------------------------- honest runs


def test_an_honest_run_is_accepted(honest: Delivery) -> None:
    report = honest.verify()
    assert report.verdict == "accepted", report.json()
    assert report.exit_code == 0
    report.raise_for_verdict()


def test_a_larger_draw_sees_what_the_report_before_it_said(honest: Delivery) -> None:
    few = potl.Replay(samples=2, top_q=0)  # which leaves some of the six segments
    first = honest.verify(checks=[few], policy=potl.Policy(probability=0))
    row = first.document["next"]["stronger"][0]
    assert row["seconds"] > row["more_seconds"] > 0
    more = honest.verify(checks=[potl.Replay(samples=row["samples"])])
    assert more.strength["sampled"] == row["samples"]
    seen = {one["cheat_fraction"]: one["probability"] for one in more.strength["table"]}
    assert all(seen[one["cheat_fraction"]] == one["probability"] for one in row["table"])


@pytest.mark.parametrize("seed", range(20 if os.environ.get("POTL_FULL") else 5))
def test_honest_runs_with_other_seeds_are_accepted(tmp_path: Path, seed: int) -> None:
    report = Delivery(tmp_path, seed=seed).verify()
    assert report.verdict == "accepted", report.json()


@pytest.mark.parametrize("arithmetic", ["auto", "stock"])
@pytest.mark.parametrize(("recorded", "verified"), [(1, 2), (2, 1), (2, 2)])
def test_an_honest_run_is_accepted_with_other_numbers_of_threads(
    tmp_path: Path,
    set_threads: Callable[[int], None],
    recorded: int,
    verified: int,
    arithmetic: str,
) -> None:
    set_threads(recorded)
    delivery = Delivery(tmp_path, tasks.build_wide, arithmetic=arithmetic)
    set_threads(verified)
    report = delivery.verify()
    assert report.verdict == "accepted", report.json()


def test_an_honest_run_is_accepted_in_a_new_process(honest: Delivery) -> None:
    honest.job.write(honest.folder / "job.json")
    honest.commitment.write(honest.folder / "commitment")
    program = (
        "import potl, driver_tasks\n"
        "report = potl.verify('run', job='job.json', commitment='commitment',\n"
        "                     task='driver_tasks:build', checks=[potl.Replay(samples=4)],\n"
        "                     ledger=None)\n"
        "print(report.verdict)\n"
    )
    done = subprocess.run(
        [programs.python(), "-c", program],
        cwd=honest.folder,
        env={**os.environ, "PYTHONPATH": str(HELPERS)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.stdout == "accepted\n", done.stderr


def test_the_defaults_choose_checks_that_accept(honest: Delivery) -> None:
    report = honest.verify(checks=None)
    assert report.verdict == "accepted", report.json()
    assert {finding.check for finding in report.findings} >= {"pev", "replay", "telemetry"}


def test_the_cost_is_without_what_loads_the_task(
    honest: Delivery, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = _session.build_task

    def slow(*given: Any) -> potl.Task:
        time.sleep(1)
        return real(*given)

    monkeypatch.setattr(_session, "build_task", slow)
    began = time.perf_counter()
    report = honest.verify()
    took = time.perf_counter() - began
    assert 0 < report.document["cost"]["seconds"] <= took - 1


def test_the_same_nonce_gives_the_same_findings(honest: Delivery) -> None:
    nonce = bytes(range(32))
    first = honest.verify(nonce=nonce)
    second = honest.verify(nonce=nonce.hex())
    assert [f.reason for f in first.findings if f.check == "replay"] == [
        f.reason for f in second.findings if f.check == "replay"
    ]


def test_every_verification_draws_a_nonce_of_its_own(honest: Delivery) -> None:
    nonces = {honest.verify().document["nonce"] for _ in range(3)}
    assert len(nonces) == 3
    assert all(len(set(bytes.fromhex(nonce))) > 8 for nonce in nonces)


def test_a_report_says_where_nothing_is_remembered(honest: Delivery, tmp_path: Path) -> None:
    """A trainer that gets another draw each time passes in the end."""
    for ledger in (None, tmp_path / "ledger"):
        report = honest.verify(ledger=ledger)
        told = any("no ledger was kept" in one.reason for one in report.findings)
        assert told is (ledger is None)


def test_a_nonce_that_was_given_is_no_draw_after_the_commitment(
    honest: Delivery, tmp_path: Path
) -> None:
    """A trainer that knew it could have cheated where nobody looks."""
    written = tmp_path / "nonce.txt"
    written.write_text("05" * 32 + "\n")
    for nonce, is_drawn in ((None, True), (bytes([5] * 32), False), (written, False)):
        report = honest.verify(nonce=nonce)
        assert report.verdict == "accepted", report.json()
        told = [one.reason for one in report.findings if "the nonce was given" in one.reason]
        assert (told == []) is is_drawn
        assert ("after the commitment" in report.document["looked_at"][1]) is is_drawn


@pytest.mark.parametrize("nonce", [b"short", "zz" * 32, "05" * 200, bytes(33), bytes(32)])
def test_what_nobody_drew_is_a_usage_error(honest: Delivery, nonce: "bytes | str") -> None:
    with pytest.raises(potl.UsageError, match="nonce"):
        honest.verify(nonce=nonce)


# ---------------------------------------------------------------------- what the verifier brings


def test_without_a_job_of_its_own_a_run_is_never_accepted(honest: Delivery) -> None:
    assert honest.verify(job=None).verdict == "inconclusive"


def test_without_a_commitment_a_run_is_never_accepted(honest: Delivery) -> None:
    assert honest.verify(commitment=None).verdict == "inconclusive"


def test_without_a_task_a_run_is_never_accepted(honest: Delivery) -> None:
    assert honest.verify(task=None).verdict == "inconclusive"


def test_without_a_model_the_report_names_the_one_it_vouches_for(honest: Delivery) -> None:
    report = honest.verify(model=None)
    assert report.verdict == "accepted", report.json()
    digest = report.document["model"]["digest"]
    assert any(f.check == "model" and digest[:16] in f.reason for f in report.findings)


@pytest.mark.parametrize(
    "build", [tasks.build_less_momentum, tasks.build_other_data, tasks.build_wider]
)
def test_a_task_that_is_not_the_jobs_is_a_usage_error_and_no_verdict(
    honest: Delivery, build: Any
) -> None:
    with pytest.raises(potl.JobMismatch):
        honest.verify(task=build)


def test_arguments_may_be_files(honest: Delivery) -> None:
    honest.job.write(honest.folder / "job.json")
    honest.commitment.write(honest.folder / "commitment")
    report = honest.verify(job=honest.folder / "job.json", commitment=honest.folder / "commitment")
    assert report.verdict == "accepted", report.json()


@pytest.mark.parametrize("name", ["job", "commitment"])
def test_a_missing_file_is_a_usage_error(honest: Delivery, name: str) -> None:
    with pytest.raises(potl.UsageError, match=f"no {name} file .*check the path"):
        honest.verify(**{name: honest.folder / "nothing"})


@pytest.mark.parametrize("name", ["job", "commitment"])
def test_a_file_of_something_else_is_named(honest: Delivery, tmp_path: Path, name: str) -> None:
    other = tmp_path / "other.txt"
    other.write_text("Something else.\n")
    with pytest.raises(potl.MalformedError, match=r"other\.txt: .*\("):
        honest.verify(**{name: other})


@pytest.mark.parametrize(
    ("task", "remedy"),
    [
        ("driver_tasks", "write for example trainer:build"),
        ("driver_tasks.py:build", "write driver_tasks:build, without .py"),
        ("driver_tasks:buidl", "name a function of .*driver_tasks.py"),
    ],
)
def test_a_task_that_is_not_found_has_a_remedy(honest: Delivery, task: str, remedy: str) -> None:
    with pytest.raises(potl.UsageError, match=rf"\({remedy}"):
        honest.verify(task=task)


def test_a_commitment_that_is_no_note_is_malformed(honest: Delivery) -> None:
    with pytest.raises(potl.MalformedError):
        honest.verify(commitment="not\na note\n")


def test_a_missing_run_directory_is_a_usage_error(honest: Delivery) -> None:
    with pytest.raises(potl.UsageError, match="no run directory"):
        potl.verify(honest.folder / "nothing", job=honest.job)


def test_a_task_in_the_place_of_the_run_is_told_where_the_run_belongs(tmp_path: Path) -> None:
    build: Any = lambda: None  # noqa: E731
    with pytest.raises(potl.UsageError, match="run first, and the task as task="):
        potl.rederive(build, task=tmp_path)


# ---------------------------------------------------------------------- the verifier's own troubles


@pytest.mark.parametrize(
    "error",
    [MemoryError(), OSError("disk"), TimeoutError(), RuntimeError("no operator"), KeyError(3)],
)
def test_an_error_in_the_verifiers_step_is_inconclusive(
    honest: Delivery, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*arguments: Any, **options: Any) -> Any:
        raise error

    monkeypatch.setattr(_session.Session, "run_step", fail)
    report = honest.verify()
    assert report.verdict == "inconclusive", report.json()
    assert report.exit_code == 3
    assert type(error).__name__ in report.json()
    with pytest.raises(potl.Inconclusive):
        report.raise_for_verdict()


def test_a_replay_that_takes_too_long_is_inconclusive(honest: Delivery) -> None:
    report = honest.verify(timeout=1e-9)
    assert report.verdict == "inconclusive"
    assert "time limit" in report.json()


@pytest.mark.parametrize("timeout", [0.0, -1.0, float("nan")])
def test_a_time_limit_that_is_none_is_a_usage_error(honest: Delivery, timeout: float) -> None:
    with pytest.raises(potl.UsageError, match="timeout"):
        honest.verify(timeout=timeout)


def test_no_policy_accepts_without_a_random_segment(honest: Delivery) -> None:
    with pytest.raises(potl.UsageError, match="min_random_segments"):
        honest.verify(checks=[potl.Replay(samples=0)], policy=potl.Policy(min_random_segments=0))


def test_a_commitment_far_longer_than_a_note_is_not_read_whole(
    honest: Delivery, tmp_path: Path
) -> None:
    long = tmp_path / "note"
    with long.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(potl.LimitError, match="longer"):
        honest.verify(commitment=long)


def test_a_second_commitment_with_another_key_is_inconclusive_where_no_key_is_pinned(
    honest: Delivery, tmp_path: Path
) -> None:
    again = potl.record(honest.build, tmp_path / "again", job=honest.job, key=tmp_path / "k.pem")
    report = honest.verify(other_commitments=[str(again.commit())])
    assert report.verdict == "inconclusive", report.json()
    assert "pins no key" in report.sentence


def test_a_commitment_that_was_shown_and_is_left_out_is_no_second_one(
    honest: Delivery, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger.json"
    assert honest.verify(ledger=ledger).verdict == "accepted"
    report = honest.verify(ledger=ledger, commitment=None)
    assert report.verdict == "inconclusive", report.json()
    assert "no valid commitment" in report.sentence
    again = potl.record(honest.build, tmp_path / "again", job=honest.job, key=honest.key)
    two = [str(honest.commitment), str(again.commit())]
    report = honest.verify(commitment=None, other_commitments=two)
    assert "two different commitments" in report.sentence


def test_a_read_error_is_inconclusive(honest: Delivery, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Any, state: Any, step: int) -> None:
        raise potl.StorageError("Input/output error")

    monkeypatch.setattr(_workload.Workload, "load_state", fail)
    assert honest.verify().verdict == "inconclusive"


def test_a_checkpoint_beyond_the_limit_is_inconclusive(honest: Delivery) -> None:
    report = honest.verify(max_checkpoint_bytes=64)
    assert report.verdict == "inconclusive", report.json()
    assert "max_checkpoint_bytes" in report.json()
    with pytest.raises(potl.UsageError, match="max_checkpoint_bytes"):
        honest.verify(max_checkpoint_bytes=-1)


def test_without_a_task_a_limit_holds_that_nobody_set(
    honest: Delivery, monkeypatch: pytest.MonkeyPatch
) -> None:
    beyond = "where at most 64 are accepted"
    assert beyond not in honest.verify(task=None).json()
    monkeypatch.setattr(importlib.import_module("potl._verify._verify"), "_WITHOUT_TASK", 64)
    report = honest.verify(task=None)
    assert report.verdict == "inconclusive"
    assert beyond in report.json()
    assert beyond not in honest.verify().json()


def test_workers_keep_to_the_limit_too(honest: Delivery) -> None:
    note = str(honest.commitment)
    evidence = potl._core.Evidence.open(str(honest.run.path), job=honest.job.core, commitment=note)
    setup = _worker.Setup.of(
        Place.of(honest.run.path),
        evidence,
        note=note,
        task="driver_tasks:build",
        timeout=None,
        state_bytes=0,
        max_checkpoint_bytes=64,
        derive=False,
    )
    answer = _worker.fulfil(setup, potl._core.SegmentRequest(start=0, end=4))
    assert answer.status == "verifier_error"
    assert "at most 64 are accepted" in answer.message


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_interrupts_propagate_and_are_no_findings(
    honest: Delivery, monkeypatch: pytest.MonkeyPatch, interrupt: type[BaseException]
) -> None:
    def fail(*arguments: Any, **options: Any) -> Any:
        raise interrupt

    monkeypatch.setattr(_session.Session, "run_step", fail)
    with pytest.raises(interrupt):
        honest.verify()


# ---------------------------------------------------------------------- what the prover did


def test_a_withheld_checkpoint_is_rejected(honest: Delivery, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(honest.run.path, copy)
    for step in range(4, 24, 4):
        (copy / "checkpoints" / f"step-{step}.safetensors").unlink()
    report = potl.verify(
        copy,
        job=honest.job,
        commitment=honest.commitment,
        task=tasks.build,
        checks=CHECKS,
        ledger=None,
    )
    assert report.verdict == "rejected"
    assert any(f.rule == "transcript.withheld" and f.result == "reject" for f in report.findings)
    with pytest.raises(potl.Rejected):
        report.raise_for_verdict()


def test_another_recipe_is_rejected(honest: Delivery, tmp_path: Path) -> None:
    run = potl.record(tasks.build_less_momentum, tmp_path / "run", job=honest.job, check_job=False)
    report = potl.verify(
        run, job=honest.job, commitment=run.commit(), task=tasks.build, checks=CHECKS, ledger=None
    )
    assert report.verdict == "rejected"
    assert report.exit_code == 1


# ---------------------------------------------------------------------- memory of a job


def test_earlier_challenges_are_repeated(honest: Delivery, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.json"
    seen: set[tuple[int, int]] = set()
    for number in range(1, 4):
        checks = [potl.Replay(samples=1)]
        report = honest.verify(
            ledger=ledger,
            checks=checks,
            policy=potl.Policy(probability=0),
            nonce=bytes([number] * 32),
        )
        replayed = {(r["start"], r["end"]) for r in report.document["replays"]}
        assert seen <= replayed
        seen |= replayed
        (replay,) = report.document["checks"]
        assert [draw[:2] for draw in replay["options"]["repeat"]] == ["01", "02"][: number - 1]
    assert report.verdict == "accepted", report.json()
    assert len(json.loads(ledger.read_text())["challenges"]) == 3


def test_a_second_commitment_for_a_job_is_rejected(honest: Delivery, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.json"
    assert honest.verify(ledger=ledger).verdict == "accepted"
    again = potl.record(tasks.build, tmp_path / "run", job=honest.job, key=honest.key)
    report = potl.verify(
        again,
        job=honest.job,
        commitment=again.commit(),
        task=tasks.build,
        checks=CHECKS,
        ledger=ledger,
    )
    assert report.verdict == "rejected"
    assert any(f.rule == "transcript.history" and f.result == "reject" for f in report.findings)


def test_a_published_note_that_the_commitment_does_not_extend_rejects(
    honest: Delivery, tmp_path: Path
) -> None:
    other = potl.record(tasks.build, tmp_path / "run", job=honest.job, key=honest.key)
    report = honest.verify(published=[str(other.commit())])
    assert report.verdict == "rejected"
    assert any(f.rule == "transcript.history" and f.result == "reject" for f in report.findings)
    assert honest.verify(published=[str(honest.commitment)]).verdict == "accepted"


@pytest.mark.parametrize("name", ["published", "other_commitments"])
def test_notes_are_passed_like_commitments(
    honest: Delivery, tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    file = tmp_path_factory.mktemp("note") / "note.txt"
    honest.commitment.write(file)
    for note in (honest.commitment, file, str(file)):
        assert honest.verify(**{name: [note]}).verdict == "accepted"
        with pytest.raises(potl.UsageError, match=f"{name}= takes several notes"):
            honest.verify(**{name: note})


def test_a_ledger_belongs_to_a_job(honest: Delivery, tmp_path: Path) -> None:
    with pytest.raises(potl.UsageError, match="ledger"):
        honest.verify(job=None, ledger=tmp_path / "ledger.json")


def test_the_command_that_repeats_a_report_asks_what_was_asked_now(
    honest: Delivery, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger.json"
    options = {"ledger": ledger, "policy": potl.Policy(probability=0)}
    honest.verify(checks=[potl.PEV(fraction=0.75)], **options)
    report = honest.verify(checks=[potl.Replay(samples=1)], **options)
    assert {one["check"] for one in report.document["checks"]} == {"replay", "pev"}
    # The ledger brings the earlier ones.
    assert "pev" not in report.document["reproduce"]


def test_the_challenge_is_remembered_even_when_verification_is_aborted(
    honest: Delivery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any, **options: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(_session.Session, "run_step", fail)
    with pytest.raises(KeyboardInterrupt):
        honest.verify(ledger=tmp_path / "ledger.json")
    assert len(json.loads((tmp_path / "ledger.json").read_text())["challenges"]) == 1


def test_a_question_that_cannot_be_asked_is_not_asked_again(
    honest: Delivery, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger.json"
    with pytest.raises(potl.UsageError, match="samples"):
        honest.verify(ledger=ledger, checks=[potl.Replay(samples=-1)])
    assert honest.verify(ledger=ledger).verdict == "accepted"


def test_a_delivered_file_that_is_not_there_costs_no_replay(
    honest: Delivery, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger.json"
    with pytest.raises(potl.UsageError, match="there is no model file"):
        honest.verify(ledger=ledger, model=tmp_path / "mistyped.safetensors")
    assert not ledger.exists()


# ---------------------------------------------------------------------- worker processes


def test_worker_processes_find_what_this_process_finds(honest: Delivery) -> None:
    nonce = bytes([5] * 32)
    here = honest.verify(nonce=nonce)
    there = honest.verify(nonce=nonce, workers=2)

    def told(report: potl.Report) -> list[tuple[str, str, str]]:
        return [(f.check, f.rule, f.result) for f in report.findings]

    assert there.verdict == "accepted", there.json()
    assert told(there) == told(here)


def test_a_task_that_workers_cannot_import_is_refused(honest: Delivery) -> None:
    with pytest.raises(potl.UsageError, match="module:build"):
        honest.verify(task=lambda: tasks.build(), workers=2)


def test_workers_that_die_make_the_verdict_inconclusive(tmp_path: Path) -> None:
    delivery = Delivery(tmp_path, tasks.build_in_parent_only)
    report = delivery.verify(task="driver_tasks:build_in_parent_only", workers=1)
    assert report.verdict == "inconclusive"
    assert report.exit_code == 3


def test_a_run_that_is_still_recorded_accuses_nobody(tmp_path: Path) -> None:
    job = potl.Job.create(tasks.build, seed=7, checkpoint_every=4)
    with potl.Prover(tasks.build, tmp_path / "run", job=job) as prover:
        for step in prover.steps():
            if step.number == 6:
                break
    report = potl.verify(tmp_path / "run", job=job, task=tasks.build, ledger=None)
    assert report.verdict == "inconclusive"
    assert "no stored state" in " ".join(f.reason for f in report.findings if f.check == "model")
