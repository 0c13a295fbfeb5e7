# SPDX-License-Identifier: Apache-2.0
"""A dispute before a referee that both parties call ends as one in a program does."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from arguing import Case, Served, another, place_of, playing, serving

import potl
from potl import _core
from potl._cli import _cli
from potl._dispute import _away
from potl._dispute._away import REFEREE
from potl._dispute._dispute import play
from potl._dispute._seat import Seat
from potl._dispute._table import SystemClock
from potl._remote._http import Http
from potl._serve import _host

pytest.importorskip("potl._torch", reason="potl was built without torch")

LINES = "/lines?"


@pytest.fixture(scope="module")
def hosted(case: Case) -> Iterator[Served]:
    with serving(case, "referee") as (server,):
        yield server


@pytest.fixture(scope="module")
def verdict(case: Case, hosted: Served) -> potl.Verdict:
    """Of the trainer's lie."""
    with playing(case, "trainer", hosted.url) as trainers:
        found = auditors(case, hosted.url)
        assert trainers().evidence == found.evidence
    return found


def auditors(case: Case, url: str | potl.Remote, **changes: Any) -> potl.Verdict:
    return potl.dispute_at(url, **{"party": case.party("auditor"), **case.at(), **changes})


def test_a_lie_is_found_as_in_one_program(case: Case, verdict: potl.Verdict) -> None:
    here = potl.dispute(
        trainer=case.party("trainer"), auditor=case.party("auditor"), referee=case.referee()
    )
    assert case.is_found_in(verdict)
    assert verdict.facts == here.facts and verdict.moves == here.moves
    assert verdict.unknown_keys == ()


def test_who_comes_again_is_told_what_was_decided(
    case: Case, hosted: Served, verdict: potl.Verdict, tmp_path: Path
) -> None:
    assert auditors(case, hosted.url).evidence == verdict.evidence
    assert auditors(case, hosted.url, keys={}).unknown_keys == ()  # the trainer's is the job's
    about, other = case.folder / "false/commitment", case.folder / "honest/commitment"
    assert auditors(case, hosted.url, commitment=about).holds_commitment
    with pytest.raises(potl.StorageError, match="with the commitment that you hold"):
        auditors(case, potl.Remote(hosted.url, timeout=2), commitment=other, timeout=0)
    kept = tmp_path / "transcript"
    kept.write_text(verdict.evidence.transcript)
    with pytest.raises(potl.MismatchError, match="another one than you hold"):
        auditors(case, hosted.url, commitment=other, transcript=kept)


def test_a_token_is_wanted(case: Case) -> None:
    with serving(case, "referee", token="a-secret-of-16-characters") as (server,):
        for sent, status in (
            ("", 401),
            ("Bearer other", 401),
            ("Bearer a-secret-of-16-characters", 200),
        ):
            headers = {"Authorization": sent} if sent else {}
            assert httpx.get(server.url + REFEREE, headers=headers).status_code == status


def test_an_auditor_that_lies_loses(case: Case, hosted: Served, verdict: potl.Verdict) -> None:
    """And is no part of the dispute about the trainer's other run."""
    with playing(case, "honest trainer", hosted.url):
        party = case.party("lying auditor")
        found = auditors(case, hosted.url, party=party)
    assert case.is_found_in(found, winner="trainer")
    assert auditors(case, hosted.url).evidence == verdict.evidence


def test_the_referee_is_killed_around_each_line_and_goes_on(case: Case) -> None:
    with serving(case, "referee", dies=True) as (referee,):
        with playing(case, "trainer", referee.url):
            found = auditors(case, referee.url)
        died = referee.signed.read_text().splitlines()
    assert case.is_found_in(found)
    assert referee.starts == len(died) + 1 and len(died) >= found.moves // 4
    assert '"restarted"' in found.evidence.transcript
    assert case.is_found_in(potl.judge(found.evidence, job=case.job, task=case.build))


def test_a_party_that_is_killed_before_each_message_says_the_same(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With and without the lines that it kept."""
    true, said = Seat.message, list[str]()

    class Killed(BaseException):
        pass

    def message(self: Seat) -> str | None:
        out = true(self)
        if out is not None:
            known = place_of(out) in map(place_of, said)
            said.append(out)
            if not known:
                raise Killed
        return out

    monkeypatch.setattr(Seat, "message", message)
    kept = case.folder / "kept"
    with serving(case, "referee") as (referee,), playing(case, "trainer", referee.url):
        starts = 0
        while True:
            starts += 1
            try:
                more = {"transcript": kept} if starts % 2 else {}
                found = auditors(case, referee.url, **more)
                break
            except Killed:
                pass
    assert case.is_found_in(found)
    assert starts == found.moves / 2 + 1
    assert len(set(said)) == len(set(map(place_of, said))) == found.moves / 2
    if starts % 2:
        assert kept.read_text() == found.evidence.transcript


def test_a_party_whose_task_is_another_does_not_begin(
    case: Case, hosted: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be silent as soon as it has to show what its steps computed."""
    party = potl.Party(
        case.folder / "audit", job=case.job, task=another, key=case.folder / "auditor.pem"
    )
    monkeypatch.setattr(_away._Play, "_join", lambda self: pytest.fail("it begins"))
    with pytest.raises(potl.JobMismatch):
        auditors(case, hosted.url, party=party)


def test_who_does_not_come_back_loses_by_silence(case: Case) -> None:
    with serving(case, "referee", turn_seconds=6.0) as (referee,):
        with playing(case, "trainer", referee.url) as trainers:
            with pytest.raises(potl.StorageError, match="the disk is gone"):
                auditors(case, referee.url, party=Leaving(case.party("auditor")))
            found = trainers()
        assert auditors(case, referee.url).evidence == found.evidence
    assert (found.winner, found.why) == ("trainer", "silence")
    lines = [json.loads(line) for line in found.evidence.transcript.splitlines()]
    assert lines[-1]["at"] > lines[-2]["at"] + 6000


def test_who_was_called_and_is_gone_loses_by_silence_where_both_call(
    case: Case, tmp_path: Path
) -> None:
    """What a referee that called both cannot end after an interruption, one that listens can."""
    path, folder = tmp_path / "lines", tmp_path / "disputes"
    potl.dispute(
        trainer=case.party("trainer"),
        auditor=case.party("auditor"),
        referee=case.referee(),
        transcript=path,
        turn_seconds=3.0,
    )
    begun = path.read_bytes().split(b"\n")[:5]
    path.write_bytes(b"\n".join([*begun, b""]))
    with pytest.raises(potl.StorageError, match="Connect"):
        potl.dispute(
            trainer=potl.Remote("http://127.0.0.1:9", timeout=1.0),
            auditor=case.party("auditor"),
            referee=case.referee(),
            transcript=path,
        )
    notes = [(case.folder / run / "commitment").read_bytes() for run in ("false", "audit")]
    folder.mkdir()
    path.rename(folder / ("-".join(_core.sha256(one).hex() for one in notes) + ".lines"))
    with serving(case, "referee", transcripts=folder) as (referee,):
        found = auditors(case, referee.url)
    assert (found.winner, found.why) == ("auditor", "silence")
    lines = found.evidence.transcript.encode().split(b"\n")
    assert lines[:5] == begun and b'"restarted"' in lines[5]


class Leaving:
    """A party whose machine fails in its first turn."""

    def __init__(self, party: potl.Party) -> None:
        self._party = party

    def __getattr__(self, name: str) -> Any:
        return getattr(self._party, name)

    def _claim(self, now: object) -> Any:
        raise potl.StorageError("the disk is gone", "")


def foreign(lines: list[str]) -> list[str]:
    """Signed by somebody else."""
    key = _core.SigningKey.generate()
    for i, line in enumerate(lines):
        document = json.loads(line)
        del document["signature"]
        text = b"potl.dispute.entry.v1\0" + _core.canonical_json(document)
        document["signature"] = base64.b64encode(key.sign(text)).decode()
        lines[i] = _core.canonical_json(document).decode()
    return lines


LIES: dict[str, Callable[[list[str]], list[str]]] = {
    "another signature": foreign,
    "a changed line": lambda lines: [line.replace('"at":1', '"at":2') for line in lines],
    "a line is missing": lambda lines: lines[:1] + lines[2:],
    "a line comes twice": lambda lines: [*lines[:2], lines[1], *lines[2:]],
    "no lines": lambda lines: ["{}"],
}


@pytest.mark.parametrize("name", LIES)
def test_a_referee_that_lies_about_lines_is_refused(
    name: str,
    case: Case,
    hosted: Served,
    verdict: potl.Verdict,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    get = Http.get

    def other(self: Http, path: str, **options: Any) -> bytes:
        answer = get(self, path, **options)
        if LINES not in path:
            return answer
        lines = LIES[name](answer.decode().splitlines())
        return "".join(f"{line}\n" for line in lines).encode()

    monkeypatch.setattr(Http, "get", other)
    with pytest.raises((potl.MismatchError, potl.MalformedError)):
        auditors(case, hosted.url)


def test_a_referee_that_answers_without_a_new_line_is_left(
    case: Case, hosted: Served, verdict: potl.Verdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    get, empty = Http.get, []

    def nothing_new(self: Http, path: str, **options: Any) -> bytes:
        if LINES not in path:
            return get(self, path, **options)
        if "after=0&" in path:
            return b"".join(get(self, path, **options).splitlines(keepends=True)[:1])
        empty.append(path)
        assert len(empty) < 8, "it asks on and on"
        return b""

    monkeypatch.setattr(Http, "get", nothing_new)
    with pytest.raises(potl.StorageError, match=r"no new line for 0\.5 seconds") as raised:
        auditors(case, hosted.url, timeout=0.5)
    assert "call again with the same transcript" in raised.value.remedy


def test_time_in_which_a_party_works_is_not_the_referees(
    case: Case, hosted: Served, verdict: potl.Verdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    get, message, works = Http.get, Seat.message, []
    # Only the work takes time: how long an answer takes depends on the machine.
    at = [0.0]
    clock = SimpleNamespace(monotonic=lambda: at[0], sleep=time.sleep)

    def by_the_line(self: Http, path: str, **options: Any) -> bytes:
        answer = get(self, path, **options)
        if LINES not in path:
            return answer
        if works and len(works) == 1:
            works.append(None)
            return b""  # the first answer after the work has no line
        return b"".join(answer.splitlines(keepends=True)[:1])

    def slow(self: Seat) -> str | None:
        if not works:
            works.append(None)
            at[0] += 1.5
        return message(self)

    monkeypatch.setattr(_away, "time", clock)
    monkeypatch.setattr(Http, "get", by_the_line)
    monkeypatch.setattr(Seat, "message", slow)
    assert auditors(case, hosted.url, timeout=1.0).evidence == verdict.evidence


@pytest.mark.parametrize("turn", [None, True, 0, -1, 1 << 60, "60000", 1.5])
def test_a_turn_is_a_number_of_milliseconds(
    turn: object, case: Case, hosted: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    get = Http.get

    def other(self: Http, path: str, **options: Any) -> bytes:
        answer = get(self, path, **options)
        if path != REFEREE:
            return answer
        return json.dumps({**json.loads(answer), "turn_ms": turn}).encode()

    monkeypatch.setattr(Http, "get", other)
    with pytest.raises(potl.MalformedError):
        auditors(case, hosted.url)


def test_a_referee_that_tells_another_story_than_before_is_refused(
    case: Case, hosted: Served, verdict: potl.Verdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or that has forgotten some of it."""
    kept = case.folder / "told"
    here = potl.dispute(
        trainer=case.party("trainer"), auditor=case.party("auditor"), referee=case.referee()
    )
    lines = here.evidence.transcript.splitlines(keepends=True)
    kept.write_text("".join(lines[:5]))
    with pytest.raises(potl.MismatchError, match="do not continue"):
        auditors(case, hosted.url, transcript=kept)
    kept.write_text("".join(lines[:-1]))
    with pytest.raises(potl.PotlError):
        auditors(case, hosted.url, transcript=kept, timeout=0)


def test_another_referee_or_other_parties_are_an_error(case: Case, hosted: Served) -> None:
    other = _core.SigningKey.generate().public_key
    with pytest.raises(potl.UsageError, match="another referee"):
        auditors(case, hosted.url, referee_key=other)
    with pytest.raises(potl.UsageError, match="another key of the auditor"):
        auditors(case, hosted.url, keys={"auditor": other})
    with pytest.raises(potl.UsageError, match="keys are of"):
        auditors(case, hosted.url, keys={"referees": other})
    mine = potl.Party(
        case.folder / "honest", job=case.job, task=case.build, key=_core.SigningKey.generate()
    )
    with pytest.raises(potl.UsageError, match="between others"):
        auditors(case, hosted.url, party=mine)
    with socket.create_server(("127.0.0.1", 0)) as one:
        nobody = f"http://127.0.0.1:{one.getsockname()[1]}"
    with pytest.raises(potl.StorageError):
        auditors(case, potl.Remote(nobody, timeout=0.5))
    # Nobody else comes: there is no dispute, and nobody has lost.
    party = case.party("honest trainer")
    with serving(case, "referee") as (alone,):
        with pytest.raises(potl.StorageError, match="did not come"):
            auditors(case, alone.url, party=party, timeout=0)
        assert not list(case.folder.glob(f"lines-{alone.url.rpartition(':')[2]}/*"))


class Clock(SystemClock):
    """The machine's, until a test puts it forward."""

    ahead = 0

    def now(self) -> int:
        return super().now() + self.ahead

    def was_away(self) -> bool:
        return False


def test_a_server_ends_while_it_works(case: Case) -> None:
    """At once, and its dispute goes on where it was."""
    clock, works = Clock(), case.folder / "works"
    with serving(case, "trainer", works=works) as (trainer,):
        parties: Any = {"trainer": trainer.url, "auditor": case.party("auditor")}
        options = {"keys": {"auditor": case.key("auditor")}, "transcript": None, "clock": clock}
        asking = threading.Thread(
            target=play,
            args=[parties, case.referee()],
            kwargs={"turn_seconds": 3600.0, **options},
            daemon=True,
        )
        asking.start()
        while not works.exists():
            assert asking.is_alive(), "nobody asks any more"
            time.sleep(0.05)
        before = time.monotonic()
        assert trainer.end(signal.SIGTERM) == 0
        assert time.monotonic() - before < 20  # 1.5 s on an idle machine; the work has no end
        clock.ahead = 1 << 30
        asking.join()


def test_the_commands(
    case: Case, capsys: pytest.CaptureFixture[str], hosted: Served, verdict: potl.Verdict
) -> None:
    folder = case.folder
    agreed = ["--job", str(folder / "job.json"), "--task", "arguing:build"]
    evidence = folder / "played.json"
    command = ["dispute", *agreed, "--evidence", str(evidence), "--referee", hosted.url]
    who = ["--run", str(folder / "audit"), "--key", str(folder / "auditor.pem")]
    keys = [
        "--referee-key",
        str(folder / "referee.pub"),
        "--auditor-key",
        str(folder / "auditor.pub"),
    ]
    assert _cli.run([*command, *who, *keys]) == 1
    assert "the auditor is right" in capsys.readouterr().out
    assert potl.DisputeEvidence.read(evidence) == verdict.evidence
    assert _cli.run([*command, *who]) == 2
    assert "--referee-key" in capsys.readouterr().err
    assert _cli.run([*command, *who, *keys, "--turn-seconds", "1"]) == 2
    assert _cli.run([*command[:-2], *who, *keys]) == 2
    assert _cli.run([*command[:-2], "--trainer", "x", "--auditor", "y", *who]) == 2
    assert _cli.run(["referee", *agreed]) == 2
    assert _cli.run(["referee", *agreed, "--listen", "127.0.0.1:0"]) == 2
    assert "--transcripts" in capsys.readouterr().err
    assert _cli.run(["referee", *agreed, "--offline", str(evidence), "--token-file", "x"]) == 2


def test_the_listening_command_ends(
    case: Case, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, run_server = case.folder, _host.run_server

    def ended(application: Any, *, ready: Callable[[str], None], **options: Any) -> None:
        def end(url: str) -> None:
            ready(url)
            assert potl.Remote(url)._served().get(REFEREE, limit=1000)
            os.kill(os.getpid(), signal.SIGTERM)

        run_server(
            application,
            ready=lambda url: threading.Thread(target=end, args=[url]).start(),
            **options,
        )

    monkeypatch.setattr(_host, "run_server", ended)
    agreed = ["--job", str(folder / "job.json"), "--task", "arguing:build"]
    keys = ["--key", str(folder / "referee.pem"), "--auditor-key", str(folder / "auditor.pub")]
    listen = ["--listen", "127.0.0.1:0", "--transcripts", str(folder / "commanded")]
    assert _cli.run(["referee", *agreed, *keys, *listen]) == 0
    assert "deciding disputes at http://127.0.0.1:" in capsys.readouterr().err
