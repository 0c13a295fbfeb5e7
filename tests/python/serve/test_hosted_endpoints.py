# SPDX-License-Identifier: Apache-2.0
"""What a listening referee answers, and to whom it listens."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from arguing import Case, StillClock

import potl
from potl import _core
from potl._dispute._away import DISPUTES, REFEREE, digest_of, joining, name_of
from potl._dispute._seat import Seat, about_of
from potl._dispute._table import Store
from potl._serve import _docket, _hosting
from potl._serve._docket import Docket
from potl._serve._hosting import Nonces, endpoints
from potl._serve._limits import ServeLimits

pytest.importorskip("potl._torch", reason="potl was built without torch")

TURN_MS = 60_000


class Room:
    """A referee that listens, with both parties' keys."""

    def __init__(self, case: Case, docket: Docket, client: httpx.AsyncClient) -> None:
        self.case, self.docket, self.client = case, docket, client
        self.nonce = bytes(32)

    @staticmethod
    @contextlib.asynccontextmanager
    async def opened(case: Case, folder: Path, clock: Any = None) -> AsyncIterator[Room]:
        keys: Any = {name: case.key(name) for name in ("trainer", "auditor")}
        docket = Docket(
            case.referee,
            keys=keys,
            folder=folder,
            turn_seconds=TURN_MS / 1000,
            clock=clock or StillClock(),
        )
        with contextlib.closing(docket):
            app = endpoints(docket, limits=ServeLimits(stall_seconds=0.5))
            async with (
                app.router.lifespan_context(app),
                httpx.AsyncClient(
                    transport=httpx.ASGITransport(app=app), base_url="http://x"
                ) as client,
            ):
                room = Room(case, docket, client)
                answer = await room.join("trainer", nonce=bytes(32))
                room.nonce = bytes.fromhex(answer.json()["nonce"])
                yield room

    def note(self, who: str) -> str:
        return (
            self.case.folder / {"trainer": "false", "auditor": "audit"}[who] / "commitment"
        ).read_text()

    async def join(
        self,
        who: str,
        note: str = "",
        *,
        key: str = "",
        nonce: bytes = b"",
        about: str | None = None,
        wait: float = 0,
        **changes: Any,
    ) -> httpx.Response:
        note, nonce = note or self.note(who), nonce or self.nonce
        pem = (self.case.folder / f"{key or who}.pem").read_text()
        text = joining(self.case.job.id, self.case.key("referee"), note, nonce, about)
        query = {
            "who": who,
            "nonce": nonce.hex(),
            "signature": _core.SigningKey.from_pem(pem).sign(text).hex(),
            "wait": wait,
            **({} if about is None else {"about": about}),
            **changes,
        }
        return await self.client.post(DISPUTES, params=query, content=note.encode())

    async def both(self) -> str:
        """The name of their dispute."""
        assert (await self.join("trainer")).json()["dispute"] is None
        name = (await self.join("auditor")).json()["dispute"]
        assert name == name_of({"trainer": self.note("trainer"), "auditor": self.note("auditor")})
        assert (await self.join("trainer")).json()["dispute"] == name
        return name  # type: ignore[no-any-return]

    async def lines(self, name: str, after: int = 0, wait: float = 0) -> list[str]:
        path = f"{DISPUTES}/{name}/lines"
        answer = await self.client.get(path, params={"after": after, "wait": wait})
        assert answer.status_code == 200
        return answer.text.splitlines()

    async def say(self, name: str, message: Any, **options: Any) -> httpx.Response:
        return await self.client.post(f"{DISPUTES}/{name}/messages", content=message, **options)

    def seat(self, who: str) -> Seat:
        return Seat(self.case.party(who), self.case.key("referee"))

    def next_of(self, seat: Seat, lines: list[str]) -> bytes:
        keys: Any = {name: self.case.key(name) for name in ("trainer", "auditor")}
        assert seat.hear(keys, 0, lines) == len(lines)
        return (seat.message() or "").encode()


Test = Callable[[Room], Awaitable[None]]


@pytest.fixture(autouse=True)
def _one_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a test happens within one minute of the nonces."""
    monkeypatch.setattr(_hosting, "Nonces", lambda: Nonces(lambda: 0.0))


@pytest.fixture
def within(case: Case, tmp_path: Path) -> Callable[..., None]:
    def run(test: Test, clock: Any = None) -> None:
        async def go() -> None:
            async with Room.opened(case, tmp_path / "lines", clock) as room:
                await test(room)

        asyncio.run(go())

    return run


def kinds(lines: list[str]) -> list[str]:
    return [json.loads(line)["entry"]["kind"] for line in lines]


def test_a_dispute_opens_when_both_are_there(
    within: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(room: Room) -> None:
        monkeypatch.setattr(_docket, "_PRESENT_SECONDS", -1.0)
        for _ in range(2):  # the one is gone when the other one comes
            for who in ("trainer", "auditor"):
                assert (await room.join(who)).json()["dispute"] is None
        assert not room.docket.disputes
        monkeypatch.setattr(_docket, "_PRESENT_SECONDS", 10.0)
        waits = asyncio.create_task(room.join("trainer", wait=20))
        await asyncio.sleep(0.2)
        name = (await room.join("auditor")).json()["dispute"]
        assert name and (await waits).json()["dispute"] == name
        assert kinds(await room.lines(name)) == ["terms"]
        agreed = json.loads((await room.lines(name))[0])["entry"]
        assert agreed["trainer"] == room.note("trainer") and agreed["turn_ms"] == TURN_MS

    within(test)


def test_who_was_told_an_old_verdict_is_in_no_new_dispute(within: Callable[..., None]) -> None:
    """Unless it comes while the other one waits."""

    async def test(room: Room) -> None:
        first = await room.both()
        room.docket.disputes[first].is_over = True
        assert (await room.join("trainer")).json()["dispute"] == first
        note = (room.case.folder / "false audit" / "commitment").read_text()
        assert (await room.join("auditor", note)).json()["dispute"] is None
        second = (await room.join("trainer")).json()["dispute"]
        assert second == name_of({"trainer": room.note("trainer"), "auditor": note})
        assert (await room.join("auditor")).json()["dispute"] == first

    within(test)


def test_who_comes_back_to_a_dispute_is_in_no_other_one(
    within: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would lose that by silence, though the other party brings another commitment then."""

    async def test(room: Room) -> None:
        first, found = await room.both(), room.docket._found
        note = (room.case.folder / "false audit" / "commitment").read_text()

        async def after_the_other(who: str, own: str, *more: Any) -> Any:
            await found("auditor", note, *more)
            return await found(who, own, *more)  # type: ignore[arg-type]

        monkeypatch.setattr(room.docket, "_found", after_the_other)
        assert (await room.join("trainer")).json()["dispute"] == first
        assert list(room.docket.disputes) == [first]

    within(test)


def test_no_dispute_begins_about_another_commitment_than_the_auditor_holds(
    within: Callable[..., None],
) -> None:
    """It would lose that by silence, and could be kept from the one that it came for."""

    async def test(room: Room) -> None:
        held, other = (
            (room.case.folder / one / "commitment").read_text() for one in ("false", "honest")
        )
        about = about_of(held + "another witness\n")
        for first, then in (("trainer", "auditor"), ("auditor", "trainer")) * 2:
            for who in (first, then):
                more = {"about": about} if who == "auditor" else {"note": other}
                assert (await room.join(who, **more)).json()["dispute"] is None
        assert not room.docket.disputes
        # Another one that is over is not the one that it asks for.
        over = (await room.join("auditor")).json()["dispute"]
        assert over == name_of({"trainer": other, "auditor": room.note("auditor")})
        assert (await room.join("auditor", about=about)).json()["dispute"] is None
        found = (await room.join("trainer")).json()["dispute"]
        assert found == name_of({"trainer": held, "auditor": room.note("auditor")})
        # Of one that goes on it is told: it would be silent there.
        assert (await room.join("auditor", about="0" * 64)).json()["dispute"] == found
        # What it wants is what it signed.
        pem = (room.case.folder / "auditor.pem").read_text()
        text = joining(
            room.case.job.id, room.case.key("referee"), room.note("auditor"), room.nonce, about
        )
        signature = _core.SigningKey.from_pem(pem).sign(text).hex()
        assert (await room.join("auditor", signature=signature)).status_code == 409

    within(test)


def test_nobody_joins_for_somebody_else(within: Callable[..., None], case: Case) -> None:
    """A commitment is known to both. Who brings the other one's would make him silent."""

    async def test(room: Room) -> None:
        assert (await room.join("trainer", key="auditor")).status_code == 409
        assert (await room.join("trainer", room.note("auditor"))).status_code == 409
        assert (
            await room.join("trainer", key="auditor", note=room.note("auditor"))
        ).status_code == 409
        first, size, rest = room.note("trainer").split("\n", 2)
        other = f"{first}\n{int(size) - 1}\n{rest}"
        assert (await room.join("trainer", other)).status_code == 409
        assert (await room.join("trainer", "no commitment")).status_code == 409
        assert (await room.join("trainer", signature="0" * 128)).status_code == 409
        # Said some time ago, it says nothing.
        stale = await room.join("trainer", nonce=b"x" * 32)
        assert stale.json() == {"dispute": None, "nonce": room.nonce.hex()}
        assert (await room.join("auditor")).json()["dispute"] is None
        assert not room.docket.disputes

    within(test)


def test_a_nonce_holds_for_a_minute_or_two() -> None:
    at = [0.0]
    nonces = Nonces(lambda: at[0])
    first = nonces.now()
    for seconds, holds in ((59, True), (61, True), (119, True), (121, False)):
        at[0] = seconds
        assert nonces.knows(first) is holds, seconds
    assert not Nonces(lambda: 0.0).knows(first)


def test_only_messages_of_the_parties_are_lines(within: Callable[..., None], case: Case) -> None:
    async def test(room: Room) -> None:
        name = await room.both()
        lines = await room.lines(name)
        seat = room.seat("trainer")
        message = room.next_of(seat, lines)
        for sent in (
            b"",
            b"{}",
            b"\xff",
            message[:-1],
            message.replace(b"claim", b"Claim"),
            b"[" * 9999,
        ):
            assert (await room.say(name, sent)).json() == {"lines": 1}, sent[:20]
        # Of another dispute between the same.
        elsewhere = potl.dispute(
            trainer=case.party("trainer"), auditor=case.party("auditor"), referee=case.referee()
        ).evidence.transcript.splitlines()
        theirs = room.next_of(room.seat("trainer"), elsewhere[:1])
        assert (await room.say(name, theirs)).json() == {"lines": 1}
        most = room.docket.disputes[name].message_bytes
        assert (await room.say(name, b"x" * (most + 1))).status_code == 413
        assert (await room.say(name, _slowly())).status_code == 411
        slow = {"Content-Length": "9"}
        assert (await room.say(name, _slowly(), headers=slow)).status_code == 408
        assert (await room.say(name, message)).json() == {"lines": 2}
        assert (await room.say(name, message)).json() == {"lines": 2}  # comes twice
        assert kinds(await room.lines(name, 1)) == ["message"]

    within(test)


async def _slowly() -> AsyncIterator[bytes]:
    yield b"x"
    await asyncio.sleep(5)


def test_what_many_send_keeps_no_partys_message_out(
    within: Callable[..., None], case: Case
) -> None:
    async def test(room: Room) -> None:
        name = await room.both()
        message = room.next_of(room.seat("trainer"), await room.lines(name))
        sent = [room.say(name, b"nobody's") for _ in range(31)]
        answers = await asyncio.gather(*sent, room.say(name, message))
        assert [one.status_code for one in answers] == [200] * 32
        assert len(await room.lines(name)) == 2

    within(test)


def test_what_is_not_there_is_missing(within: Callable[..., None]) -> None:
    async def test(room: Room) -> None:
        name = await room.both()
        other = name[::-1]
        for path, status in (
            (f"{other}/lines", 404),
            (f"{name}/lines?after=2", 404),
            ("x/lines", 422),
            (f"{name}/lines?after=-1", 422),
            (f"{name}/lines?wait=21", 422),
        ):
            assert (await room.client.get(f"{DISPUTES}/{path}")).status_code == status, path
        assert (await room.say(other, b"x")).status_code == 404

    within(test)


def test_silence_loses_though_nobody_asks(within: Callable[..., None]) -> None:
    clock = StillClock()

    async def test(room: Room) -> None:
        name = await room.both()
        dispute = room.docket.disputes[name]
        waits = asyncio.create_task(room.lines(name, 1, wait=20))
        for _ in range(12):  # never long enough to have been away
            clock.at += TURN_MS // 12
            room.docket.look()
        await asyncio.sleep(2)
        assert dispute.count == 1  # at the deadline it is in time
        clock.at += 1
        assert kinds(await waits) == ["silence"]
        assert dispute.is_over and not dispute.is_open

    within(test, clock)


def test_time_in_which_the_referee_was_away_counts_against_nobody(
    within: Callable[..., None],
) -> None:
    clock = StillClock()

    async def test(room: Room) -> None:
        name = await room.both()
        message = room.next_of(room.seat("trainer"), await room.lines(name))
        clock.at += TURN_MS + 1  # suspended, and the first thing it sees is a message
        assert (await room.say(name, message)).json() == {"lines": 3}
        assert kinds(await room.lines(name)) == ["terms", "restarted", "message"]
        clock.at += 10 * TURN_MS
        assert kinds(await room.lines(name, 3, wait=20)) == ["restarted"]
        assert room.docket.disputes[name].deadline == clock.at + TURN_MS

    within(test, clock)


def test_what_has_come_in_time_is_in_time_when_it_is_read(within: Callable[..., None]) -> None:
    clock = StillClock()

    async def test(room: Room) -> None:
        name = await room.both()
        message = room.next_of(room.seat("trainer"), await room.lines(name))
        lock = room.docket.disputes[name].lock
        async with lock:
            said = asyncio.create_task(room.say(name, message))
            await asyncio.sleep(0.2)
            for _ in range(13):
                clock.at += TURN_MS // 12
                room.docket.look()
        assert (await said).json() == {"lines": 2}
        assert kinds(await room.lines(name)) == ["terms", "message"]

    within(test, clock)


def test_work_of_the_referee_blocks_nobody_and_has_no_deadline(
    within: Callable[..., None], case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, begun, decide = threading.Event(), threading.Event(), potl.Referee._decide
    clock = StillClock()

    def slow(self: potl.Referee, now: Any) -> Any:
        begun.set()
        assert goes_on.wait(60)
        return decide(self, now)

    monkeypatch.setattr(potl.Referee, "_decide", slow)

    async def test(room: Room) -> None:
        name = await room.both()
        seats = [room.seat("trainer"), room.seat("auditor")]
        while not begun.is_set():
            for seat in seats:
                message = room.next_of(seat, await room.lines(name))
                if message:
                    await room.say(name, message)
        before = await room.lines(name)
        for _ in range(60):
            clock.at += TURN_MS // 12
            room.docket.look()
        assert (await room.client.get(REFEREE)).json()["turn_ms"] == TURN_MS
        assert (await room.say(name, b"{}")).json() == {"lines": len(before)}
        goes_on.set()
        after = await room.lines(name, len(before), wait=20)
        assert kinds(after)[0] in ("question", "next")
        assert room.docket.disputes[name].deadline == clock.at + TURN_MS

    within(test, clock)


def test_a_decision_that_fails_convicts_nobody(
    within: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: potl.Referee, now: Any) -> Any:
        return _core.DisputeNext("operators", 0)

    monkeypatch.setattr(potl.Referee, "_decide", broken)

    async def test(room: Room) -> None:
        name = await room.both()
        seats = [room.seat("trainer"), room.seat("auditor")]
        for _ in range(100):
            for seat in seats:
                message = room.next_of(seat, await room.lines(name))
                if message:
                    await room.say(name, message)
            if room.docket.disputes[name].is_over:
                break
            await asyncio.sleep(0.05)
        end = json.loads((await room.lines(name))[-1])["entry"]
        assert (end["why"], end["trainer_wrong"], end["auditor_wrong"]) == ("referee", False, False)

    within(test)


def test_a_disk_that_is_full_for_a_while_loses_nothing(
    within: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    append = Store.append

    async def test(room: Room) -> None:
        name = await room.both()
        message = room.next_of(room.seat("trainer"), await room.lines(name))

        def full(self: Store, line: str) -> None:
            raise potl.StorageError("no space left", "")

        monkeypatch.setattr(Store, "append", full)
        with pytest.raises(potl.StorageError):
            await room.say(name, message)
        assert await room.lines(name, 1) == []
        monkeypatch.setattr(Store, "append", append)
        assert (await room.say(name, message)).json()["lines"] >= 3
        assert kinds(await room.lines(name))[-2:] == ["restarted", "message"]

    within(test)


def test_a_folder_holds_the_disputes_of_one_referee(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "lines"

    async def opened() -> str:
        async with Room.opened(case, folder) as room:
            with pytest.raises(potl.UsageError, match="another referee"):
                async with Room.opened(case, folder):
                    pass
            return await room.both()

    name = asyncio.run(opened())
    path = folder / f"{name}.lines"
    half = folder / f"{name[::-1]}.lines"
    half.write_text('{"at":')  # nobody has seen it

    async def again() -> None:
        monkeypatch.setattr(_docket, "_MOST_DISPUTES", 1)
        async with Room.opened(case, folder) as room:
            assert (await room.join("trainer")).json()["dispute"] == name
            assert not half.exists()
            assert kinds(await room.lines(name)) == ["terms", "restarted"]
            note = (case.folder / "false audit" / "commitment").read_text()
            with pytest.raises(potl.LimitError):
                await room.docket._open("x", {"trainer": room.note("trainer"), "auditor": note})

    asyncio.run(again())
    text = path.read_text()
    for other in ("x\n", text.replace("1", "2", 1)):
        path.write_text(other)
        with pytest.raises(potl.PotlError):
            asyncio.run(again())
    path.write_text(text)
    path.rename(folder / f"{digest_of('x')}-{digest_of('y')}.lines")
    with pytest.raises(potl.MismatchError, match="than its name says"):
        asyncio.run(again())


def test_one_key_is_not_two_parties(case: Case, tmp_path: Path) -> None:
    keys: Any = {"trainer": case.key("trainer"), "auditor": case.key("referee")}
    with pytest.raises(potl.UsageError, match="one key"):
        Docket(case.referee, keys=keys, folder=tmp_path, turn_seconds=1.0, clock=StillClock())
    with pytest.raises(potl.UsageError, match="not a time"):
        Docket(case.referee, keys=keys, folder=tmp_path, turn_seconds=0.0, clock=StillClock())


def test_the_page_of_the_interface_names_each_path(within: Callable[..., None]) -> None:
    text = (Path(__file__).parents[3] / "docs/format/http.md").read_text()

    async def test(room: Room) -> None:
        for path in (await room.client.get("/openapi.json")).json()["paths"]:
            assert f"{path}`" in text or f"{path}?" in text, path

    within(test)
