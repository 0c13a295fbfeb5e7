# SPDX-License-Identifier: Apache-2.0
"""A dispute over a network ends as one in a program does, whatever the network does."""

from __future__ import annotations

import functools
import itertools
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from arguing import Case, another, is_killed_before, place_of, serving

import potl
from potl import _core
from potl._cli import _cli
from potl._dispute._dispute import play
from potl._dispute._table import Store, WatchedClock
from potl._dispute._there import There
from potl._record._keygen import write_pair
from potl._remote._http import Http
from potl._serve._host import host_disputes

pytest.importorskip("potl._torch", reason="potl was built without torch")

Post = Callable[..., bytes]


@pytest.fixture(scope="module")
def urls(case: Case) -> Iterator[dict[str, Any]]:
    with serving(case, "trainer", "auditor") as servers:
        yield {"trainer": servers[0].url, "auditor": servers[1].url}


@pytest.fixture
def dispute(case: Case, urls: dict[str, Any]) -> Callable[..., potl.Verdict]:
    return functools.partial(
        potl.dispute, **urls, referee=case.referee(), keys={"auditor": case.key("auditor")}
    )


def end_of(verdict: potl.Verdict) -> dict[str, Any]:
    return json.loads(verdict.evidence.transcript.splitlines()[-1])


def test_a_lie_is_found_over_http_as_in_one_program(
    case: Case, dispute: Callable[..., potl.Verdict]
) -> None:
    here = dispute(trainer=case.party("trainer"), auditor=case.party("auditor"))
    assert case.is_found_in(here)
    for parties in ({}, {"auditor": case.party("auditor")}):
        there = dispute(**parties)
        assert case.is_found_in(there)
        assert there.facts == here.facts and there.moves == here.moves
        assert there.unknown_keys == ()


def test_an_audit_is_a_party(
    case: Case, dispute: Callable[..., potl.Verdict], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that did not come to the end: the rest is repeated first."""
    from potl._dispute import _audit

    # It stops before its first step.
    monkeypatch.setattr(_audit._Pair, "brings_log", lambda self, step, wait: False)
    audit = functools.partial(potl.audit, case.folder / "false", job=case.job, task=case.build)
    found = audit(log=case.folder / "2", key=case.folder / "2.pem")
    assert found.agrees is not True and found.commitment is None
    monkeypatch.undo()
    assert case.is_found_in(dispute(auditor=found, keys={}))
    found = audit(log=case.folder / "2", key=case.folder / "2.pem")
    assert found.commitment is not None
    assert case.is_found_in(dispute(auditor=found, keys={}))


def test_a_referee_without_a_key_has_the_one_of_its_user(
    case: Case,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Servers know it, and a dispute that was interrupted goes on with it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    public = tmp_path / "state/potl/referee.pub"
    own = potl.Referee(case.job, task=case.build).key
    assert f"--referee-key {public}" in caplog.text
    with serving(case, "trainer", referee_key=public) as [server]:
        auditor = potl.audit(server.url, job=case.job, task=case.build)
        assert auditor.agrees is not True
        verdict = potl.dispute(
            trainer=server.url,
            auditor=auditor,
            referee=potl.Referee(case.job, task=case.build),
            transcript="lines",
        )
        assert case.is_found_in(verdict)
        again = potl.dispute(
            trainer=server.url,
            auditor=auditor,
            referee=potl.Referee(case.job, task=case.build),
            transcript="lines",
        )
        assert again.facts == verdict.facts
    assert potl.Referee(case.job, task=case.build).key.public_key == own.public_key


def test_a_server_whose_task_is_another_does_not_begin(case: Case) -> None:
    folder = case.folder / "honest"
    party = potl.Party(folder, job=case.job, task=another, key=case.folder / "trainer.pem")
    with pytest.raises(potl.JobMismatch):
        potl.serve(
            folder,
            disputes=party,
            referee_key=case.folder / "referee.pub",
            listen="127.0.0.1:0",
            ready=lambda url: pytest.fail("it serves"),
        )


def test_a_referee_whose_task_is_another_does_not_begin(
    case: Case, dispute: Callable[..., potl.Verdict]
) -> None:
    path = case.folder / "begun"
    wrong = potl.Referee(case.job, task=another, key=case.referee().key)
    with pytest.raises(potl.JobMismatch, match="batch_size is 16"):
        dispute(referee=wrong, transcript=path)
    with pytest.raises(potl.JobMismatch, match="batch_size is 16"):
        host_disputes(
            wrong,
            transcripts=case.folder / "disputes",
            keys={"auditor": case.key("auditor")},
            turn_seconds=8.0,
            listen="127.0.0.1:0",
            ready=lambda url: pytest.fail("it listens"),
        )
    assert case.is_found_in(dispute(transcript=path))


def test_both_are_killed_before_each_message_and_say_the_same(case: Case) -> None:
    with serving(case, "trainer", "auditor", dies=True) as (trainer, auditor):
        verdict = potl.dispute(
            trainer=trainer.url,
            auditor=auditor.url,
            referee=case.referee(),
            keys={"auditor": case.key("auditor")},
        )
        assert case.is_found_in(verdict)
        for one in (trainer, auditor):
            # What it signed before it was killed was signed again, the same.
            assert one.starts == 1 + sum(map(is_killed_before, range(verdict.moves // 2)))
            signed = one.messages()
            assert len(set(signed)) == len(set(map(place_of, signed))) == verdict.moves / 2


def lost_before(post: Post, *given: Any, **options: Any) -> bytes:
    raise potl.StorageError("lost", "")


def lost_after(post: Post, *given: Any, **options: Any) -> bytes:
    post(*given, **options)
    raise potl.StorageError("lost", "")


def twice(post: Post, *given: Any, **options: Any) -> bytes:
    first = post(*given, **options)
    assert post(*given, **options) == first
    return first


class Late:
    """Each answer comes in place of the next one, which is lost."""

    def __init__(self) -> None:
        self._held: bytes | None = None

    def __call__(self, post: Post, *given: Any, **options: Any) -> bytes:
        answer = post(*given, **options)
        out, self._held = self._held, answer if self._held is None else None
        if out is None:
            raise potl.StorageError("late", "")
        return out


@pytest.mark.parametrize("fault", [lost_before, lost_after, twice, Late()])
def test_each_message_is_lost_repeated_or_late(
    fault: Any, dispute: Callable[..., potl.Verdict], case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    post, calls = Http.post, [0]

    def faulty(self: Http, *given: Any, **options: Any) -> bytes:
        calls[0] += 1
        bound = functools.partial(post, self)
        # Every second one; and the late ones in pairs.
        if calls[0] % 2 or isinstance(fault, Late):
            return fault(bound, *given, **options)  # type: ignore[no-any-return]
        return bound(*given, **options)

    monkeypatch.setattr(Http, "post", faulty)
    verdict = dispute()
    assert case.is_found_in(verdict)
    assert calls[0] >= verdict.moves


def test_the_referee_is_killed_at_each_line_and_goes_on(
    case: Case, dispute: Callable[..., potl.Verdict], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a line is written, in the middle of it, and after it."""
    parties: dict[str, Any] = {one: case.party(one) for one in ("trainer", "auditor")}
    path, append, died = case.folder / "lines", Store.append, set[int]()

    class Killed(BaseException):
        pass

    def dying(self: Store, line: str) -> None:
        number = path.read_text().count("\n")
        if '"restarted"' in line or number in died:
            append(self, line)
            return
        died.add(number)
        # Each line in one of three ways.
        if len(died) % 3 == 1:
            append(self, line)
        elif len(died) % 3 == 2:
            with path.open("a") as file:
                file.write(line[: len(line) // 2])
        raise Killed

    monkeypatch.setattr(Store, "append", dying)
    for _ in range(200):
        try:
            # Another process remembers nothing.
            verdict = dispute(**parties, keys={}, transcript=path, referee=case.referee())
            break
        except Killed:
            pass
    assert case.is_found_in(verdict)
    assert len(died) > verdict.moves
    text = verdict.evidence.transcript
    assert path.read_text() == text and '"restarted"' in text
    assert case.is_found_in(potl.judge(verdict.evidence, job=case.job, task=case.build))
    # It is over: nothing is asked any more, and whoever lost may be gone.
    assert case.is_found_in(dispute(transcript=path))
    with socket.create_server(("127.0.0.1", 0)) as one:
        nobody = f"http://127.0.0.1:{one.getsockname()[1]}"
    gone = potl.Remote(nobody, timeout=0.5)
    assert case.is_found_in(dispute(trainer=gone, auditor=gone, transcript=path))
    assert path.read_text() == text


def test_a_transcript_is_that_of_one_dispute(
    case: Case, dispute: Callable[..., potl.Verdict]
) -> None:
    path = case.folder / "other"
    dispute(transcript=path)
    honest = potl.Party(
        case.folder / "honest", job=case.job, task=case.build, key=case.folder / "trainer.pem"
    )
    with pytest.raises(potl.UsageError, match="another commitment of the trainer"):
        dispute(trainer=honest, transcript=path)
    with pytest.raises(potl.PotlError):
        dispute(transcript=path, referee=potl.Referee(case.job, task=case.build))
    store = Store(path)
    with pytest.raises(potl.UsageError, match="another referee"):
        dispute(transcript=path)
    store.close()
    path.write_text("x\n")
    with pytest.raises(potl.MalformedError):
        dispute(transcript=path)


class Clock:
    """Runs while somebody waits."""

    def __init__(self) -> None:
        self.at = 1_000_000
        self.is_away = False

    def now(self) -> int:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += max(1, int(1000 * seconds))

    def was_away(self) -> bool:
        out, self.is_away = self.is_away, False
        return out


def played(case: Case, urls: dict[str, Any], **changes: Any) -> potl.Verdict:
    options = {"keys": {"auditor": case.key("auditor")}, "turn_seconds": 8.0, "transcript": None}
    options["clock"] = Clock()
    return play(urls, case.referee(), **{**options, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("answered", [True, False])
def test_time_in_which_the_referee_was_away_counts_against_nobody(
    answered: bool, case: Case, urls: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its machine is suspended while it waits, and the answer is there when it wakes, or lost."""
    clock, post, calls = Clock(), Http.post, [0]
    clock.at += 1 + answered  # or the servers would take it for a dispute of another test

    def suspended(self: Http, *given: Any, **options: Any) -> bytes:
        answer = post(self, *given, **options)
        calls[0] += 1
        if calls[0] in (2, 7):
            clock.at += 10 * 3600 * 1000
            clock.is_away = True
            return answer if answered else b""
        return answer

    monkeypatch.setattr(Http, "post", suspended)
    verdict = played(case, urls, clock=clock)
    assert case.is_found_in(verdict)
    assert verdict.evidence.transcript.count('"restarted"') == 2


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="processes cannot be stopped")
def test_a_process_that_was_stopped_knows_it() -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        with WatchedClock(2.0) as clock:
            time.sleep(3)
            before = clock.was_away()
            os.kill(os.getpid(), signal.SIGSTOP)
            os.write(writing, bytes([before, clock.was_away(), clock.was_away()]))
        os._exit(0)
    os.waitpid(child, os.WUNTRACED)
    time.sleep(2.5)
    os.kill(child, signal.SIGCONT)
    os.waitpid(child, 0)
    assert os.read(reading, 3) == bytes([False, True, False])
    os.close(reading)
    os.close(writing)


ODD: dict[str, Callable[[dict[str, Any]], bytes]] = {
    "nothing": lambda answer: b"",
    "no object": lambda answer: b"[1]",
    "no JSON": lambda answer: b"\xff<html>",
    "deep": lambda answer: b"[" * 100_000,
    "many lines": lambda answer: json.dumps({"lines": 10**30, "message": None}).encode(),
    "a negative number": lambda answer: json.dumps({"lines": -1, "message": None}).encode(),
    "a number for a message": lambda answer: json.dumps({**answer, "message": 1}).encode(),
    "garbage": lambda answer: json.dumps({**answer, "message": "{}"}).encode(),
    "a changed message": lambda answer: json.dumps(
        {**answer, "message": answer["message"] and answer["message"].replace("a", "b", 1)}
    ).encode(),
}


@pytest.mark.parametrize("name", ODD)
def test_what_is_not_the_partys_is_silence_and_no_garbage(
    name: str, case: Case, urls: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    post = Http.post

    def other(self: Http, *given: Any, **options: Any) -> bytes:
        answer = post(self, *given, **options)
        return answer if self._base == urls["trainer"] else ODD[name](json.loads(answer))

    monkeypatch.setattr(Http, "post", other)
    verdict = played(case, urls)
    assert (verdict.winner, verdict.why) == ("trainer", "silence")
    assert "measured by the referee's clock alone" in "\n".join(verdict.lines())
    lines = [json.loads(line) for line in verdict.evidence.transcript.splitlines()]
    # The trainer moved, and then it was the auditor's turn for so long.
    assert lines[-1]["at"] == lines[-2]["at"] + 8_001 and len(lines) == 3


def test_who_says_what_the_other_one_said_or_said_elsewhere_is_silent(
    case: Case,
    urls: dict[str, Any],
    dispute: Callable[..., potl.Verdict],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: dict[str, list[str]] = {"trainer": [], "auditor": []}
    elsewhere = dispute().evidence.transcript
    for line in elsewhere.splitlines():
        entry = json.loads(line)["entry"]
        if entry["kind"] == "message":
            said[entry["from"]].append(_text(entry["message"]))
    post = Http.post
    for whose in ("trainer", "auditor"):

        def other(self: Http, *given: Any, whose: str = whose, **options: Any) -> bytes:
            answer = json.loads(post(self, *given, **options))
            if self._base == urls["auditor"] and answer["message"]:
                answer["message"] = said[whose][0]
            return json.dumps(answer).encode()

        monkeypatch.setattr(Http, "post", other)
        verdict = played(case, urls)
        assert (verdict.winner, verdict.why) == ("trainer", "silence"), whose


def _text(message: str) -> str:
    import base64

    return base64.b64decode(message).decode()


def test_who_is_never_reached_is_an_error(
    case: Case, urls: dict[str, Any], dispute: Callable[..., potl.Verdict]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as one:
        nobody = f"http://127.0.0.1:{one.getsockname()[1]}"
    with pytest.raises(potl.StorageError):
        dispute(trainer=potl.Remote(nobody, timeout=0.5))
    # Or is somebody else.
    with pytest.raises(potl.UsageError, match="plays under another key"):
        dispute(keys={"auditor": _core.SigningKey.generate().public_key})
    with pytest.raises(potl.UsageError, match="nobody but its server"):
        dispute(keys={})
    with pytest.raises(potl.MismatchError, match="the job pins another key of the trainer"):
        dispute(keys={"trainer": case.key("auditor"), "auditor": case.key("auditor")})
    with pytest.raises(potl.UsageError, match="follows another referee"):
        dispute(referee=potl.Referee(case.job, task=case.build))
    with pytest.raises(potl.UsageError, match="under another key"):
        dispute(trainer=urls["auditor"])
    with pytest.raises(potl.UsageError, match="not a URL"):
        dispute(trainer="runs/1")
    with pytest.raises(potl.UsageError, match="not a server"):
        dispute(trainer="s3://bucket/run")


def test_a_token_and_a_key_are_wanted_as_for_the_rest(
    case: Case, dispute: Callable[..., potl.Verdict], tmp_path: Path
) -> None:
    token = "correct-horse-battery"
    key, public, _ = write_pair(tmp_path / "reader", encryption=True)
    with serving(case, "trainer", token=token, reader=public) as (server,):
        for wrong in (None, "wrong-horse-battery"):
            with pytest.raises(potl.UsageError, match="who is asking"):
                dispute(trainer=potl.Remote(server.url, token=wrong, key=key))
        with pytest.raises(potl.UsageError, match="does not answer you"):
            dispute(trainer=potl.Remote(server.url, token=token))
        found = dispute(trainer=potl.Remote(server.url, token=token, key=key))
        assert case.is_found_in(found)


def test_the_command(case: Case, urls: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    folder = case.folder
    agreed = ["--job", str(folder / "job.json"), "--task", "arguing:build"]
    evidence = folder / "evidence.json"
    command = ["dispute", "--trainer", urls["trainer"], *agreed, "--evidence", str(evidence)]
    here = ["--auditor", str(folder / "audit"), "--auditor-key", str(folder / "auditor.pem")]
    keys = ["--referee-key", str(folder / "referee.pem"), "--transcript", str(folder / "cli")]
    assert _cli.run([*command, *here, *keys]) == 1
    assert "the auditor is right" in capsys.readouterr().out
    assert _cli.run(["referee", "--offline", str(evidence), *agreed]) == 1
    assert _cli.run([*command, *here]) == 2
    assert "--referee-key" in capsys.readouterr().err
    assert _cli.run([*command, "--auditor", urls["auditor"], *keys]) == 2
    assert "--auditor-key" in capsys.readouterr().err


class Anew:
    """Answers for a party whose server was begun anew after its first answer."""

    url, timeout = "http://potl", 1.0

    def __init__(self, case: Case) -> None:
        self.case, self.answers = case, [{"lines": 3, "message": None}]

    def _served(self) -> Any:
        return self

    def require_job(self, job: str) -> None:
        pass

    def get(self, path: str, *, limit: int) -> bytes:
        keys = {one: self.case.key(one).raw.hex() for one in ("trainer", "referee")}
        return json.dumps({"key": keys["trainer"], "referee": keys["referee"]}).encode()

    def post(self, path: str, body: bytes, *, limit: int) -> bytes:
        if not self.answers and "after=0&" not in path:
            raise potl.StorageError("status 413", "")
        answer = self.answers.pop() if self.answers else {"lines": 4, "message": "said"}
        return json.dumps(answer).encode()


def said_by(case: Case, server: Anew) -> bytes | None:
    class Clock:
        def sleep(self, seconds: float) -> None:
            pass

    keys: Any = {one: case.key(one) for one in ("trainer", "auditor")}
    there = There(
        server, "trainer", job=case.job.id.hex(), keys=keys, referee=case.key("referee"),
        clock=Clock(),
    )  # fmt: skip
    tries = itertools.chain([1.0] * 5, itertools.repeat(-1.0))
    return there.message(["line"] * 4, lambda: next(tries), author=lambda _: "trainer", most=9)


def test_a_party_that_was_begun_anew_is_told_all_lines_again(case: Case) -> None:
    assert said_by(case, Anew(case)) == b"said"


class Wordy(Anew):
    """Says more than a message, which a referee would have to make room for."""

    def post(self, path: str, body: bytes, *, limit: int) -> bytes:
        return json.dumps({"lines": 4, "message": "said", "more": [[]] * self.more}).encode()

    more = 0


def test_an_answer_of_many_values_is_none(case: Case) -> None:
    """Some forty megabytes of empty lists took a gigabyte, each time that the party was asked."""
    server = Wordy(case)
    assert said_by(case, server) == b"said"
    server.more = 2000
    assert said_by(case, server) is None
