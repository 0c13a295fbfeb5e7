# SPDX-License-Identifier: Apache-2.0
"""What `potl serve --disputes` answers to lines of a dispute, and to what is none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from arguing import Case

import potl
from potl import _core
from potl._dispute._seat import NAMES, Seat, setting_of
from potl._dispute._there import PIECE
from potl._serve._app import endpoints
from potl._serve._limits import ServeLimits, Waits
from potl._serve._served import ServedRun

pytest.importorskip("potl._torch", reason="potl was built without torch")

PATH = "/v1/dispute"


@pytest.fixture(scope="module")
def lines(case: Case) -> list[str]:
    """Of a whole dispute."""
    verdict = potl.dispute(
        trainer=case.party("trainer"), auditor=case.party("auditor"), referee=case.referee()
    )
    return verdict.evidence.transcript.splitlines()


@pytest.fixture
def seat(case: Case) -> Seat:
    return Seat(case.party("trainer"), case.key("referee"))


@pytest.fixture
def served(case: Case) -> Iterator[ServedRun]:
    run = ServedRun(case.folder / "false")
    yield run
    run.close()


Ask = Callable[..., Any]


@pytest.fixture
def ask(case: Case, served: ServedRun, seat: Seat) -> Ask:
    keys = {one: case.key(one).raw.hex() for one in ("trainer", "auditor")}
    app: Any = endpoints(served, limits=ServeLimits(stall_seconds=0.5), seat=seat)

    def post(body: Any, *, headers: dict[str, str] | None = None, **query: Any) -> Any:
        async def go() -> httpx.Response:
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://potl") as client:
                return await client.post(
                    PATH, params={**keys, "wait": 20, **query}, content=body, headers=headers
                )

        return asyncio.run(go())

    return post


def text_of(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def test_lines_come_in_any_pieces_and_more_than_once(ask: Ask, lines: list[str]) -> None:
    whole = ask(text_of(lines[:9])).json()
    assert whole["lines"] == 9
    assert ask(text_of(lines[:3]), more=True).json() == {"lines": 9, "message": None}
    assert ask(text_of(lines[3:6]), after=3, more=True).json()["lines"] == 9
    assert ask(text_of(lines[8:9]), after=8).json() == whole
    # What does not continue: from the beginning, please.
    for after in (11, 9):
        answer = ask(text_of(lines[11:12]), after=after).json()
        assert answer["lines"] == 0
    assert ask(text_of(lines[:9])).json() == whole


def test_what_a_stranger_sends_takes_no_dispute_away(ask: Ask, lines: list[str]) -> None:
    """Or a party whose lines come in pieces would be silent as long as somebody wants."""
    held = ask(text_of(lines[:9]), more=True).json()["lines"]
    for body, after in ((b"{}\n", 0), (b"{}\n", 9), (text_of([lines[0]]) + b"{}\n", 0)):
        ask(body, after=after)
        assert ask(text_of(lines[9:10]), after=9, more=True).json()["lines"] > held


def test_who_has_lines_of_an_older_dispute_takes_no_dispute_away(
    case: Case, ask: Ask, seat: Seat, lines: list[str]
) -> None:
    """The referee signed them, and it was about the same commitment."""
    setting = setting_of(case.job, {one: case.key(one) for one in NAMES}, case.key("referee"))
    notes = {one: case.party(one).note for one in NAMES}
    key = case.referee().key
    older = [
        _core.DisputeReferee.open(setting, **notes, turn_ms=1, key=key, at=at).transcript.strip()
        for at in range(9)
    ]
    ask(text_of(lines[:9]), more=True)
    for one in older[:3]:
        assert ask(text_of([one])).json()["lines"] == 1
    assert ask(text_of(lines[8:10]), after=8, more=True).json()["lines"] == 10
    for one in older:
        ask(text_of([one]))
    assert len(seat._games) == 4


def test_who_has_older_lines_makes_no_line_to_come_too_long(
    case: Case, seat: Seat, lines: list[str]
) -> None:
    """The server would not read the answer to what was asked for, and its party seem silent."""
    keys = {one: case.key(one) for one in NAMES}
    older = _core.DisputeReferee.open(
        setting_of(case.job, keys, case.key("referee")),
        **{one: case.party(one).note for one in NAMES}, turn_ms=1, key=case.referee().key, at=0,
    ).transcript.strip()  # fmt: skip
    seat.hear(keys, 0, [older])
    least = seat.line_bytes
    seat.hear(keys, 0, lines)
    most = seat.line_bytes
    seat.hear(keys, 0, [older])
    assert seat.line_bytes == most > least


def test_a_seat_that_was_away_says_the_same(
    case: Case, ask: Ask, seat: Seat, lines: list[str]
) -> None:
    said = 0
    for count in range(1, len(lines)):
        message = ask(text_of(lines[:count])).json()["message"]
        assert ask(text_of(lines[:count]), more=True).json()["message"] is None
        seat._games.clear()
        assert ask(text_of(lines[:count])).json()["message"] == message
        said += message is not None
    assert said == 14


def test_other_lines_than_the_referees_are_refused(
    case: Case, ask: Ask, seat: Seat, lines: list[str]
) -> None:
    other = _core.SigningKey.generate()
    verdict = potl.dispute(
        trainer=case.party("trainer"),
        auditor=case.party("auditor"),
        referee=potl.Referee(case.job, task=case.build, key=other),
    )
    foreign = verdict.evidence.transcript.splitlines()
    assert ask(text_of(foreign[:2])).status_code == 409
    # A line of somebody else's in the midst.
    assert ask(text_of([lines[0], foreign[1]])).status_code == 409
    key = other.public_key.raw.hex()
    assert ask(text_of(lines[:1]), auditor=key).status_code == 409
    assert ask(text_of(lines[:1]), trainer=key).status_code == 409  # not this party's
    seat.party.note = "another run's"
    answer = ask(text_of(lines[:1]))
    assert answer.status_code == 409 and "another commitment" in answer.text
    assert seat.message() is None


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"", 409, "ends with a newline"),
        (b"{}", 409, "ends with a newline"),
        (b"{}\n", 409, ""),
        (b"\xff\xfe\n", 409, "UTF-8"),
        (b"\n" * 4097, 409, "at most 4096 lines"),
        (b"x" * PIECE + b"\n", 413, "bytes"),
    ],
)
def test_garbage_is_refused(ask: Ask, body: bytes, status: int, said: str) -> None:
    answer = ask(body)
    assert answer.status_code == status
    assert said in answer.text


def test_what_a_stranger_writes_moves_no_cursor(ask: Ask, caplog: pytest.LogCaptureFixture) -> None:
    line = _core.canonical_json({"\x1b]0;x\x07\x1b[2J\x9b31m": 1}) + b"\n"
    assert ask(line).status_code == 409
    assert "unknown member" in caplog.text and caplog.messages[0].isprintable()


def test_who_does_not_say_how_much_comes_or_takes_too_long_is_refused(ask: Ask) -> None:
    async def slowly() -> Any:
        yield b"x"
        await asyncio.sleep(5)

    assert ask(slowly()).status_code == 411
    assert ask(slowly(), headers={"Content-Length": "3"}).status_code == 408
    assert ask(b"{}\n", headers={"Content-Length": "9" * 15}).status_code == 413


def test_who_sends_more_than_it_says_fills_no_memory(ask: Ask) -> None:
    """A request with a length may come in chunks all the same."""
    taken: list[bytes] = []

    async def endlessly() -> Any:
        while len(taken) < 1000:
            taken.append(bytes(1 << 10))
            yield taken[-1]

    assert ask(endlessly(), headers={"Content-Length": "3"}).status_code == 413
    assert len(taken) < 10


def test_who_knows_no_key_or_asks_for_too_much_is_refused(ask: Ask, lines: list[str]) -> None:
    for query in ({"trainer": "x"}, {"auditor": "0" * 63}, {"after": -1}, {"wait": 1e9}):
        assert ask(text_of(lines[:1]), **query).status_code == 422, query


def test_work_blocks_nobody_and_is_waited_for_in_pieces(
    case: Case,
    served: ServedRun,
    seat: Seat,
    lines: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    goes_on, true, one = threading.Event(), seat.message, Waits.one
    begun, waits = [], []

    def counted(self: Waits, scope: Any) -> Any:
        waits.append(scope)
        return one(self, scope)

    monkeypatch.setattr(Waits, "one", counted)

    def message() -> str | None:
        begun.append(None)
        assert goes_on.wait(60)
        return true()

    seat.message = message  # type: ignore[method-assign]
    app: Any = endpoints(served, limits=ServeLimits(), seat=seat)
    query = {one: case.key(one).raw.hex() for one in ("trainer", "auditor")}

    async def go() -> None:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://potl") as client:

            async def post(**more: Any) -> Any:
                body = text_of(lines[:1])
                return (await client.post(PATH, params={**query, **more}, content=body)).json()

            for _ in range(3):
                await post(wait=0)
            while not begun:
                await asyncio.sleep(0.01)
            assert await post(wait=0) == {"lines": 1, "message": None}
            assert (await client.get("/v1/run")).status_code == 200
            before = len(waits)
            oldest = asyncio.create_task(post(wait=20))
            while len(waits) == before:
                await asyncio.sleep(0.01)
            waiting = [asyncio.create_task(post(wait=20)) for _ in range(8)]
            # Nobody is kept out: who has waited longest is answered before its time.
            assert await asyncio.wait_for(oldest, 10) == {"lines": 1, "message": None}
            goes_on.set()
            assert len({str(await one) for one in waiting}) == 1
            assert (await post(wait=20))["message"] == true()
            assert len(begun) <= 2

    asyncio.run(go())


def test_a_party_that_fails_is_asked_again(
    case: Case, served: ServedRun, seat: Seat, lines: list[str]
) -> None:
    fails, true = [True], seat.message

    def message() -> str | None:
        if fails:
            fails.pop()
            raise MemoryError
        return true()

    seat.message = message  # type: ignore[method-assign]
    app: Any = endpoints(served, limits=ServeLimits(), seat=seat)
    query = {one: case.key(one).raw.hex() for one in ("trainer", "auditor")}

    async def go() -> None:
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://potl") as client:
            for status in (500, 200):
                answer = await client.post(
                    PATH, params={**query, "wait": 20}, content=text_of(lines[:1])
                )
                assert answer.status_code == status
            assert answer.json()["message"] == true()

    asyncio.run(go())


def test_a_server_says_who_plays_and_its_page_says_how(served: ServedRun, seat: Seat) -> None:
    app = endpoints(served, limits=ServeLimits(), seat=seat)
    paths = app.openapi()["paths"]
    assert {path for path, what in paths.items() if "post" in what} == {PATH}
    text = (Path(__file__).parents[3] / "docs/format/http.md").read_text()
    assert f"`GET {PATH}`" in text and f"`POST {PATH}`" in text
    assert PATH not in endpoints(served, limits=ServeLimits()).openapi()["paths"]


def test_a_party_is_that_of_the_run_and_has_a_referee(case: Case) -> None:
    party = case.party("trainer")
    with pytest.raises(potl.UsageError, match="belong together"):
        potl.serve(case.folder / "false", disputes=party)
    with pytest.raises(potl.UsageError, match="another run"):
        potl.serve(case.folder / "honest", disputes=party, referee_key=case.folder / "referee.pub")
