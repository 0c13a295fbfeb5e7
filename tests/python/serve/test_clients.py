# SPDX-License-Identifier: Apache-2.0
"""Clients that stall, crowd or send what no library would, and how a server ends."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import signal
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import transcript_helpers as helpers
from serving import Server, raw_request, taken

import potl
from potl import _core
from potl._cli import _cli
from potl._serve._limits import Gate, ServeLimits, refuse

JOB = _core.Job.parse(helpers.job_text())
# A request that stalls is cut after this; others must not wait for it.
REQUESTS, STALL_SECONDS = 8, 1.0
OF_ONE = 7  # of one address
LARGE = 64 << 20  # more than what sockets hold on the way


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("clients") / "run"
    helpers.record_run(path, JOB)
    (path / "secret").write_text("classified")
    # What is not bound by the log may have any size.
    with (path / "telemetry.log").open("wb") as file:
        file.truncate(LARGE)
    return path


@pytest.fixture(scope="module")
def server(run: Path) -> Iterator[Server]:
    """One with small limits, in a process of its own."""
    started = Server.limited(run, ServeLimits(requests=REQUESTS, stall_seconds=STALL_SECONDS))
    yield started
    assert started.end() == (0, "")


@pytest.fixture(scope="module")
def patient(run: Path) -> Iterator[Server]:
    """Who holds the line gives up before this one does, however slow the machine is."""
    started = Server.limited(run, ServeLimits(requests=REQUESTS, stall_seconds=600.0))
    yield started
    assert started.end() == (0, "")


@pytest.fixture
def url(server: Server) -> str:
    return server.url


def connected(url: str) -> socket.socket:
    place = urlsplit(url)
    return socket.create_connection((place.hostname or "", place.port or 0), timeout=60)


def status_of(url: str, path: str = "/v1/run", host: str | None = None) -> int:
    place = urlsplit(url)
    with contextlib.closing(http.client.HTTPConnection(place.netloc)) as connection:
        connection.request("GET", path, headers={} if host is None else {"Host": host})
        return connection.getresponse().status


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "localhost.evil.example", ""])
def test_a_web_page_whose_name_leads_to_this_machine_reads_nothing(url: str, host: str) -> None:
    assert status_of(url, host=host) == 421


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8470", "127.0.0.1:1", "[::1]:8470", "0.0.0.0:8470"]
)
def test_this_machine_may_have_any_of_its_own_names(url: str, host: str) -> None:
    assert status_of(url, host=host) == 200


def test_a_client_that_uses_another_name_is_told_which_to_use(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "job.json").write_bytes(helpers.job_text())
    found = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *a, **o: found("127.0.0.1", *a, **o))
    named = url.replace("127.0.0.1", "trainer.example")
    with pytest.raises(potl.UsageError, match=r"by that name .*localhost"):
        potl.verify(named, job=tmp_path / "job.json", ledger=None)


@pytest.mark.parametrize(
    ("more", "status"), [({}, 421), ({"token": "t"}, 204), ({"sealed": True}, 204)]
)
def test_who_needs_a_key_may_ask_by_any_name(more: dict[str, Any], status: int) -> None:
    async def inner(scope: Any, receive: Any, send: Any) -> None:
        await refuse(send, 204, "")

    gate: Any = Gate(inner, job="", **{"token": None, "limits": ServeLimits(), **more})
    said: list[Any] = []

    async def send(message: Any) -> None:
        said.append(message)

    headers = [(b"host", b"evil.example"), (b"authorization", b"Bearer t")]
    scope = {"type": "http", "server": ("127.0.0.1", 1), "client": None, "headers": headers}
    asyncio.run(gate(scope, None, send))
    assert said[0]["status"] == status


PATHS = [
    b"/../secret",
    b"/v1/../../secret",
    b"/v1/checkpoints/../secret",
    b"/v1/checkpoints/..%2fsecret/0",
    b"/%2e%2e/secret",
    b"//secret",
    b"/v1/log/../../secret",
    b"/v1/rounding/..%5c..%5csecret",
    b"http://elsewhere/secret",
    b"/v1/checkpoints/4\x00/0",
    b"/v1/checkpoints/%00/0",
    b"/" + b"a" * 60_000,
]


@pytest.mark.parametrize("path", PATHS)
def test_no_path_leads_elsewhere(url: str, path: bytes) -> None:
    answer = raw_request(
        url, b"GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % path
    )
    assert not answer or int(answer.split()[1]) in (400, 404, 422), answer[:200]
    assert b"classified" not in answer


@pytest.mark.parametrize(
    "text",
    [
        b"\x16\x03\x01\x00\xff garbage\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /v1/run HTTP/1.1\r\n" + b"X: y\r\n" * 20_000 + b"\r\n",
        b"POST /v1/run HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
        b"Connection: close\r\n\r\nhello",
        b"DELETE /v1/log HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    ],
    ids=["TLS", "half a line", "many headers", "a body", "another method"],
)
def test_what_no_client_sends_harms_nobody(url: str, text: bytes) -> None:
    answer = raw_request(url, text)
    assert not answer or int(answer.split()[1]) in (400, 405, 431), answer[:200]
    assert status_of(url) == 200


def test_clients_that_stall_block_nobody_and_are_cut(server: Server, url: str) -> None:
    """Some ask for much and take nothing, some do not finish asking."""
    before = server.files()
    with contextlib.ExitStack() as held:
        # With the one below no more than may be connected: nobody is cut to make room.
        takers = [held.enter_context(connected(url)) for _ in range(3)]
        askers = [held.enter_context(connected(url)) for _ in range(REQUESTS - 4)]
        for one in takers:
            one.sendall(b"GET /v1/telemetry HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for one in askers:
            one.sendall(b"GET /v1/run HT")
        for _ in range(3):
            assert status_of(url) == 200
        for one in askers:
            assert taken(one) == b""
        # Nothing is taken until the other side has given up, and then it holds nothing any more.
        for _ in range(600):
            if server.files() <= before:
                break
            time.sleep(0.05)
        assert server.files() <= before
        for one in takers:
            assert len(taken(one)) < LARGE
    assert status_of(url) == 200


def test_a_client_that_asks_again_at_once_is_answered(url: str) -> None:
    """The next request is there before the server is done with the last one."""
    ask = b"GET /v1/run HTTP/1.1\r\nHost: localhost\r\n%s\r\n"
    answers = raw_request(url, 3 * (ask % b"") + ask % b"Connection: close\r\n")
    assert answers.count(b"HTTP/1.1 200") == 4


class Clients:
    """Of a gate, each with an address. What they ask for is answered when it is `done`; what they
    are sent, nobody takes.
    """

    def __init__(self) -> None:
        self.done, self.answers = asyncio.Event(), list[int]()
        self._gate: Any = Gate(
            self._inner, job="", token=None, limits=ServeLimits(requests=REQUESTS)
        )

    async def ask(self, address: str, path: str = "/") -> None:
        async def send(message: Any) -> None:
            if "status" in message:
                self.answers.append(message["status"])
            elif path == "/much":
                await asyncio.Event().wait()

        async def receive() -> Any:
            if path == "/half":
                await asyncio.Event().wait()
            return {"type": "http.request", "body": b"", "more_body": False}

        await self._gate(
            {"type": "http", "headers": [], "client": (address, 1), "path": path}, receive, send
        )

    async def begin(
        self, address: str, path: str = "/", count: int = 1
    ) -> list[asyncio.Task[None]]:
        tasks = [asyncio.create_task(self.ask(address, path)) for _ in range(count)]
        for _ in range(9):
            await asyncio.sleep(0)
        return tasks

    async def _inner(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await receive()
        except Exception:  # as starlette does
            await refuse(send, 500, "it failed")
            raise
        if scope["path"] == "/":
            await self.done.wait()
        await refuse(send, 404, "nothing")


def test_more_requests_than_are_answered_at_a_time_are_told_to_come_back() -> None:
    async def go() -> list[int]:
        clients = Clients()
        running = [*await clients.begin("a", count=OF_ONE), *await clients.begin("b")]
        running += await clients.begin("c")
        clients.done.set()
        await asyncio.gather(*running)
        await clients.ask("c")
        return clients.answers

    assert asyncio.run(go()) == [503, *([404] * (REQUESTS + 1))]


def test_of_many_that_ask_in_one_moment_no_more_are_answered() -> None:
    """Who is told to come back has no place that another could take."""

    async def go() -> list[int]:
        clients = Clients()
        running = await clients.begin("a", count=4 * REQUESTS)
        clients.done.set()
        await asyncio.gather(*running)
        return clients.answers

    assert sorted(asyncio.run(go())) == [*([404] * OF_ONE), *([503] * (4 * REQUESTS - OF_ONE))]


@pytest.mark.parametrize(
    ("many", "other"),
    [
        (["192.0.2.1"], "192.0.2.2"),
        # A machine has all addresses of its network.
        ([f"2001:db8:0:1::{one}" for one in range(OF_ONE + 1)], "2001:db8:0:2::1"),
        (["::ffff:192.0.2.1"], "::ffff:192.0.2.2"),
        (["fe80::1%eth0"], "fe80::2%eth0"),
    ],
    ids=["IPv4", "IPv6", "IPv4 in IPv6", "link-local"],
)
def test_one_address_leaves_places_to_others(many: list[str], other: str) -> None:
    async def go() -> list[int]:
        clients = Clients()
        running = []
        for place in range(OF_ONE + 1):
            running += await clients.begin(many[place % len(many)])
        assert clients.answers == [503]
        running += await clients.begin(other)
        clients.done.set()
        await asyncio.gather(*running)
        return clients.answers

    assert asyncio.run(go()) == [503, *([404] * REQUESTS)]


@pytest.mark.parametrize("path", ["/much", "/half"])
def test_an_address_that_has_its_places_cuts_no_other(path: str) -> None:
    async def go() -> None:
        clients = Clients()
        others = await clients.begin("b", path)
        own = await clients.begin("a", path, OF_ONE)
        more = await clients.begin("a", path)
        await asyncio.wait(own[:1], timeout=10)  # it is told why
        assert own[0].done() and not any(one.done() for one in [*others, *own[1:], *more])
        for one in [*others, *own, *more]:
            one.cancel()

    asyncio.run(go())


@pytest.mark.parametrize("path", ["/much", "/half"])
def test_who_neither_takes_nor_sends_keeps_nobody_out(path: str) -> None:
    async def go() -> list[int]:
        clients = Clients()
        slow = [await clients.begin(f"192.0.2.{one}", path) for one in range(REQUESTS)]
        running = await clients.begin("c", count=2)
        clients.done.set()
        await asyncio.gather(*running)
        for [one] in slow:
            one.cancel()
        return clients.answers

    answers = asyncio.run(go())
    assert answers[-2:] == [404, 404]


def test_who_is_cut_is_told_to_come_back() -> None:
    async def go() -> list[int]:
        clients = Clients()
        slow = await clients.begin("a", "/half", OF_ONE)
        slow += await clients.begin("b", "/half")
        await clients.begin("c")
        await asyncio.wait(slow, timeout=10, return_when=asyncio.FIRST_COMPLETED)
        for one in slow:
            one.cancel()
        return clients.answers

    assert asyncio.run(go()) == [503]


@pytest.mark.parametrize("ticks", range(6))
def test_who_has_just_sent_all_is_cut_in_the_place_of_nobody(ticks: int) -> None:
    async def go() -> list[int]:
        clients = Clients()
        slow = await clients.begin("a", "/half", REQUESTS - 1)
        slow += await clients.begin("b", "/half")
        slow[0].cancel()
        clients.done.set()
        for _ in range(ticks):
            await asyncio.sleep(0)
        await clients.ask("c")
        for one in slow:
            one.cancel()
        return clients.answers

    assert 404 in asyncio.run(go())


@pytest.mark.parametrize("path", ["/much", "/half"])
def test_addresses_that_have_more_requests_cut_none_that_has_fewer(path: str) -> None:
    async def go() -> None:
        clients = Clients()
        one = await clients.begin("one", path)
        many = [(await clients.begin("ab"[number % 2], path))[0] for number in range(3 * REQUESTS)]
        assert not one[0].done()
        await asyncio.wait(many[:REQUESTS], timeout=10)
        assert all(other.done() for other in many[:REQUESTS])
        for other in [*one, *many]:
            other.cancel()

    asyncio.run(go())


def test_connections_of_one_address_end_none_of_another(patient: Server) -> None:
    place = urlsplit(patient.url)
    with contextlib.ExitStack() as held:
        slow = held.enter_context(
            socket.create_connection(
                (place.hostname or "", place.port or 0), 60, source_address=("127.0.0.2", 0)
            )
        )
        slow.sendall(b"GET /v1/run HT")
        holding = [held.enter_context(connected(patient.url)) for _ in range(6 * REQUESTS)]
        # The oldest of them has given way, as the oldest of all would have before it.
        assert taken(holding[0]) == b""
        slow.sendall(b"TP/1.1\r\nHost: localhost\r\n\r\n")
        assert slow.recv(12) == b"HTTP/1.1 200"


def test_who_does_not_set_up_tls_keeps_nobody_out(run: Path, tmp_path: Path) -> None:
    """Nor takes a file for each connection, of which a process has few."""
    trustme = pytest.importorskip("trustme")
    authority, both = trustme.CA(), tmp_path / "both.pem"
    mine = authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem
    mine.write_to_path(str(both))
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    limits = ServeLimits(requests=REQUESTS, stall_seconds=600.0)
    server = Server.limited(run, limits, tls_cert=str(both), tls_key=str(both))
    files, place = server.files(), urlsplit(server.url)
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    with contextlib.ExitStack() as held:
        slow = held.enter_context(
            socket.create_connection(
                (place.hostname or "", place.port or 0), 60, source_address=("127.0.0.2", 0)
            )
        )
        holding = [held.enter_context(connected(server.url)) for _ in range(20 * REQUESTS)]
        # The oldest of them has given way, as the oldest of all would have before it.
        assert taken(holding[0]) == b""
        with context.wrap_socket(slow, server_hostname="127.0.0.1") as one:
            one.sendall(b"GET /v1/run HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert one.recv(12) == b"HTTP/1.1 200"
        assert server.files() - files <= 3 * REQUESTS
    assert server.end() == (0, "")


def test_who_is_answered_slowly_ends_no_connection_of_another(patient: Server) -> None:
    """Such connections are not waited for: what comes then would end the only one that is."""
    place = urlsplit(patient.url)

    def of(address: str) -> socket.socket:
        return held.enter_context(
            socket.create_connection(
                (place.hostname or "", place.port or 0), 60, source_address=(address, 0)
            )
        )

    with contextlib.ExitStack() as held:
        for number in range(REQUESTS):
            one = of(f"127.0.0.{3 + number % 2}")
            one.sendall(b"GET /v1/telemetry HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert one.recv(12)
        slow = of("127.0.0.2")
        slow.sendall(b"GET /v1/run HT")
        for number in range(4):
            of(f"127.0.0.{3 + number % 2}")
        status_of(patient.url)  # by now they are connected
        slow.sendall(b"TP/1.1\r\nHost: localhost\r\n\r\n")
        assert slow.recv(12) == b"HTTP/1.1 200"


def test_whoever_asks_is_answered_though_many_take_nothing(patient: Server) -> None:
    """In a dispute it might be one party that keeps the other one from its turn."""
    with contextlib.ExitStack() as held:
        for _ in range(3 * REQUESTS):
            one = held.enter_context(connected(patient.url))
            one.sendall(b"GET /v1/telemetry HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert one.recv(12)
            # Until what is on its way to the others fills their sockets, they do take something.
            assert any(status_of(patient.url) == 200 for _ in range(200))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"GET /v1/run HT",
        b"POST /v1/run HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhell",
    ],
    ids=["nothing", "half a line", "half a body"],
)
def test_whoever_asks_is_answered_though_many_hold_the_line(patient: Server, text: bytes) -> None:
    """More of them than may be connected."""
    with contextlib.ExitStack() as held:
        holding = [held.enter_context(connected(patient.url)) for _ in range(6 * REQUESTS)]
        for one in holding:
            with contextlib.suppress(ConnectionError):
                one.sendall(text)
        if b"\r\n\r\n" in text:
            # Who asked for something is told that it is not there, or cut, and holds the line then.
            for one in holding:
                with contextlib.suppress(ConnectionError):
                    one.recv(1)
            # Requests of those who were cut are counted until they notice.
            assert any(status_of(patient.url) == 200 for _ in range(200))
        for _ in range(3):
            assert status_of(patient.url) == 200


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_while_somebody_takes_nothing(run: Path, number: int) -> None:
    server = Server(run)
    with connected(server.url) as one:
        one.sendall(b"GET /v1/telemetry HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert one.recv(12) == b"HTTP/1.1 200"
        code, _ = server.end(number)
    assert code == 0


BAD: list[list[str]] = [
    ["--listen", "nowhere"],
    ["--listen", "127.0.0.1:70000"],
    ["--tls-cert", "cert.pem"],
    ["--tls-cert", "none.pem", "--tls-key", "none.pem"],
    ["--token-file", "none"],
]


@pytest.mark.parametrize("options", BAD, ids=" ".join)
def test_what_cannot_be_served_is_said(
    run: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert _cli.run(["serve", str(run), *options]) == 2
    assert capsys.readouterr().err.startswith("potl: ")


def test_a_short_token_and_no_run_are_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(potl.UsageError, match="token"):
        potl.serve(run, token="short")
    with pytest.raises(potl.UsageError):
        potl.serve(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(potl.PotlError):
        potl.serve(tmp_path / "empty")


def test_a_taken_address_is_an_error(run: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as other,
        pytest.raises(potl.StorageError, match="listen"),
    ):
        potl.serve(run, listen=f"127.0.0.1:{other.getsockname()[1]}")


@pytest.mark.parametrize("name", ["fastapi", "uvicorn"])
def test_a_missing_library_is_named_with_the_command(
    run: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(potl.UsageError, match=r"potl\[serve\]"):
        potl.serve(run)


@pytest.mark.parametrize(
    ("name", "url", "extra"),
    [("httpx", "http://127.0.0.1:1", "remote"), ("fsspec", "memory://x/y", "storage")],
)
def test_so_is_one_that_reads(
    name: str, url: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(potl.UsageError, match=rf"potl\[{extra}\]"):
        potl.verify(url)
