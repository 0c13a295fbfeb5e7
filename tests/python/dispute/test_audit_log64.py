# SPDX-License-Identifier: Apache-2.0
"""Audits in log64 follow the trainer's rounding logs, and name those that do not fit."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import near_ties
import pytest
from disputed import false_build

import potl
from potl import _core

pytest.importorskip("potl._torch", reason="potl was built without torch")

Patch = pytest.MonkeyPatch


@pytest.fixture(scope="module")
def job() -> potl.Job:
    return near_ties.job()


def recorded(folder: Path, job: potl.Job) -> Path:
    potl.record(near_ties.build, folder / "run", job=job).commit()
    return folder / "run"


def audited(run: Path, job: potl.Job, log: Path, **options: Any) -> potl.Audit:
    return potl.audit(run, job=job, task=near_ties.build, log=log, **options)


def test_who_adds_in_another_order_agrees(
    job: potl.Job, tmp_path: Path, monkeypatch: Patch
) -> None:
    with monkeypatch.context() as other:
        near_ties.other_order(other)
        run = recorded(tmp_path, job)
    note = (run / "commitment").read_text()
    found = audited(run, job, tmp_path / "log", commitment=note)
    assert found.agrees is True and found.steps == near_ties.STEPS, found.reason
    # Without the log both ways to add would not end in one model.
    potl.record(near_ties.build, tmp_path / "alone", job=job).commit()
    alone, followed = (
        _core.Evidence.open(str(tmp_path / one), job=None, commitment=None)
        for one in ("alone", "log")
    )
    last = near_ties.STEPS
    assert alone.state_digest(last) != followed.state_digest(last)
    assert audited(run, job, tmp_path / "log").agrees is True


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (near_ties.with_entry, "outside_window"),
        (near_ties.changed, "missing_entry"),
        (near_ties.with_more_values, "wrong_size"),
        (lambda log: near_ties.changed(log, bits=31), "wrong_size"),
        (lambda log: log + b"\0", "malformed"),
        (lambda log: bytes(_core.MAX_ROUNDING_LOG_BYTES), "malformed"),
        (lambda log: None, "not_committed"),
    ],
    ids=["spurious", "left out", "other count", "other bits", "none", "large", "late"],
)
def test_a_log_that_does_not_fit_is_a_difference(
    change: Callable[[bytes], bytes | None],
    fault: str,
    job: potl.Job,
    tmp_path: Path,
    monkeypatch: Patch,
) -> None:
    with monkeypatch.context() as forger:
        near_ties.forge(forger, change, at=5)
        run = recorded(tmp_path, job)
    for whole in (False, True):  # also when it is called again
        found = audited(run, job, tmp_path / "log", to_the_end=whole)
        assert found.agrees is False and found.steps == 4, found.reason
        assert found.difference is not None
        assert (found.difference.step, found.difference.field) == (5, "rounding log")
        assert fault in found.reason
    assert found.commitment is not None
    kept = json.loads((tmp_path / "log" / "rounding_fault.json").read_text())
    assert (kept["step"], kept["fault"], kept["proof"] is not None) == (5, fault, True)
    if fault == "malformed":
        evidence = _core.Evidence.open(str(run), job=None, commitment=None)
        _core.referee_rounding(
            base64.b64decode(kept["proof"]),
            committed=evidence.rounding_digest(5),
            bits=32,
            values=0,
            operands=lambda position: ((), ()),
        )


def test_a_log_that_is_not_there_ends_the_audit(job: potl.Job, tmp_path: Path) -> None:
    run = recorded(tmp_path, job)
    kept = run / "rounding" / "branch-0.log"
    whole = kept.read_bytes()
    evidence = _core.Evidence.open(str(run), job=None, commitment=None)
    place = whole.index(evidence.load_rounding_log(5))
    damaged = bytearray(whole)
    damaged[place + 9] ^= 1
    for data, why in ((damaged, "not the one"), (whole[: place + 9], "not there"), (None, "not")):
        kept.unlink(missing_ok=True)
        if data is not None:
            kept.write_bytes(data)
        found = audited(run, job, tmp_path / "log", to_the_end=True)
        assert found.agrees is False and found.difference is not None
        assert found.difference.field == "rounding log" and why in found.reason
        # The trainer could bring it afterwards, so nobody commits to a step without it.
        assert found.commitment is None and found.steps < 5
    kept.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_bytes(whole)
    with pytest.raises(potl.StorageError, match="links in a run directory"):
        audited(run, job, tmp_path / "log")
    kept.unlink()
    kept.write_bytes(whole)
    assert audited(run, job, tmp_path / "log").agrees is True


def test_a_false_state_is_found_where_it_is(job: potl.Job, tmp_path: Path) -> None:
    false = false_build(near_ties.build, job, 7)
    run = potl.record(false, tmp_path / "run", job=job, check_job=False)
    found = audited(run.path, job, tmp_path / "log", to_the_end=True)
    assert found.difference is not None
    assert (found.difference.step, found.difference.field) == (7, "state")
    # Later logs are those of another training; that is nobody's fault.
    assert found.commitment is not None
    assert not (tmp_path / "log" / "rounding_fault.json").exists()


def test_the_last_record_of_a_step_counts(
    job: potl.Job, tmp_path: Path, monkeypatch: Patch
) -> None:
    """A run that was resumed on a machine that adds in another order."""
    run = tmp_path / "run"
    with potl.Prover(near_ties.build, run, job=job) as prover:
        for step in prover.steps():
            if step.number == 5:
                break
    early = audited(run, job, tmp_path / "early", nonce=bytes([9] * 32))
    assert early.agrees is None and early.steps == 5
    with monkeypatch.context() as other:
        near_ties.other_order(other)
        recorded(tmp_path, job)
    evidence = _core.Evidence.open(str(run), job=None, commitment=None)
    assert evidence.rounding_digest(5, 0) != evidence.rounding_digest(5, 1)
    assert audited(run, job, tmp_path / "log").agrees is True
    # Who heard the first record first cannot tell who is right.
    found = audited(run, job, tmp_path / "early", nonce=bytes([9] * 32))
    assert found.agrees is None and "recorded again with another rounding log" in found.reason
    worked = potl.check_audit(
        tmp_path / "early", run=run, job=job, task=near_ties.build, nonce=bytes([9] * 32)
    )
    assert worked.worked is None and worked.covered < 5, worked.reason
    assert "with another rounding log" in worked.reason


def test_an_interrupted_audit_goes_on(job: potl.Job, tmp_path: Path) -> None:
    run = recorded(tmp_path, job)

    def interrupt(done: int, total: int) -> None:
        if done == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        audited(run, job, tmp_path / "log", progress=interrupt)
    assert audited(run, job, tmp_path / "log").agrees is True


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"step": "5", "sentence": ""}', "[" * 100_000])
def test_what_an_audit_did_not_write_is_malformed(text: str, job: potl.Job, tmp_path: Path) -> None:
    run = recorded(tmp_path, job)
    audited(run, job, tmp_path / "log")
    (tmp_path / "log" / "rounding_fault.json").write_text(text)
    with pytest.raises(potl.MalformedError, match="rounding_fault"):
        audited(run, job, tmp_path / "log")


def test_a_log_that_changes_after_the_audit_is_no_agreement(
    job: potl.Job, tmp_path: Path, monkeypatch: Patch
) -> None:
    """The states of both are the same, and the logs are not."""
    run = recorded(tmp_path, job)
    assert audited(run, job, tmp_path / "log").agrees is True
    shutil.rmtree(run)
    with monkeypatch.context() as forger:
        near_ties.forge(forger, near_ties.with_entry, at=4)
        recorded(tmp_path, job)
    found = audited(run, job, tmp_path / "log")
    assert found.agrees is None and "another rounding log" in found.reason
