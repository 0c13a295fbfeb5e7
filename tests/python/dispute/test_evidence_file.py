# SPDX-License-Identifier: Apache-2.0
"""The file of a dispute takes the place of no other, and a full disk takes no verdict away."""

from __future__ import annotations

import base64
import json
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import potl
from potl import _core
from potl._cli import _cli, _dispute
from potl._dispute._evidence import DisputeEvidence, _facts_in
from potl._dispute._table import Store

pytest.importorskip("torch", reason="disputes need torch")


@pytest.fixture
def evidence() -> DisputeEvidence:
    keys = {
        name: _core.SigningKey.generate().public_key.to_pem()
        for name in ("trainer", "auditor", "referee")
    }
    return DisputeEvidence(bytes(32), keys, "a line\n")


def test_where_evidence_finds_no_place_is_known_before_the_dispute(
    evidence: DisputeEvidence, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Hours later it would have been lost, or have taken the place of the client's own job."""
    job = tmp_path / "job.json"
    job.write_text("agreed")
    words = ["dispute", "--trainer", "none", "--auditor", "none", "--task", "none:none"]
    for place, why in {
        "missing/evidence.json": "no folder",
        "job.json": "no evidence of a dispute",
        ".": "no evidence of a dispute",
    }.items():
        given = [*words, "--job", str(job), "--evidence", str(tmp_path / place)]
        assert _cli.run(given) == 2
        assert why in capsys.readouterr().err
    assert job.read_text() == "agreed"
    DisputeEvidence._require_place(tmp_path / "evidence.json")
    evidence.write(tmp_path / "evidence.json")
    DisputeEvidence._require_place(tmp_path / "evidence.json")  # of the dispute that goes on


@pytest.mark.parametrize("held", [b'{"format":"potl-job-v1"}', b"a note\nof\nmine", b"\n", b"{}"])
def test_a_transcript_takes_the_place_of_nothing_else(held: bytes, tmp_path: Path) -> None:
    """What is no line was taken for the rest of a crash, and cut off."""
    path = tmp_path / "job.json"
    path.write_bytes(held)
    with pytest.raises(potl.MalformedError, match="no transcript"):
        Store(path)
    assert path.read_bytes() == held


@pytest.mark.parametrize("rest", [b"", b"{", b'{"at":17', b"\0\0\0\0\0\0\0\0", b'{"a\0\0\0\0'])
def test_what_a_crash_left_of_a_first_line_is_cut_off(rest: bytes, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(rest)
    store = Store(path)
    assert store.text == ""
    store.close()
    assert path.read_bytes() == b""


def test_a_verdict_is_read_where_its_evidence_finds_no_room(
    evidence: DisputeEvidence,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def full(path: str, data: bytes) -> None:
        raise potl.StorageError(f"cannot write {path}: No space left on device", "")

    monkeypatch.setattr(_core, "write_file", full)
    verdict: Any = SimpleNamespace(evidence=evidence, lines=lambda: ["the auditor is right"])
    with pytest.raises(potl.StorageError):
        _dispute._kept(verdict, tmp_path / "evidence.json")
    assert "the auditor is right" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["keys", "transcript"])
def test_a_file_of_many_values_takes_no_more_memory_than_text(
    place: str, evidence: DisputeEvidence, tmp_path: Path
) -> None:
    """Of tiny ones, 256 MiB would be several gigabytes."""
    path, many = tmp_path / "evidence.json", "[" + "0," * (4 << 20) + "0]"
    evidence.write(path)
    assert DisputeEvidence.read(path) == evidence
    document = json.loads(path.read_text())
    if place == "keys":
        document["keys"]["auditor"] = 0
    else:
        document["transcript"] = 0
    text = json.dumps(document, separators=(",", ":"), sort_keys=True)
    name = "auditor" if place == "keys" else "transcript"
    text = text.replace(f'"{name}":0', f'"{name}":{many}')
    path.write_text(text)
    tracemalloc.start()
    try:
        with pytest.raises(potl.MalformedError):
            DisputeEvidence.read(path)
        assert tracemalloc.get_traced_memory()[1] < 5 * len(text)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("is_ruling", [False, True])
def test_a_last_line_of_many_values_takes_no_more_memory_than_text(is_ruling: bool) -> None:
    """It is parsed before any signature is checked, and so is what a ruling saw, in base64."""
    line = "[" + "{}," * (2 << 20) + "{}]"
    if is_ruling:
        line = json.dumps({"entry": {"evidence": base64.b64encode(line.encode()).decode()}})
    tracemalloc.start()
    try:
        assert _facts_in(line) == {}
        assert tracemalloc.get_traced_memory()[1] < 5 * len(line)
    finally:
        tracemalloc.stop()
