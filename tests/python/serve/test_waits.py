# SPDX-License-Identifier: Apache-2.0
"""Who waits for news keeps nobody out."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from arguing import Case, StillClock

from potl import _core
from potl._base._errors import MissingError
from potl._dispute._away import DISPUTES, joining
from potl._dispute._seat import Seat
from potl._serve._app import application as served
from potl._serve._docket import Docket
from potl._serve._hosting import application
from potl._serve._limits import Gate, ServeLimits, Waits

pytest.importorskip("potl._torch", reason="potl was built without torch")

# As many as the real server answers at a time, and the longest wait that may be asked for.
REQUESTS, WAIT = 64, 20.0
# Much less: whoever had to wait for somebody else's wait to end would be late.
AT_ONCE = 10.0


class Room:
    """A referee behind its gate, and a dispute that it holds."""

    def __init__(self, case: Case, clients: list[httpx.AsyncClient]) -> None:
        self.case, self.name, self.nonce = case, "", bytes(32)
        self._clients = itertools.cycle(clients)

    @property
    def client(self) -> httpx.AsyncClient:
        """One after the other: no address has all places."""
        return next(self._clients)

    async def join(self, who: str, wait: float = 0) -> httpx.Response:
        run = {"trainer": "false", "auditor": "audit"}[who]
        note = (self.case.folder / run / "commitment").read_text()
        key = _core.SigningKey.from_pem((self.case.folder / f"{who}.pem").read_text())
        text = joining(self.case.job.id, self.case.key("referee"), note, self.nonce)
        query = {
            "who": who,
            "nonce": self.nonce.hex(),
            "signature": key.sign(text).hex(),
            "wait": wait,
        }
        answer = await self.client.post(DISPUTES, params=query, content=note.encode())
        if answer.status_code == 200:
            self.nonce = bytes.fromhex(answer.json()["nonce"])
        return answer

    async def lines(self, after: int = 0, wait: float = 0) -> httpx.Response:
        path = f"{DISPUTES}/{self.name}/lines"
        return await self.client.get(path, params={"after": after, "wait": wait})


@contextlib.asynccontextmanager
async def opened(case: Case, folder: Path) -> AsyncIterator[Room]:
    keys: Any = {name: case.key(name) for name in ("trainer", "auditor")}
    docket = Docket(case.referee, keys=keys, folder=folder, turn_seconds=60, clock=StillClock())
    with contextlib.closing(docket):
        app: Any = application(docket, token=None, limits=ServeLimits(requests=REQUESTS))
        async with docket.running(), contextlib.AsyncExitStack() as stack:
            transports = [httpx.ASGITransport(app=app, client=(one, 1)) for one in ("a", "b")]
            clients = [
                httpx.AsyncClient(transport=one, base_url="http://x", timeout=60)
                for one in transports
            ]
            room = Room(case, [await stack.enter_async_context(one) for one in clients])
            await room.join("trainer")
            yield room


def within(case: Case, folder: Path, test: Callable[[Room], Awaitable[None]]) -> None:
    async def go() -> None:
        async with opened(case, folder) as room:
            await test(room)

    asyncio.run(go())


@contextlib.asynccontextmanager
async def waiting(calls: list[Any]) -> AsyncIterator[list[asyncio.Task[httpx.Response]]]:
    """Requests that have been taken in, the first one first."""
    tasks = [asyncio.create_task(one) for one in calls]
    for _ in range(20):
        await asyncio.sleep(0.02)
    try:
        yield tasks
    finally:
        for one in tasks:
            one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def at_once(call: Awaitable[httpx.Response]) -> httpx.Response:
    answer = await asyncio.wait_for(call, AT_ONCE)
    assert answer.status_code == 200, answer.text
    return answer


def test_polls_of_a_dispute_keep_the_other_party_from_nothing(case: Case, tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        await room.join("trainer")
        room.name = (await room.join("auditor")).json()["dispute"]
        text = (await room.lines()).text
        seat = Seat(case.party("trainer"), case.key("referee"))
        keys: Any = {name: case.key(name) for name in ("trainer", "auditor")}
        assert seat.hear(keys, 0, text.splitlines()) == 1
        async with waiting([room.lines(1, WAIT) for _ in range(REQUESTS)]) as polls:
            assert not any(one.done() for one in polls)
            assert (await at_once(room.lines())).text == text
            # One more wait: who has waited longest, of its address, has an answer, and asks again.
            async with waiting([room.lines(1, WAIT)]) as more:
                longest = polls.pop(1)
                assert (await at_once(longest)).text == ""
                assert not any(one.done() for one in [*polls, *more])
                path = f"{DISPUTES}/{room.name}/messages"
                message = (seat.message() or "").encode()
                assert (await at_once(room.client.post(path, content=message))).json() == {
                    "lines": 2
                }
                for one in [*polls, *more]:
                    assert (await at_once(one)).text.count("\n") == 1

    within(case, tmp_path / "lines", test)


def test_who_waits_for_the_other_party_does_not_keep_it_out(case: Case, tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        async with waiting([room.join("trainer", WAIT) for _ in range(REQUESTS)]) as polls:
            assert not any(one.done() for one in polls)
            async with waiting([room.join("trainer", WAIT)]) as more:
                early, late = await asyncio.wait(
                    [*polls, *more], timeout=AT_ONCE, return_when=asyncio.FIRST_COMPLETED
                )
                assert [one.result().json()["dispute"] for one in early] == [None]
                name = (await at_once(room.join("auditor"))).json()["dispute"]
                assert name is not None
                for one in late:
                    assert (await at_once(one)).json()["dispute"] == name

    within(case, tmp_path / "lines", test)


def test_places_are_free_again_after_waits_that_were_left(case: Case, tmp_path: Path) -> None:
    async def test(room: Room) -> None:
        await room.join("trainer")
        room.name = (await room.join("auditor")).json()["dispute"]
        for _ in range(2):
            async with waiting([room.lines(1, WAIT) for _ in range(REQUESTS)]):
                pass
        answers = [room.lines() for _ in range(REQUESTS)]
        for one in await asyncio.wait_for(asyncio.gather(*answers), AT_ONCE):
            assert one.status_code == 200

    within(case, tmp_path / "lines", test)


def test_who_has_waited_is_counted_again() -> None:
    waits, goes_on, waited = Waits(1), asyncio.Event(), asyncio.Event()

    async def app(scope: Any, _: Any, send: Any) -> None:
        if scope["path"] == "/waits":
            with waits.one(scope):
                pass
            waited.set()
            await goes_on.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def go() -> None:
        gate: Any = Gate(app, job="", token=None, limits=ServeLimits(requests=1))
        transport = httpx.ASGITransport(app=gate)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            first = asyncio.create_task(client.get("/waits"))
            await asyncio.wait_for(waited.wait(), AT_ONCE)
            assert (await client.get("/")).status_code == 503
            goes_on.set()
            await at_once(first)
            await at_once(client.get("/"))

    asyncio.run(go())


class Opening:
    """A run whose trees take as long as a test lets them."""

    job = ""

    def __init__(self) -> None:
        self.is_done = threading.Event()

    def tree(self, step: int, branch: int) -> bytes:
        assert self.is_done.wait(60)
        return b"%d/%d" % (step, branch)

    def open_record(self, index: int, size: int | None) -> Any:
        raise MissingError("there is no such record", "")


TREE = "/v1/checkpoints/4/0/tree"


@contextlib.asynccontextmanager
async def asking_for_trees(most: int) -> AsyncIterator[tuple[Opening, list[httpx.AsyncClient]]]:
    """Three addresses."""
    run: Any = Opening()
    app: Any = served(run, token=None, limits=ServeLimits(requests=most))
    async with contextlib.AsyncExitStack() as stack:
        transports = [httpx.ASGITransport(app=app, client=(one, 1)) for one in "abc"]
        clients = [
            httpx.AsyncClient(transport=one, base_url="http://x", timeout=60) for one in transports
        ]
        yield run, [await stack.enter_async_context(one) for one in clients]


def test_who_waits_for_a_tree_keeps_out_nobody_who_asks_for_something_else() -> None:
    most = 8

    async def go() -> None:
        async with (
            asking_for_trees(most) as (run, [a, b, c]),
            contextlib.AsyncExitStack() as held,
        ):
            # Two are opened, as many as may wait do so, and one more is too many.
            tasks = []
            for number in range(most + 3):
                tasks += await held.enter_async_context(waiting([[a, b][number % 2].get(TREE)]))
            answer = await asyncio.wait_for(c.get("/v1/records/0"), AT_ONCE)
            assert answer.status_code == 404
            run.is_done.set()
            found = [(await one).status_code for one in tasks]
        assert found == [200, 200, 503, *([200] * most)]

    asyncio.run(go())


def test_who_asks_for_many_trees_takes_nobody_elses_turn() -> None:
    most = 8

    async def go() -> int:
        async with (
            asking_for_trees(most) as (run, [a, _, c]),
            contextlib.AsyncExitStack() as held,
        ):
            first = await held.enter_async_context(waiting([a.get(TREE), a.get(TREE), c.get(TREE)]))
            for _ in range(most):  # of one moment, fewer have a place
                await held.enter_async_context(waiting([a.get(TREE), a.get(TREE)]))
            run.is_done.set()
            return (await asyncio.wait_for(first[2], AT_ONCE)).status_code

    assert asyncio.run(go()) == 200
