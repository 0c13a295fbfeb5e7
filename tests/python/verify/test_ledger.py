# SPDX-License-Identifier: Apache-2.0
"""What a verifier remembers about a job."""

import fcntl
import json
import signal
import threading
from pathlib import Path

import pytest

from potl import StorageError, UsageError
from potl._verify import _ledger

JOB = bytes(range(32))


def challenge(nonce: int = 1, samples: int = 12) -> _ledger.Challenge:
    return _ledger.new_challenge(bytes([nonce]) * 32, [("replay", {"samples": samples})])


def add(
    path: Path, *, note: "str | None" = "a\n", nonce: int = 1, job: bytes = JOB
) -> _ledger.Memory:
    return _ledger.remember(path, job_id=job, commitment=note, challenge=challenge(nonce))


def test_what_is_remembered_is_known_next_time(tmp_path: Path) -> None:
    path = tmp_path / "new" / "ledger.json"
    assert add(path) == _ledger.Memory()
    known = _ledger.recall(path, job_id=JOB)
    assert known.commitments == ("a\n",)
    assert [c.nonce for c in known.challenges] == ["01" * 32]
    assert known.challenges[0].checks == (("replay", {"samples": 12}),)


def test_the_same_challenge_is_kept_once(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    for nonce in (1, 2, 1):
        add(path, nonce=nonce)
    assert [c.nonce[:2] for c in _ledger.recall(path, job_id=JOB).challenges] == ["01", "02"]


def test_every_commitment_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    for note in ("a\n", "b\n", "a\n"):
        add(path, note=note)
    assert _ledger.recall(path, job_id=JOB).commitments == ("a\n", "b\n")


def test_the_ledger_of_another_job_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    add(path)
    with pytest.raises(UsageError, match="another job"):
        add(path, job=bytes(32))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1, "job": 3}', "\x00"])
def test_a_damaged_ledger_is_an_error_and_not_an_empty_memory(tmp_path: Path, text: str) -> None:
    path = tmp_path / "ledger.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"not a ledger|another job"):
        _ledger.recall(path, job_id=JOB)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("nonce", "xyz"),
        ("document", "xyz"),
        ("document", 3),
        ("time", "now"),
        ("checks", 1),
        ("checks", [["replay", 1]]),
    ],
)
def test_a_ledger_with_a_challenge_that_is_none_is_damaged(
    tmp_path: Path, name: str, value: object
) -> None:
    path = tmp_path / "ledger.json"
    add(path)
    document = json.loads(path.read_text())
    document["challenges"][0][name] = value
    path.write_text(json.dumps(document))
    with pytest.raises(UsageError, match="not a ledger"):
        _ledger.recall(path, job_id=JOB)


def test_the_default_path_follows_the_state_directory_and_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert _ledger.default_path(JOB) == tmp_path / "potl" / "jobs" / f"{JOB.hex()}.json"


def test_who_cannot_write_a_ledger_is_told_where_to_have_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remedy = "name another file with --ledger, in Python ledger="
    (tmp_path / "file").touch()
    # Nobody can make a folder there, as in a home that is read only.
    for folder in (Path("/proc/none"), tmp_path / "file", tmp_path / "file" / "none"):
        with pytest.raises(StorageError, match=r"remembered: [^()]+ \(") as error:
            add(folder / "ledger.json")
        assert error.value.remedy == remedy
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/none")
    with pytest.raises(StorageError) as error:
        add(_ledger.default_path(JOB))
    assert error.value.remedy == f"{remedy}, or set XDG_STATE_HOME"


def test_what_is_on_disk_is_known(tmp_path: Path) -> None:
    # As tests/unit/ledger_test.cpp expects it to be written.
    path = tmp_path / "ledger.json"
    path.write_text(
        '{"challenges":[{"checks":[["replay",{"safety":8,"samples":12}]],"document":null,'
        '"nonce":"0202020202020202020202020202020202020202020202020202020202020202",'
        f'"time":2}}],"commitments":["a\\n","b\\n"],"job":"{JOB.hex()}","version":1}}'
    )
    known = _ledger.recall(path, job_id=JOB)
    assert known.commitments == ("a\n", "b\n")
    assert known.challenges[0].checks == (("replay", {"samples": 12, "safety": 8.0}),)
    again = _ledger.Challenge("02" * 32, known.challenges[0].checks, 5.0)
    _ledger.remember(path, job_id=JOB, commitment=None, challenge=again)
    assert len(_ledger.recall(path, job_id=JOB).challenges) == 1


def test_another_question_under_the_same_nonce_is_another_challenge(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    for samples in (3, 5, 5):
        asked = _ledger.new_challenge(bytes(32), [("replay", {"samples": samples})])
        _ledger.remember(path, job_id=JOB, commitment=None, challenge=asked)
    known = _ledger.recall(path, job_id=JOB).challenges
    assert [dict(one.checks[0][1])["samples"] for one in known] == [3, 5]


def test_a_ledger_is_replaced_and_never_half_written(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    places = set()
    kept = []
    for note in ("one", "two", "three"):
        _ledger.remember(path, job_id=JOB, commitment=note, challenge=None)
        places.add(path.stat().st_ino)
        kept.append(path.open())  # so that its number is not used again
    for file in kept:
        file.close()
    assert len(places) == 3
    assert sorted(one.name for one in tmp_path.iterdir()) == ["ledger.json", "ledger.json.lock"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_two_verifications_write_one_after_the_other(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    _ledger.remember(path, job_id=JOB, commitment="one", challenge=None)
    with path.with_name("ledger.json.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        other = threading.Thread(
            target=_ledger.remember,
            args=(path,),
            kwargs={"job_id": JOB, "commitment": "two", "challenge": None},
        )
        other.start()
        other.join(0.3)
        assert other.is_alive()
        assert _ledger.recall(path, job_id=JOB).commitments == ("one",)
    other.join(30)
    assert _ledger.recall(path, job_id=JOB).commitments == ("one", "two")


def test_ctrl_c_ends_the_waiting_for_another_verification(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with path.with_name("ledger.json.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        press = threading.Timer(
            0.5, signal.pthread_kill, args=(threading.get_ident(), signal.SIGINT)
        )
        give_up = threading.Timer(20, fcntl.flock, args=(lock, fcntl.LOCK_UN))
        press.start()
        give_up.start()
        try:
            with pytest.raises(KeyboardInterrupt):
                _ledger.remember(path, job_id=JOB, commitment="one", challenge=None)
            assert give_up.is_alive()
        finally:
            give_up.cancel()
            give_up.join()
            signal.signal(signal.SIGINT, before)
    assert not path.exists()
