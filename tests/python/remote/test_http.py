# SPDX-License-Identifier: Apache-2.0
"""A run that is served elsewhere is verified as one on a disk, and only what is asked for comes."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import json
import os
import shlex
import shutil
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import driver_tasks as tasks
import pytest
from serving import CHECKS, Recorded, proxied, served
from transcript_helpers import rejected_by

import potl
from potl._attacks import Scene, _tasks as attack_tasks, catalogue
from potl._cli import _cli
from potl._remote._http import Http

HEAD = 1024  # more than the head of an answer
PAST = datetime.now(timezone.utc) - timedelta(days=1)


def told(report: potl.Report) -> list[tuple[object, ...]]:
    """What a report finds, without what a clock had to do with."""
    return [
        (
            one.check,
            one.rule,
            one.result,
            one.reason,
            one.first_step,
            one.last_step,
            {k: v for k, v in one.details.items() if not k.endswith("seconds")},
        )
        for one in report.findings
    ]


def test_a_report_over_http_is_the_one_from_the_disk(recorded: Recorded, url: str) -> None:
    there, here = recorded.verify(url, checks=None), recorded.verify(recorded.run, checks=None)
    assert there.verdict == here.verdict == "accepted"
    assert told(there) == told(here)
    assert f"potl verify {url} " in there.document["reproduce"]


@pytest.mark.parametrize("reach", [0, 20])
def test_only_what_is_asked_for_comes_and_comes_once(
    recorded: Recorded, url: str, reach: int
) -> None:
    """Screening for reach looks at every stored state; without it only what is drawn is asked for.
    An exact replay compares its end with a digest in the log.
    """
    replay = potl.Replay(samples=2, top_q=0, reach=reach)
    with proxied(url) as proxy:
        report = recorded.verify(proxy.url, checks=[replay])
    assert report.verdict == "accepted", report.json()
    segments = [str(f.details["segment"]) for f in report.findings if "segment" in f.details]
    drawn = {int(one.split("-")[0]) for one in segments}
    assert 2 < len(drawn) < 6
    came = {path for path in proxy.sent if path.startswith("/v1/checkpoints/")}
    # The last state is looked at in any case.
    wanted = drawn | {24} if reach == 0 else set(range(0, 25, 2))
    assert came == {f"/v1/checkpoints/{step}/0" for step in wanted}
    assert set(proxy.sent) - came == {"/v1/run", "/v1/log", "/v1/telemetry"}
    for path, count in proxy.sent.items():
        size = size_of(recorded.run, path)
        assert size is None or size <= count < size + HEAD, path


def size_of(run: Path, path: str) -> int | None:
    if path == "/v1/log":
        return (run / "transcript.log").stat().st_size
    if path == "/v1/telemetry":
        return (run / "telemetry.log").stat().st_size
    if path.startswith("/v1/checkpoints/"):
        return (run / f"checkpoints/step-{path.split('/')[3]}.safetensors").stat().st_size
    return None


def test_workers_bring_their_states_themselves_and_the_log_comes_once(
    recorded: Recorded, url: str
) -> None:
    with proxied(url) as proxy:
        report = recorded.verify(proxy.url, task="driver_tasks:build", workers=1)
    assert report.verdict == "accepted", report.json()
    log = (recorded.run / "transcript.log").stat().st_size
    assert log <= proxy.sent["/v1/log"] < log + HEAD
    assert any(path.startswith("/v1/checkpoints/") for path in proxy.sent)


def test_a_worker_that_could_not_begin_begins_again(recorded: Recorded, url: str) -> None:
    with potl._remote._remote.opened(url, None) as place:
        assert place.remote is not None
        for _ in range(2):
            own = potl._remote._remote.again(place.remote, place.directory, recorded.job.core)
            assert (own.directory / "transcript.log").read_bytes() == (
                place.directory / "transcript.log"
            ).read_bytes()


def test_states_are_dropped_for_room_and_come_again(
    recorded: Recorded, url: str, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    largest = max(p.stat().st_size for p in (recorded.run / "checkpoints").iterdir())
    held: list[int] = []
    fetch = potl._remote._mirror.Mirror.fetch

    def watched(self: Any, *what: Any) -> None:
        fetch(self, *what)
        states = self.directory.glob("checkpoints/*")
        held.append(sum(512 * path.stat().st_blocks for path in states))

    monkeypatch.setattr(potl._remote._mirror.Mirror, "fetch", watched)
    telemetry = (recorded.run / "telemetry.log").stat().st_size
    room = max(2 * largest, telemetry + largest)
    report = recorded.verify(potl.Remote(url, cache_bytes=room), checks=[potl.Replay(samples=12)])
    assert report.verdict == "accepted", report.json()
    assert len(held) > 6 and max(held) <= room + 3 * 4096


def test_no_room_for_a_state_is_no_verdict_and_says_what_to_raise(
    recorded: Recorded, url: str
) -> None:
    sizes = [p.stat().st_size for p in (recorded.run / "checkpoints").iterdir()]
    telemetry = (recorded.run / "telemetry.log").stat().st_size
    room = max(telemetry, 1000)
    if room >= min(sizes):
        pytest.skip("the telemetry is larger than a state")
    report = recorded.verify(potl.Remote(url, cache_bytes=room))
    assert report.verdict == "inconclusive"
    assert "cache_bytes" in report.json()


def test_a_full_disk_is_no_verdict_and_says_what_to_do(
    recorded: Recorded, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some of the bytes may still find room: those that do not were no fault of the server's."""
    writing, left = os.pwrite, 20_000

    def full(file: int, data: bytes, at: int) -> int:
        nonlocal left
        if left == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        count = writing(file, data[: min(left, 1000)], at)
        left -= count
        return count

    monkeypatch.setattr(os, "pwrite", full)
    report = recorded.verify(url)
    assert report.verdict == "inconclusive", report.sentence
    assert "No space left" in report.json() and "TMPDIR" in report.json()
    left = 10_000_000
    assert recorded.verify(url).verdict == "accepted"


def test_a_token_opens(recorded: Recorded, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("correct-horse-battery\n")
    with served(recorded.run, "--token-file", token) as where:
        for wrong in (None, "correct-horse-batterx"):
            with pytest.raises(potl.UsageError, match="token"):
                recorded.verify(potl.Remote(where, token=wrong))
        remote = potl.Remote(where, token="correct-horse-battery")
        assert recorded.verify(remote).verdict == "accepted"
        assert "correct-horse" not in repr(remote)
        line = ["verify", where, "--job", str(recorded.folder / "job.json")]
        line += ["--commitment", str(recorded.folder / "note.txt"), "--no-ledger", "--json"]
        assert _cli.run(line) == 2
        # Nothing is replayed without a task.
        assert _cli.run([*line, "--token-file", str(token)]) == 3


@pytest.mark.parametrize(
    ("name", "end", "remedy"),
    [("trainer.example", None, "by a name that is in its"), ("127.0.0.1", PAST, "clocks")],
    ids=["of another name", "of another time"],
)
def test_a_certificate_that_does_not_fit_has_a_remedy(
    name: str, end: datetime | None, remedy: str, recorded: Recorded, tmp_path: Path
) -> None:
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    mine = authority.issue_cert(name, not_after=end)
    mine.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "both.pem"))
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    both = tmp_path / "both.pem"
    with (
        served(recorded.run, "--tls-cert", both, "--tls-key", both) as where,
        pytest.raises(potl.StorageError, match=remedy),
    ):
        recorded.verify(potl.Remote(where, ca=tmp_path / "ca.pem"))


@pytest.mark.parametrize("held", [b"", b"two words\n", "\u2014 potl".encode()])
def test_what_is_no_token_has_a_remedy(held: bytes, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_bytes(held)
    with pytest.raises(potl.UsageError, match="whether its file holds anything else"):
        potl.Remote("http://127.0.0.1:9", token=tmp_path / "note.txt")


def test_the_command_that_repeats_a_report_says_how_the_server_was_reached(
    recorded: Recorded, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token = tmp_path / "token"
    token.write_text("correct-horse-battery\n")
    with served(recorded.run, "--token-file", token) as where:
        files = ["--job", str(recorded.folder / "job.json"), "--commitment"]
        files.append(str(recorded.folder / "note.txt"))
        reached = ["--token-file", str(token), "--cache-bytes", "1000000"]
        _cli.run(["verify", where, *reached, *files, "--no-ledger", "--json"])
        command = json.loads(capsys.readouterr().out)["reproduce"]
        assert command.startswith(shlex.join(["potl", "verify", where, *reached, *files]))
        assert "fill in" not in command
        report = recorded.verify(potl.Remote(where, token="correct-horse-battery"), task=None)
    assert f" {where} --token-file TOKEN_FILE " in report.document["reproduce"]
    assert "correct-horse" not in report.json()


def test_tls_is_checked(recorded: Recorded, tmp_path: Path) -> None:
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    mine = authority.issue_cert("127.0.0.1")
    mine.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "both.pem"))
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    both = tmp_path / "both.pem"
    with served(recorded.run, "--tls-cert", both, "--tls-key", both) as where:
        assert where.startswith("https://")
        report = recorded.verify(potl.Remote(where, ca=tmp_path / "ca.pem"))
        assert report.verdict == "accepted"
        with pytest.raises(potl.StorageError, match=r"(?i)certificate.*--tls-ca"):
            recorded.verify(where)
        with pytest.raises(potl.StorageError, match=r"\(if it serves with a certificate, .*https"):
            recorded.verify(where.replace("https:", "http:"))


def test_a_state_that_was_there_and_is_withheld_rejects(recorded: Recorded, tmp_path: Path) -> None:
    run = shutil.copytree(recorded.run, tmp_path / "run")

    def change(path: str, raw: bytes) -> Iterator[bytes]:
        if path == "/v1/log":  # after the listing
            shutil.rmtree(run / "checkpoints", ignore_errors=True)
        yield raw

    with served(run) as where, proxied(where, change) as proxy:
        report = recorded.verify(proxy.url)
    assert report.verdict == "rejected", report.json()
    assert rejected_by(report.findings) == {"transcript.withheld"}


@pytest.mark.parametrize("end", ["", "/"])
def test_a_proxy_may_show_a_run_below_a_path(recorded: Recorded, url: str, end: str) -> None:
    with proxied(url) as proxy:
        proxy.below = "/runs/042"
        report = recorded.verify(proxy.url + proxy.below + end)
        assert report.verdict == "accepted", report.json()
        assert proxy.asked and all(one.startswith("/runs/042/v1/") for one in proxy.asked)


def test_a_run_that_is_gone_as_a_whole_gives_no_verdict(recorded: Recorded, url: str) -> None:
    def change(path: str, raw: bytes) -> Iterator[bytes]:
        if path != "/v1/run" and "/v1/log" in proxy.sent:
            raw = b"HTTP/1.1 404 Not Found\r\nPotl-Job: %s\r\nContent-Length: 0\r\n\r\n" % job
        yield raw

    job = recorded.job.id.hex().encode()
    with proxied(url, change) as proxy:
        report = recorded.verify(proxy.url)
    assert report.verdict == "inconclusive", report.json()


def test_a_tampered_state_rejects_as_on_the_disk(recorded: Recorded, tmp_path: Path) -> None:
    run = shutil.copytree(recorded.run, tmp_path / "run")
    for path in (run / "checkpoints").iterdir():
        raw = bytearray(path.read_bytes())
        raw[-1] ^= 1
        path.write_bytes(raw)
    with served(run) as where:
        there, here = recorded.verify(where), recorded.verify(run)
    assert (there.verdict, rejected_by(there.findings)) == ("rejected", rejected_by(here.findings))


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return Scene(
        tmp_path_factory.mktemp("scene"), attack_tasks.plain, checkpoint_every=2, samples=24
    )


CHEATS = ["A17 invented loss curve", "A30 swapped checkpoint", "A25"]


@pytest.mark.parametrize("start", CHEATS)
def test_cheats_of_the_catalogue_fall_over_http_for_their_reason(scene: Scene, start: str) -> None:
    item = next(one for one in catalogue() if f"{one.id} {one.name}".startswith(start))
    if item.task != "plain":
        pytest.skip(f"{start} needs another scene")
    forgery = item.make(scene)
    with served(forgery.run) as where:
        elsewhere: Any = where
        report = scene.verify(dataclasses.replace(forgery, run=elsewhere))
    assert report.verdict == item.verdict == "rejected", report.sentence
    stopping = [f for f in report.findings if f.result == "reject" and f.check != "telemetry"]
    assert {f.rule for f in stopping} <= set(item.found_by), [f.reason for f in stopping]


def test_a_challenge_is_drawn_and_answered_over_http(tmp_path: Path) -> None:
    pytest.importorskip("potl._torch", reason="potl was built without torch")
    job = potl.Job.create(
        tasks.build, seed=5, checkpoint_every=2, store_every=8, arithmetic="ord32"
    )
    run = potl.record(tasks.build, tmp_path / "run", job=job)
    note = run.commit()
    ledger = tmp_path / "ledger.json"
    with served(run.path) as where:
        drawn = potl.challenge(where, job=job, commitment=note, checks=CHECKS, ledger=ledger)
        assert drawn.states
        # The server goes on: it shows what is derived meanwhile.
        potl.rederive(run.path, task=tasks.build, challenge=drawn)
        report = potl.verify(
            where,
            job=job,
            commitment=note,
            task=tasks.build,
            challenge=drawn,
            ledger=ledger,
            policy=potl.Policy(probability=0),
        )
    assert report.verdict == "accepted", report.json()


def test_an_interrupt_while_something_comes_ends_the_verification(
    recorded: Recorded, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch = potl._remote._mirror.Mirror.fetch

    def interrupted(self: Any, name: str, *place: int) -> None:
        if name.startswith("checkpoints/"):
            raise KeyboardInterrupt
        fetch(self, name, *place)

    monkeypatch.setattr(potl._remote._mirror.Mirror, "fetch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        recorded.verify(url)


def test_importing_potl_imports_no_network(tmp_path: Path) -> None:
    import subprocess
    import sys

    program = (
        "import sys, potl, potl._cli._cli; potl.Remote; potl.serve\n"
        "print(sorted({'httpx', 'fastapi', 'uvicorn', 'fsspec', 'asyncio'} & set(sys.modules)))"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert said.stdout.strip() in ("[]", "['asyncio']"), said.stdout + said.stderr


def test_a_server_leaves_nothing_in_memory(url: str) -> None:
    """Cookies would be sent again with all that is asked for, more of them each time."""

    def change(path: str, raw: bytes) -> Iterator[bytes]:
        yield raw.replace(b"\r\n", b"\r\nSet-Cookie: seen=1; Path=/\r\n", 1)

    with proxied(url, change) as proxy:
        server = Http(proxy.url, token=None, key=None, ca=None, timeout=60.0)
        with contextlib.closing(server):
            assert server.sizes()
            assert len(server._client.cookies) == 0


def test_what_an_interrupt_left_ends_with_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun = threading.Event()

    async def silent(*_: Any) -> None:
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(3600)

    monkeypatch.setattr(Http, "_once", silent)
    server = Http("http://127.0.0.1:1", token=None, key=None, ca=None, timeout=30.0)
    request = server._answered("/v1/run", lambda: None, lambda _: None, limit=1)
    asking = asyncio.run_coroutine_threadsafe(request, server._loop)
    assert begun.wait(600)
    asking.cancel()  # as an interrupt does
    server.close()
    assert asyncio.all_tasks(server._loop) == set()
