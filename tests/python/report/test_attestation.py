# SPDX-License-Identifier: Apache-2.0
"""Signed reports: who trusts the verifier needs no run, no task and no torch."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import driver_tasks as tasks
import pytest
from cryptography.hazmat.primitives.serialization import load_pem_public_key

import potl
from potl._cli import _cli


class Verified:
    """A run that was verified with its delivered model."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.job = potl.Job.create(tasks.build, seed=3, checkpoint_every=4)
        self.job.write(folder / "job.json")
        run = potl.record(tasks.build, folder / "run", job=self.job)
        self.note = run.commit()
        self.note.write(folder / "note.txt")
        self.model = folder / "delivered.safetensors"
        run.export(self.model)
        assert _cli.run(["keygen", str(folder / "verifier")]) == 0
        self.key, self.public = folder / "verifier.pem", folder / "verifier.pub"
        self.report = potl.verify(
            run,
            job=self.job,
            commitment=self.note,
            task=tasks.build,
            model=self.model,
            checks=[potl.Replay(samples=2)],
            policy=potl.Policy(probability=0),
            ledger=None,
        )
        self.path = folder / "attestation.json"
        self.report.attest(self.path, key=self.key)


@pytest.fixture(scope="module")
def verified(tmp_path_factory: pytest.TempPathFactory) -> Verified:
    return Verified(tmp_path_factory.mktemp("verified"))


def test_a_third_party_reads_what_the_verifier_signed(verified: Verified) -> None:
    assert verified.report.verdict == "accepted"
    got = potl.Attestation.read(
        verified.path,
        key=verified.public,
        model=verified.model,
        job=verified.job,
        commitment=verified.note,
    )
    assert got.report.json() == verified.report.json()
    assert got.compared == ("model", "job", "commitment")
    assert got.signed_at.tzinfo is not None
    as_files = potl.Attestation.read(
        verified.path,
        key=verified.public,
        job=verified.folder / "job.json",
        commitment=verified.folder / "note.txt",
    )
    assert as_files.signer == got.signer and as_files.compared == ("job", "commitment")


def test_it_is_an_in_toto_statement_that_others_verify(verified: Verified) -> None:
    envelope = json.loads(verified.path.read_bytes())
    payload = base64.b64decode(envelope["payload"], validate=True)
    kind = envelope["payloadType"].encode()
    signed = b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)
    key: Any = load_pem_public_key(verified.public.read_bytes())
    key.verify(base64.b64decode(envelope["signatures"][0]["sig"]), signed)
    statement = json.loads(payload)
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    digest = hashlib.sha256(verified.model.read_bytes()).hexdigest()
    assert statement["subject"][0] == {"name": "model", "digest": {"sha256": digest}}
    assert statement["predicate"]["report"] == json.loads(verified.report.json())


def test_another_model_job_commitment_or_key_is_refused(verified: Verified, tmp_path: Path) -> None:
    read: Callable[..., potl.Attestation] = potl.Attestation.read
    changed = tmp_path / "changed.safetensors"
    raw = bytearray(verified.model.read_bytes())
    raw[-1] ^= 1
    changed.write_bytes(raw)
    with pytest.raises(potl.MismatchError, match="another delivered model"):
        read(verified.path, key=verified.public, model=changed)
    job = potl.Job.create(tasks.build, seed=4, checkpoint_every=4)
    with pytest.raises(potl.MismatchError, match="another job"):
        read(verified.path, key=verified.public, job=job)
    note = potl.record(tasks.build, tmp_path / "again", job=verified.job).commit()
    with pytest.raises(potl.MismatchError, match="another commitment"):
        read(verified.path, key=verified.public, commitment=note)
    assert _cli.run(["keygen", str(tmp_path / "stranger")]) == 0
    with pytest.raises(potl.MismatchError, match="not signed by this key"):
        read(verified.path, key=tmp_path / "stranger.pub", model=verified.model)
    with pytest.raises(potl.UsageError, match="nothing to compare"):
        read(verified.path, key=verified.public)


def test_the_trainer_of_the_job_is_no_verifier(verified: Verified, tmp_path: Path) -> None:
    assert _cli.run(["keygen", str(tmp_path / "trainer")]) == 0
    key, public = tmp_path / "trainer.pem", tmp_path / "trainer.pub"
    job = potl.Job.create(tasks.build, seed=3, checkpoint_every=4, trainer=public)
    document = json.loads(verified.report.json())
    path = tmp_path / "attestation.json"
    document["job"] |= {"id": job.id.hex(), "trainer": job.core.trainer.hex()}
    with pytest.raises(potl.UsageError, match="the run's trainer"):
        potl.Report(json.dumps(document).encode()).attest(path, key=key)
    document["job"]["trainer"] = None
    potl.Report(json.dumps(document).encode()).attest(path, key=key)
    with pytest.raises(potl.MismatchError, match="own trainer has signed"):
        potl.Attestation.read(path, key=public, job=job)


def test_a_verdict_that_somebody_changed_is_not_believed(
    verified: Verified, tmp_path: Path
) -> None:
    envelope = json.loads(verified.path.read_bytes())
    statement = json.loads(base64.b64decode(envelope["payload"]))
    statement["predicate"]["report"]["verdict"] = "rejected"
    envelope["payload"] = base64.b64encode(json.dumps(statement).encode()).decode()
    forged = tmp_path / "forged.json"
    forged.write_text(json.dumps(envelope))
    with pytest.raises(potl.MismatchError, match="not signed by this key"):
        potl.Attestation.read(forged, key=verified.public, model=verified.model)
    forged.write_bytes(verified.path.read_bytes()[:-20])
    with pytest.raises(potl.MalformedError, match="not an attestation"):
        potl.Attestation.read(forged, key=verified.public, model=verified.model)


def test_a_rejected_model_is_named_too(verified: Verified, tmp_path: Path) -> None:
    changed = tmp_path / "changed.safetensors"
    raw = bytearray(verified.model.read_bytes())
    raw[-1] ^= 1
    changed.write_bytes(raw)
    report = potl.verify(
        verified.folder / "run",
        job=verified.job,
        commitment=verified.note,
        model=changed,
        ledger=None,
    )
    assert report.verdict == "rejected"
    report.attest(tmp_path / "attestation.json", key=verified.key)
    got = potl.Attestation.read(tmp_path / "attestation.json", key=verified.public, model=changed)
    assert got.report.verdict == "rejected"


def test_what_no_model_was_delivered_for_says_nothing_of_one(
    verified: Verified, tmp_path: Path
) -> None:
    document = copy.deepcopy(verified.report.document)
    document["model"] = {"digest": None, "delivered": False}
    path = tmp_path / "attestation.json"
    potl.Report(json.dumps(document).encode()).attest(path, key=verified.key)
    with pytest.raises(potl.MissingError, match="about no delivered model") as refused:
        potl.Attestation.read(path, key=verified.public, model=verified.model)
    assert "of a spot-check, compare the job" in refused.value.remedy
    assert potl.Attestation.read(path, key=verified.public, job=verified.job).compared == ("job",)


def test_a_report_without_a_run_is_not_signed(verified: Verified, tmp_path: Path) -> None:
    document: dict[str, Any] = dict(verified.report.document)
    del document["job"]
    with pytest.raises(potl.UsageError, match="no run that could be opened"):
        potl.Report(json.dumps(document).encode()).attest(tmp_path / "a.json", key=verified.key)
    with pytest.raises(potl.UsageError, match="is not replaced"):
        verified.report.attest(verified.path, key=verified.key)
    with pytest.raises(potl.UsageError, match="there is no key"):
        verified.report.attest(tmp_path / "a.json", key=tmp_path / "none.pem")
    assert not (tmp_path / "a.json").exists()


def test_the_same_by_command_lines(
    verified: Verified, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report, out = tmp_path / "report.json", tmp_path / "attestation.json"
    verified.report.write(report)
    assert _cli.run(["attestation", "sign", str(report), str(out), "--key", str(verified.key)]) == 0
    capsys.readouterr()
    check = ["attestation", "check", str(out), "--key", str(verified.public)]
    assert _cli.run(check) == 2
    assert "name the model, the job or the commitment" in capsys.readouterr().err
    page = tmp_path / "report.html"
    assert _cli.run([*check, "--model", str(verified.model), "--html", str(page)]) == 0
    shown = capsys.readouterr().out
    assert "About your model" in shown and "Not compared: job, commitment" in shown
    assert "<html" in page.read_text()
    job = str(verified.folder / "job.json")
    assert _cli.run([*check, "--job", job, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["compared"] == ["job"] and document["report"]["verdict"] == "accepted"
    assert _cli.run([*check, "--model", str(report)]) == 4
    assert "another delivered model" in capsys.readouterr().err


@pytest.mark.parametrize(
    "never", ["2026-02-30T00:00:00Z", "0000-01-01T00:00:00Z", "2026-12-31T23:59:60Z"]
)
def test_a_moment_that_never_was_is_no_time_of_signing(verified: Verified, never: str) -> None:
    key = potl._core.SigningKey.from_pem(verified.key.read_text())
    with pytest.raises(potl.UsageError, match="time of signing"):
        potl._core.sign_attestation(verified.report.json().encode(), key, signed_at=never)
