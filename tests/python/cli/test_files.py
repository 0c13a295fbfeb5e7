# SPDX-License-Identifier: Apache-2.0
"""Commands that work on files: keygen, prune."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
import typer

from potl import _core
from potl._cli import _cli
from potl._cli._files import parse_size


def test_keygen_writes_a_private_key_that_only_the_owner_reads(tmp_path: Path) -> None:
    assert _cli.run(["keygen", str(tmp_path / "trainer")]) == 0
    private = tmp_path / "trainer.pem"
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    key = _core.SigningKey.from_pem(private.read_text())
    public = _core.PublicKey.from_pem((tmp_path / "trainer.pub").read_text())
    assert key.public_key.raw == public.raw


@pytest.mark.parametrize("existing", ["trainer.pem", "trainer.pub"])
def test_keygen_never_replaces_a_file(
    tmp_path: Path, existing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / existing).write_text("mine")
    assert _cli.run(["keygen", str(tmp_path / "trainer")]) == 2
    assert (tmp_path / existing).read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 1


def test_of_a_pair_that_is_not_written_whole_nothing_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def full(source: Path, target: Path) -> None:
        if target.suffix == ".pub":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        link(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", full)
        assert _cli.run(["keygen", str(tmp_path / "trainer")]) == 3
    assert not list(tmp_path.iterdir())
    assert _cli.run(["keygen", str(tmp_path / "trainer")]) == 0


def test_keygen_takes_the_name_with_or_without_its_suffix(tmp_path: Path) -> None:
    assert _cli.run(["keygen", str(tmp_path / "a.b.pem")]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"a.b.pem", "a.b.pub"}


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096", 4096),
        ("500MB", 500_000_000),
        ("2GiB", 2 << 30),
        ("1.5k", 1500),
        ("0", 0),
        ("3 tib", 3 << 40),
    ],
)
def test_a_size_is_read(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "-1", "many", "1e9", "2iB", "1 GB 2", "1_000"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        parse_size(text)


def planned(run: Path, monkeypatch: pytest.MonkeyPatch, *, remove: list[str]) -> None:
    def plan(directory: str, *, max_bytes: int, archive: bool = False) -> dict[str, Any]:
        return {"remove": remove, "keep": [], "bytes": 0, "segment": 20}

    monkeypatch.setattr(_core, "prune_plan", plan, raising=False)
    (run / "checkpoints").mkdir(parents=True)
    (run / "checkpoints" / "step-10.safetensors").write_bytes(b"x")
    (run / "transcript.log").touch()


def test_prune_removes_what_the_plan_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    planned(tmp_path, monkeypatch, remove=["checkpoints/step-10.safetensors"])
    assert _cli.run(["prune", str(tmp_path), "--max-bytes", "1k", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["removed"] is True
    assert list((tmp_path / "checkpoints").iterdir()) == []


def test_a_dry_run_removes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned(tmp_path, monkeypatch, remove=["checkpoints/step-10.safetensors"])
    assert _cli.run(["prune", str(tmp_path), "--max-bytes", "1k", "--dry-run"]) == 0
    assert len(list((tmp_path / "checkpoints").iterdir())) == 1


def test_prune_touches_nothing_outside_of_the_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "precious"
    outside.write_text("mine")
    planned(tmp_path / "run", monkeypatch, remove=["../precious"])
    assert _cli.run(["prune", str(tmp_path / "run"), "--max-bytes", "1k"]) == 3
    assert outside.exists()
