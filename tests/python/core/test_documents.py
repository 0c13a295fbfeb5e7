# SPDX-License-Identifier: Apache-2.0
"""The dictionaries of potl._core have the members that its stubs declare."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from transcript_helpers import job_text, long_job, record_run

import potl
from potl import _core


@pytest.fixture(scope="module")
def declared() -> dict[str, tuple[set[str], set[str]]]:
    """Members of each dictionary: those that it always has, and all."""
    stub = ast.parse(Path(str(potl.__file__)).with_name("_core_documents.pyi").read_text())
    out: dict[str, tuple[set[str], set[str]]] = {"TypedDict": (set(), set())}
    for node in stub.body:
        if isinstance(node, ast.ClassDef):
            always, every = out[ast.unparse(node.bases[0])]
            own = {
                one.target.id
                for one in node.body
                if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
            }
            out[node.name] = always | (set() if node.keywords else own), every | own
    return out


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Mapping[str, object]]:
    """One of each."""
    run = tmp_path_factory.mktemp("documents") / "run"
    job = long_job(8, checkpoint_every=2, max_segment=2)
    record_run(run, job, resume_after=5)
    evidence = _core.Evidence.open(str(run), job=job, commitment=None)
    gappy = tmp_path_factory.mktemp("gappy") / "run"
    record_run(gappy, job)
    for middle in (gappy / "checkpoints").glob("*4*"):
        middle.unlink()
    facts, seen = _core.inspect_run(str(run)), _core.inspect_run(str(gappy))
    fields = job.fields()
    rates = fields["learning_rates"]
    assert rates is not None
    log, audit = step_log_and_audit()
    return {
        "JobDocument": fields,
        "JobData": fields["data"],
        "JobInitialState": fields["initial_state"],
        "JobRates": rates[0],
        "JobLimits": fields["limits"],
        "StepColumns": evidence.steps(),
        "SupersededRange": evidence.superseded()[0],
        "StoredCheckpoint": evidence.checkpoints()[0],
        "RunFacts": facts,
        "StoredFile": facts["checkpoints"][0],
        "ResumeRange": facts["resumes"][0],
        "PrunePlan": _core.prune_plan(str(run), max_bytes=1 << 30),
        "StoragePlan": _core.storage_plan(
            steps=1000, step_seconds=1.0, state_bytes=1e6, budget_bytes=1e9
        ),
        "BuildInfo": _core.build_info(),
        "CheckField": _core.check_fields("replay")[0],
        "StepLog": log,
        "StepAudit": audit,
        "LogRejection": audit["rejections"][0],
        "DecodedLog": _core.decode_rounding_log(
            _core.encode_rounding_log(bits=32, values=3, entries=[(1, True)])
        ),
        "Threshold": _core.search_threshold(np.ones(4), np.ones(4), bits=32),
        "StepGap": seen["gaps"][0],
    }


def step_log_and_audit() -> tuple[_core.StepLog, _core.StepAudit]:
    """Of a trainer, and of an auditor that gets another log than was committed."""
    a, b = np.ones((2, 2), np.float32), np.ones((2, 2), np.float32)
    trainer, auditor = _core.RoundingSession("trainer"), _core.RoundingSession("auditor")
    trainer.begin_step(1)
    trainer.multiply("matmul", a, b, np.empty_like(a))
    log = trainer.end_step()
    auditor.begin_step(1, log=log["bytes"], committed=bytes(32))
    auditor.multiply("matmul", a, b, np.empty_like(a))
    return log, auditor.end_audit()


def test_dictionaries_have_the_members_that_the_stub_declares(
    declared: dict[str, tuple[set[str], set[str]]], made: dict[str, Mapping[str, object]]
) -> None:
    for name, values in made.items():
        always, every = declared[name]
        assert always <= set(values) <= every, name


def test_a_job_has_no_other_members(declared: dict[str, tuple[set[str], set[str]]]) -> None:
    _, every = declared["JobDocument"]
    optional = {"order": {"samples": 10, "steps": "00" * 32}, "store_every": 4}
    full = _core.Job.parse(job_text(**optional, arithmetic="ord32")).fields()
    assert set(full) == every
    with pytest.raises(potl.MalformedError):
        _core.Job.parse(job_text(other=1))


def test_a_report_takes_no_other_context(declared: dict[str, tuple[set[str], set[str]]]) -> None:
    _, every = declared["ReportContext"]
    for name in every:
        with pytest.raises(potl.UsageError, match=f'"{name}" has the wrong type'):
            _core.conclude(None, [], policy={}, context={name: None})  # type: ignore[misc]
    with pytest.raises(potl.UsageError, match="context"):
        _core.conclude(None, [], policy={}, context={"other": 1})  # type: ignore[typeddict-unknown-key]
