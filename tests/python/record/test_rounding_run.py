# SPDX-License-Identifier: Apache-2.0
"""Rounding logs in a run, against a second implementation of both documents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pure_format as pure
import pure_rounding
import pytest
from places import ROOT
from transcript_helpers import append_step, job_text, key, rejected_by, state_at

import potl
from potl import _core


def log_of(step: int) -> bytes:
    entries = [(step + 97 * i, i % 3 == 0) for i in range(step * 5)]
    return _core.encode_rounding_log(bits=30, values=100_000, entries=entries)


@pytest.fixture
def job() -> _core.Job:
    return _core.Job.parse(job_text(arithmetic="log64"))


def record_open(path: Path, job: _core.Job, *, without: int | None = None) -> _core.Recorder:
    """Resumed after step 5: steps 5 and 6 are recorded in branch 1."""
    recorder = _core.Recorder.create(str(path), job, key(), software="example")
    recorder.append_initial(state_at(0))
    for step in range(1, 6):
        append_step(recorder, job, step, rounding_log=None if step == without else log_of(step))
    recorder.abandon()
    recorder, last, _ = _core.Recorder.resume(str(path), job, key(), software="example")
    for step in range(last + 1, 7):
        append_step(recorder, job, step, rounding_log=log_of(step))
    return recorder


def record_run(path: Path, job: _core.Job, *, without: int | None = None) -> str:
    record_open(path, job, without=without).close()
    return _core.commit_run(str(path), key())


def opened(path: Path, job: _core.Job, commitment: str) -> _core.Evidence:
    return _core.Evidence.open(str(path), job=job, commitment=commitment)


def test_the_second_implementation_reads_every_log_where_the_format_says(
    tmp_path: Path, job: _core.Job
) -> None:
    path = tmp_path / "run"
    commitment = record_run(path, job)
    run = pure.Run.read(path)
    found = list(pure_rounding.logs_of(run))
    assert [(branch, step) for branch, step, _ in found] == [(0, 1), (0, 2), (0, 3), (0, 4), (0, 5),
                                                             (1, 5), (1, 6)]  # fmt: skip
    evidence = opened(path, job, commitment)
    assert rejected_by(evidence.findings()) == set()
    for branch, step, log in found:
        assert log == log_of(step) == evidence.load_rounding_log(step, branch)
        assert evidence.rounding_digest(step, branch) == pure_rounding.digest(log)
    assert evidence.load_rounding_log(5) == log_of(5)
    run.write()  # what it writes is what it has read
    assert opened(path, job, commitment).rounding_digest(6) == pure_rounding.digest(log_of(6))


@pytest.mark.parametrize("branch", [0, 1])
def test_a_run_that_lost_rounding_logs_is_not_gone_on_with(
    tmp_path: Path, job: _core.Job, branch: int
) -> None:
    path = tmp_path / "run"
    record_open(path, job).abandon()
    log = path / f"rounding/branch-{branch}.log"
    whole = log.read_bytes()
    log.write_bytes(whole[:100])
    with pytest.raises(potl.MissingError, match=f"branch-{branch}.log ends before"):
        _core.Recorder.resume(str(path), job, key(), software="example")
    log.write_bytes(whole)
    _core.Recorder.resume(str(path), job, key(), software="example")[0].close()


def test_rounding_logs_are_encoded_as_documented() -> None:
    for step in range(1, 40):
        log = log_of(step)
        bits, values, entries = pure_rounding.decode(log)
        assert _core.decode_rounding_log(log) == {
            "bits": bits,
            "values": values,
            "entries": entries,
        }
        assert pure_rounding.encode(bits, values, entries) == log
        assert pure_rounding.digest(log) == _core.rounding_log_digest(log)
    example = pure_rounding.encode(32, 1000, [(5, True), (900, False)])
    document = (ROOT / "docs/format/rounding_log.md").read_text()
    assert f"`{example.hex()}`" in document
    assert f"`{pure_rounding.digest(example).hex()}`" in document


def test_a_step_without_a_log_is_rejected_whatever_is_brought_later(
    tmp_path: Path, job: _core.Job
) -> None:
    path = tmp_path / "run"
    evidence = opened(path, job, record_run(path, job, without=3))
    assert rejected_by(evidence.findings()) == {"transcript.rounding"}
    assert evidence.rounding_digest(3) is None
    with pytest.raises(_core.MissingError):
        evidence.load_rounding_log(3)


def test_a_flipped_bit_in_a_kept_log_is_not_what_the_leaf_binds(
    tmp_path: Path, job: _core.Job
) -> None:
    path = tmp_path / "run"
    commitment = record_run(path, job)
    kept = path / "rounding" / "branch-0.log"
    data = bytearray(kept.read_bytes())
    data[25] ^= 4
    kept.write_bytes(data)
    evidence = opened(path, job, commitment)
    with pytest.raises(_core.MismatchError):
        evidence.load_rounding_log(1)
    assert evidence.load_rounding_log(2) == log_of(2)


def test_inspection_shows_rounding_logs(tmp_path: Path, job: _core.Job) -> None:
    from potl._record._inspect import show

    path = tmp_path / "run"
    record_run(path, job)
    facts: dict[str, Any] = _core.inspect_run(str(path))
    assert facts["rounding_logs"] == 7
    files = (path / "rounding").iterdir()
    assert facts["rounding_bytes"] == sum(one.stat().st_size for one in files)
    rich = pytest.importorskip("rich.console")
    console = rich.Console(record=True, width=100)
    show(facts, console)
    assert "rounding" in console.export_text()
