# SPDX-License-Identifier: Apache-2.0
"""A run on storage is verified through fsspec, as one on a disk."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from serving import Recorded
from transcript_helpers import rejected_by

import potl

fsspec = pytest.importorskip("fsspec")


@pytest.fixture
def memory(recorded: Recorded) -> Iterator[Any]:
    files = fsspec.filesystem("memory")
    files.put(str(recorded.run), "/bucket/run", recursive=True)
    yield files
    files.rm("/bucket", recursive=True)


def test_a_run_on_storage_is_verified(recorded: Recorded, memory: Any) -> None:
    for name in ("memory://bucket/run", "memory://bucket/run/"):
        assert recorded.verify(name).verdict == "accepted"


def test_what_is_not_drawn_is_not_read(
    recorded: Recorded, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    cat = type(memory).cat_file

    def watched(self: Any, path: str, **place: Any) -> bytes:
        read.append(path.rpartition("/")[2])
        piece: bytes = cat(self, path, **place)
        return piece

    monkeypatch.setattr(type(memory), "cat_file", watched)
    checks = [potl.Replay(samples=1, top_q=0, reach=0)]
    assert recorded.verify("memory://bucket/run", checks=checks).verdict == "accepted"
    assert read.count("transcript.log") == 1
    states = [name for name in read if name.startswith("step-")]
    assert len(states) == len(set(states)) == 4, states  # where three begin, and the last


def test_a_state_that_is_missing_rejects(recorded: Recorded, memory: Any) -> None:
    memory.rm("/bucket/run/checkpoints/step-4.safetensors")
    report = recorded.verify("memory://bucket/run")
    assert (report.verdict, rejected_by(report.findings)) == ("rejected", {"transcript.withheld"})


@pytest.mark.parametrize("left", [True, False], ids=["the log is there", "nothing is there"])
def test_a_state_that_goes_meanwhile_rejects_only_while_the_log_is_there(
    recorded: Recorded, memory: Any, monkeypatch: pytest.MonkeyPatch, left: bool
) -> None:
    cat = type(memory).cat_file

    def late(self: Any, path: str, **place: Any) -> bytes:
        piece: bytes = cat(self, path, **place)
        if path.endswith("transcript.log"):
            where = "/bucket/run/checkpoints" if left else "/bucket/run"
            memory.rm(where, recursive=True)
            memory.mkdirs("/bucket", exist_ok=True)
        return piece

    monkeypatch.setattr(type(memory), "cat_file", late)
    report = recorded.verify("memory://bucket/run")
    assert report.verdict == ("rejected" if left else "inconclusive"), report.sentence


@pytest.mark.parametrize(
    "error", [OSError("no route"), PermissionError("denied"), TimeoutError(), ValueError("odd")]
)
def test_trouble_with_the_storage_is_no_verdict(
    recorded: Recorded, memory: Any, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    cat = type(memory).cat_file

    def failing(self: Any, path: str, **place: Any) -> bytes:
        if "/checkpoints/" in path:
            raise error
        piece: bytes = cat(self, path, **place)
        return piece

    monkeypatch.setattr(type(memory), "cat_file", failing)
    assert recorded.verify("memory://bucket/run").verdict == "inconclusive"


def test_a_shorter_piece_is_no_verdict(
    recorded: Recorded, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cat = type(memory).cat_file

    def short(self: Any, path: str, **place: Any) -> bytes:
        piece: bytes = cat(self, path, **place)
        return piece[:-1] if "/checkpoints/" in path else piece

    monkeypatch.setattr(type(memory), "cat_file", short)
    assert recorded.verify("memory://bucket/run").verdict == "inconclusive"


def test_a_longer_piece_is_no_verdict_and_not_kept(
    recorded: Recorded, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cat = type(memory).cat_file

    def whole(self: Any, path: str, start: Any = None, end: Any = None, **options: Any) -> bytes:
        piece: bytes = cat(self, path, start=start, end=end, **options)
        return piece + bytes(1000) if "step-4" in path else piece

    monkeypatch.setattr(type(memory), "cat_file", whole)
    report = recorded.verify("memory://bucket/run")
    assert report.verdict == "inconclusive", report.sentence
    assert "more bytes come than were asked for" in report.json()


def test_no_run_and_no_file_system_are_errors(recorded: Recorded) -> None:
    with pytest.raises(potl.MissingError, match=r"transcript\.log"):
        recorded.verify("memory://nothing/here")
    with pytest.raises(potl.UsageError):
        recorded.verify("nosuchthing://bucket/run")
    with pytest.raises(potl.UsageError, match="token"):
        potl.Remote("memory://bucket/run", token="word")


def test_links_on_a_disk_are_not_followed_here_either(recorded: Recorded, tmp_path: Path) -> None:
    run = shutil.copytree(recorded.run, tmp_path / "run")
    state = run / "checkpoints/step-4.safetensors"
    state.rename(tmp_path / "elsewhere")
    state.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(potl.MalformedError, match="link"):
        recorded.verify(f"file://{run}")
