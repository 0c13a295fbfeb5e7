# SPDX-License-Identifier: Apache-2.0
"""What a network or a server does wrong rejects nobody, accepts nobody, and ends."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import driver_tasks as tasks
import pytest
from serving import Recorded, proxied, served

import potl
from potl._remote._http import Http
from potl._remote._remote import again, opened

QUICK: dict[str, Any] = {"checks": [potl.Replay(samples=1, top_q=0, reach=0)]}
LISTING, LOG, STATE = "/v1/run", "/v1/log", "/v1/checkpoints/"

Fault = Callable[[bytes], Iterator[bytes]]


def head_and_body(raw: bytes) -> tuple[bytes, bytes]:
    head, _, body = raw.partition(b"\r\n\r\n")
    return head, body


def with_head(raw: bytes, old: bytes, new: bytes) -> bytes:
    head, body = head_and_body(raw)
    assert old.lower() in head.lower(), head
    at = head.lower().index(old.lower())
    return head[:at] + new + head[at + len(old) :] + b"\r\n\r\n" + body


def closed_at_once(raw: bytes) -> Iterator[bytes]:
    yield b""


def cut_in_the_head(raw: bytes) -> Iterator[bytes]:
    yield raw[:20]


def cut_in_the_body(raw: bytes) -> Iterator[bytes]:
    yield raw[:-1]


def without_body(raw: bytes) -> Iterator[bytes]:
    yield head_and_body(raw)[0] + b"\r\n\r\n"


def a_byte_at_a_time(raw: bytes) -> Iterator[bytes]:
    for at in range(len(raw)):
        yield raw[at : at + 1]
        time.sleep(0.2)


def a_slow_body(raw: bytes) -> Iterator[bytes]:
    head, body = head_and_body(raw)
    yield head + b"\r\n\r\n"
    yield from a_byte_at_a_time(body)


def silent(raw: bytes) -> Iterator[bytes]:
    time.sleep(1.5)
    yield b""


def a_head_without_end(raw: bytes) -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\n"
    for number in range(100_000):
        yield b"X-%d: %s\r\n" % (number, b"x" * 1000)


def announces_more(raw: bytes) -> Iterator[bytes]:
    size = len(head_and_body(raw)[1])
    yield with_head(raw, b"content-length: %d" % size, b"content-length: %d" % (size + 7))


def announces_less(raw: bytes) -> Iterator[bytes]:
    size = len(head_and_body(raw)[1])
    yield with_head(raw, b"content-length: %d" % size, b"content-length: %d" % (size - 7))


def announces_nothing(raw: bytes) -> Iterator[bytes]:
    yield with_head(raw, b"content-length:", b"x-length:")


def announces_a_word(raw: bytes) -> Iterator[bytes]:
    yield with_head(raw, b"content-length:", b"content-length: many\r\nx-length:")


def a_portals_page(raw: bytes) -> Iterator[bytes]:
    body = b"<html>log in</html>"
    yield b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def a_portals_404(raw: bytes) -> Iterator[bytes]:
    yield b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"


def about_another_run(raw: bytes) -> Iterator[bytes]:
    head, body = head_and_body(raw)
    at = head.lower().index(b"potl-job: ") + 10
    yield head[:at] + b"00" * 32 + head[at + 64 :] + b"\r\n\r\n" + body


def compressed(raw: bytes) -> Iterator[bytes]:
    yield with_head(raw, b"content-length:", b"content-encoding: gzip\r\ncontent-length:")


def garbage(raw: bytes) -> Iterator[bytes]:
    yield b"\x16\x03\x01" + bytes(range(256)) * 4


def fails(raw: bytes) -> Iterator[bytes]:
    yield b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n"


FAULTS = [
    closed_at_once,
    cut_in_the_head,
    cut_in_the_body,
    without_body,
    a_byte_at_a_time,
    a_slow_body,
    silent,
    a_head_without_end,
    announces_more,
    announces_less,
    announces_nothing,
    announces_a_word,
    a_portals_page,
    a_portals_404,
    about_another_run,
    compressed,
    garbage,
    fails,
]
# What lasts until nobody waits any more.
SLOW = [a_byte_at_a_time, a_slow_body, silent]


def hurry(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Answers of one path alone may take half a second: others take what the machine needs."""
    once = Http._once

    async def hurried(self: Http, path: str, *given: Any, **options: Any) -> None:
        self._timeout = 0.5 if path.startswith(where) else 60.0
        await once(self, path, *given, **options)

    monkeypatch.setattr(Http, "_once", hurried)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda one: one.__name__)
@pytest.mark.parametrize("where", [LISTING, LOG, STATE])
def test_a_fault_gives_no_verdict(
    recorded: Recorded, url: str, fault: Fault, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault in SLOW:
        hurry(monkeypatch, where)

    def change(path: str, raw: bytes) -> Iterator[bytes]:
        yield from fault(raw) if path.startswith(where) else iter([raw])

    with proxied(url, change) as proxy:
        try:
            report = recorded.verify(proxy.url, **QUICK)
        except (potl.StorageError, potl.MalformedError) as error:
            assert where != STATE, error
            return
    assert report.verdict == "inconclusive", report.sentence
    assert where == STATE


@pytest.mark.parametrize("late", [False, True])
def test_what_comes_behind_an_answer_is_not_the_next_one(
    recorded: Recorded, url: str, late: bool
) -> None:
    """Two states have one size, and the wrong one would reject the run."""

    def change(path: str, raw: bytes) -> Iterator[bytes]:
        again = raw if path.startswith(STATE) else b""
        yield raw if late else raw + again
        if late:
            time.sleep(0.02)
            yield again

    with proxied(url, change) as proxy:
        proxy.keeps = True
        report = recorded.verify(proxy.url)
    assert report.verdict == "accepted", report.sentence


@pytest.mark.parametrize("where", [LISTING, LOG, STATE])
def test_redirections_are_not_followed(recorded: Recorded, url: str, where: str) -> None:
    """Not even to where the run is."""

    def change(path: str, raw: bytes) -> Iterator[bytes]:
        if path.startswith(where):
            raw = f"HTTP/1.1 302 Found\r\nLocation: {url}{path}\r\n".encode()
            raw += b"Content-Length: 0\r\n\r\n"
        yield raw

    with proxied(url, change) as proxy:
        if where == STATE:
            assert recorded.verify(proxy.url, **QUICK).verdict == "inconclusive"
        else:
            with pytest.raises(potl.StorageError, match="elsewhere"):
                recorded.verify(proxy.url, **QUICK)


@pytest.mark.parametrize("where", ["/v1/telemetry", STATE])
@pytest.mark.parametrize("status", [401, 403])
def test_who_is_turned_away_in_the_middle_rejects_nobody(
    recorded: Recorded, url: str, where: str, status: int
) -> None:
    """A proxy may do that, or a server that was started anew with another token."""

    def change(path: str, raw: bytes) -> Iterator[bytes]:
        if path.startswith(where):
            raw = b"HTTP/1.1 %d No\r\nContent-Length: 0\r\n\r\n" % status
        yield raw

    with proxied(url, change) as proxy:
        report = recorded.verify(proxy.url, **QUICK)
    assert report.verdict == "inconclusive", report.sentence
    assert f"status {status}" in report.json()


def test_a_server_that_fails_is_said_to_fail(recorded: Recorded, url: str) -> None:
    def change(path: str, raw: bytes) -> Iterator[bytes]:
        yield with_head(raw, b"HTTP/1.1 200 OK", b"HTTP/1.1 500 Oh")

    said = r"status 500 \(ask who serves it"
    with proxied(url, change) as proxy, pytest.raises(potl.StorageError, match=said):
        recorded.verify(proxy.url, **QUICK)


def test_an_address_of_another_jobs_run_accuses_nobody(recorded: Recorded, tmp_path: Path) -> None:
    job = potl.Job.create(tasks.build, seed=8, checkpoint_every=2)
    other = potl.record(tasks.build, tmp_path / "other", job=job)
    said = r"about the run .*\(see that the address"
    with served(other.path) as url, pytest.raises(potl.StorageError, match=said):
        recorded.verify(url, **QUICK)


@pytest.mark.parametrize("workers", [0, 1])
def test_states_of_another_run_in_the_middle_reject_nobody(
    recorded: Recorded, url: str, workers: int
) -> None:
    """A server may have been started anew with another run; workers ask it by themselves."""

    def change(path: str, raw: bytes) -> Iterator[bytes]:
        if path.startswith(STATE):
            raw = b"".join(about_another_run(raw[:-1] + bytes([raw[-1] ^ 1])))
        yield raw

    with proxied(url, change) as proxy:
        report = recorded.verify(proxy.url, workers=workers, **QUICK)
    assert report.verdict == "inconclusive", report.sentence


def test_sizes_that_a_server_invents_cost_a_worker_no_room(recorded: Recorded, url: str) -> None:
    most = 1 << 20

    def change(path: str, raw: bytes) -> Iterator[bytes]:
        if path == LISTING:
            head, body = head_and_body(raw)
            body = json.dumps({**json.loads(body), "job_bytes": 64 * most, "telemetry": 64 * most})
            head = re.sub(rb"(?i)(content-length: )[0-9]+", b"\\g<1>%d" % len(body), head)
            raw = head + b"\r\n\r\n" + body.encode()
        yield raw

    with proxied(url, change) as proxy, opened(proxy.url, recorded.job.core) as place:
        assert place.remote is not None
        own = again(place.remote, place.directory, recorded.job.core)
        for folder in (place.directory, own.directory):
            found = [one.stat() for one in folder.iterdir() if one.is_file()]
            assert sum(one.st_size for one in found) > 2 * 64 * most
            assert sum(one.st_blocks * 512 for one in found) < most


def another_range(raw: bytes) -> Iterator[bytes]:
    yield with_head(raw, b"content-range: bytes 0-", b"content-range: bytes 1-")


def no_range(raw: bytes) -> Iterator[bytes]:
    yield with_head(raw, b"HTTP/1.1 206 Partial Content", b"HTTP/1.1 200 OK")


@pytest.mark.parametrize("fault", [another_range, no_range], ids=lambda one: one.__name__)
def test_other_bytes_than_were_asked_for_give_no_verdict(
    recorded: Recorded, url: str, fault: Fault
) -> None:
    def change(path: str, raw: bytes) -> Iterator[bytes]:
        yield from fault(raw) if path.startswith(STATE) else iter([raw])

    with proxied(url, change) as proxy:
        report = recorded.verify(proxy.url, **QUICK)
    assert report.verdict == "inconclusive", report.sentence


def test_a_server_that_dies_in_the_middle_gives_no_verdict(recorded: Recorded, url: str) -> None:
    def change(path: str, raw: bytes) -> Iterator[bytes]:
        if not path.startswith(STATE):
            yield raw
            return
        yield raw[: len(raw) // 2]
        proxy.end()

    with proxied(url, change) as proxy:
        report = recorded.verify(proxy.url, **QUICK)
    assert report.verdict == "inconclusive", report.sentence


def test_a_connection_that_breaks_goes_on_where_it_broke(recorded: Recorded, url: str) -> None:
    broken: set[str] = set()

    def change(path: str, raw: bytes) -> Iterator[bytes]:
        if path in (LISTING, LOG) or path in broken:
            yield raw
            return
        broken.add(path)
        yield raw[:-100]

    with proxied(url, change) as proxy:
        report = recorded.verify(proxy.url, **QUICK)
    assert report.verdict == "accepted", report.sentence
    assert broken
    for path in broken:
        if path.startswith(STATE):
            size = (recorded.run / f"checkpoints/step-{path.split('/')[3]}.safetensors").stat()
            assert proxy.sent[path] < size.st_size + 2048


def relisted(change: Callable[[Any], object]) -> Callable[[str, bytes], Iterator[bytes]]:
    def changed(path: str, raw: bytes) -> Iterator[bytes]:
        if path != LISTING:
            yield raw
            return
        head, body = head_and_body(raw)
        document = json.loads(body)
        change(document)
        text = json.dumps(document).encode()
        new = head.replace(b"content-length: %d" % len(body), b"content-length: %d" % len(text))
        yield new + b"\r\n\r\n" + text

    return changed


BAD_LISTINGS: dict[str, Callable[[Any], object]] = {
    "another format": lambda d: d.update(format="potl-run-v2"),
    "no job": lambda d: d.pop("job"),
    "a negative size": lambda d: d.update(log=-1),
    "a size that is no number": lambda d: d.update(log="1"),
    "a size of no file": lambda d: d.update(log=1 << 62),
    "a path for a step": lambda d: d["checkpoints"][0].update(step="../../x"),
    "a negative step": lambda d: d["checkpoints"][0].update(step=-1),
    "a state twice": lambda d: d["checkpoints"].append(d["checkpoints"][0]),
    "more files than the job allows": lambda d: d["checkpoints"].extend(
        {"step": step, "branch": 0, "bytes": 1} for step in range(100, 5000)
    ),
    "no list": lambda d: d.update(checkpoints=3),
}


@pytest.mark.parametrize("what", BAD_LISTINGS)
def test_a_listing_that_is_none_is_an_error(recorded: Recorded, url: str, what: str) -> None:
    with proxied(url, relisted(BAD_LISTINGS[what])) as proxy:
        with pytest.raises((potl.MalformedError, potl.LimitError, potl.StorageError)):
            recorded.verify(proxy.url, **QUICK)
        assert set(proxy.sent) <= {LISTING, LOG}


def test_a_state_said_to_be_vast_is_not_brought(recorded: Recorded, url: str) -> None:
    """Its head alone is asked for, and that no longer than a head can be."""
    asked: list[str] = []

    def vast(document: Any) -> None:
        for one in document["checkpoints"]:
            one["bytes"] = 1 << 40

    inner = relisted(vast)

    def change(path: str, raw: bytes) -> Iterator[bytes]:
        asked.append(path)
        return inner(path, raw)

    with proxied(url, change) as proxy:
        report = recorded.verify(proxy.url, **QUICK)
    assert report.verdict == "inconclusive", report.sentence
    assert any(path.startswith(STATE) for path in asked)


def test_nobody_there_is_an_error(recorded: Recorded) -> None:
    with pytest.raises(potl.StorageError, match=r"\(see that potl serve runs there"):
        recorded.verify("http://127.0.0.1:1")


def test_an_address_below_the_run_has_a_remedy(recorded: Recorded, url: str) -> None:
    with pytest.raises(potl.MissingError, match=r"\(pass the address that potl serve printed"):
        recorded.verify(f"{url}/elsewhere")


def test_tls_where_there_is_none_has_a_remedy(recorded: Recorded, url: str) -> None:
    secure = url.replace("http:", "https:")
    with pytest.raises(potl.StorageError, match=r"\(if it serves without a certificate, .*http://"):
        recorded.verify(secure)


@pytest.mark.parametrize("text", ["http://name:word@127.0.0.1:1", "s3://key:secret@bucket/run"])
def test_a_password_in_a_url_is_refused(recorded: Recorded, text: str) -> None:
    """It would stand in the report."""
    with pytest.raises(potl.UsageError, match="report"):
        recorded.verify(text)


@pytest.mark.parametrize(
    "text", ["http://", "ftp//x", "://x"], ids=["no host", "no scheme", "nothing before"]
)
def test_what_is_no_url_is_a_directory_that_is_not_there(recorded: Recorded, text: str) -> None:
    with pytest.raises(potl.UsageError, match=r"\(check the path, and that potl record has begun"):
        recorded.verify(text)
