# SPDX-License-Identifier: Apache-2.0
"""Where a prover's key comes from."""

import logging
import stat
import subprocess
import sys
from pathlib import Path

import driver_tasks as tasks
import pytest

import potl
from potl import MalformedError, UsageError, _core
from potl._cli import _cli
from potl._record import _keys


def test_a_new_key_is_private_announced_and_has_its_public_half_beside_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "new" / "trainer.pem"
    with caplog.at_level(logging.WARNING, logger="potl"):
        key = _keys.load_or_create(path)
    assert str(path) in caplog.text
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    public = _core.PublicKey.from_pem(path.with_suffix(".pub").read_text())
    assert public == key.public_key


def test_an_existing_key_is_used_silently(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = _keys.load_or_create(tmp_path / "trainer.pem")
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="potl"):
        again = _keys.load_or_create(tmp_path / "trainer.pem")
    assert again.public_key == made.public_key
    assert caplog.text == ""


def test_a_lost_private_key_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "trainer.pub").write_text(_core.SigningKey.generate().public_key.to_pem())
    with pytest.raises(UsageError, match="restore"):
        _keys.load_or_create(tmp_path / "trainer.pem")


def test_a_public_key_does_not_sign(tmp_path: Path) -> None:
    _keys.load_or_create(tmp_path / "trainer.pem")
    with pytest.raises(MalformedError):
        _keys.load_or_create(tmp_path / "trainer.pub")
    with pytest.raises(UsageError, match=r"NAME\.pem"):
        _keys.load_or_create(tmp_path / "other.pub")


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"not a key"])
def test_a_file_that_is_no_key_is_malformed(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "trainer.pem").write_bytes(content)
    with pytest.raises(MalformedError):
        _keys.load_or_create(tmp_path / "trainer.pem")


def test_a_run_without_a_key_keeps_its_own(tmp_path: Path) -> None:
    key = _keys.for_run(None, tmp_path / "run")
    assert stat.S_IMODE((tmp_path / "run" / "key.pem").stat().st_mode) == 0o600
    assert _keys.for_run(None, tmp_path / "run").public_key == key.public_key


def test_a_run_that_was_recorded_gets_no_new_key(tmp_path: Path) -> None:
    wrong = tmp_path / "typo.pem"
    log = tmp_path / "transcript.log"
    log.touch()
    with pytest.raises(UsageError, match=r"no key .*typo\.pem \(.*that recorded"):
        potl.Run(tmp_path, key=wrong).commit()
    with pytest.raises(UsageError, match=r"no key of its own .*--key.*--trainer-key"):
        potl.Run(tmp_path).commit()
    assert list(tmp_path.iterdir()) == [log]


@pytest.mark.parametrize("key", ["typo.pem", None])
def test_a_recording_that_is_resumed_gets_no_new_key(tmp_path: Path, key: str | None) -> None:
    run = tmp_path / "run"
    potl.record(tasks.build, run, seed=7, checkpoint_every=8, key=tmp_path / "key.pem")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match="no key"):
        potl.record(tasks.build, run, job=run / "job.json", key=key and tmp_path / key)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("words", ["commit .", "record driver_tasks:build run --seed 7"])
def test_a_command_makes_no_key_where_a_path_was_mistyped(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("transcript.log").touch()
    words += " --checkpoint-every 8" if words.startswith("record") else ""
    assert _cli.run([*words.split(), "--key", "typo.pem"]) == 2
    assert "there is no key typo.pem (" in capsys.readouterr().err
    assert not (tmp_path / "typo.pem").exists()


def test_a_key_object_is_taken_as_it_is(tmp_path: Path) -> None:
    key = _core.SigningKey.generate()
    assert _keys.for_run(key, tmp_path) is key


def test_a_referee_without_a_state_directory_is_told_to_name_a_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/none")  # nobody can make a folder there
    with pytest.raises(
        potl.StorageError, match=r"key can be neither read nor made: .*--referee-key"
    ):
        _keys.of_referee()


@pytest.mark.parametrize("name", ["referee.lock", "referee.pem"])
def test_a_referee_who_cannot_read_or_write_there_is_told_so_too(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "potl" / name).mkdir(parents=True)  # no file can be opened there
    with pytest.raises(
        potl.StorageError, match=r"key can be neither read nor made: .*--referee-key"
    ):
        _keys.of_referee()


def test_referees_that_begin_at_once_have_one_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one who is first takes its time between looking and writing."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    code = (
        "import time, potl._core as c, potl._record._keygen as g\n"
        "class Slow:\n"
        "    generate = staticmethod(lambda: (time.sleep(1), c.SigningKey.generate())[1])\n"
        "class Core:\n"
        "    SigningKey = Slow\n"
        "    def __getattr__(self, name): return getattr(c, name)\n"
        "g._core = Core()\n"
        "from potl._record._keys import of_referee\n"
        "print(of_referee().public_key.raw.hex())\n"
    )
    both = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [one.communicate(timeout=600)[0] for one in both]
    assert [one.returncode for one in both] == [0, 0]
    assert said[0] == said[1] != ""
