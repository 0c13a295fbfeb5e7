# SPDX-License-Identifier: Apache-2.0
"""The run's party in a dispute, over HTTP: it follows the lines of a referee that it knows, and
answers with the message that is its next one.
"""

# FastAPI reads the annotations of the endpoints: no postponed ones here.

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import FastAPI, HTTPException, Query, Request
from starlette.requests import ClientDisconnect

from .. import _core
from .._base._errors import LimitError, MalformedError, MismatchError, UsageError
from .._base._printable import printable
from .._dispute._seat import Name, Seat
from .._dispute._there import PATH, PIECE
from .._remote._http import LEAST_BYTES_PER_SECOND
from ._limits import Responses, ServeLimits, Waits, first_of
from ._worker import Worker

_log = logging.getLogger("potl")

_MOST_LINES = 4096
_MOST_WAITING = 8

Key = Annotated[str, Query(pattern="^[0-9a-f]{64}$", description="Public key of that party.")]
After = Annotated[int, Query(ge=0, le=1 << 20, description="Lines that come before these.")]
More = Annotated[bool, Query(description="Whether more lines follow at once.")]
Wait = Annotated[float, Query(ge=0, le=20, description="Seconds to wait for the message.")]

_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string"}}},
        "description": "Lines of the transcript, each with its newline.",
    }
}
_REFUSED: Responses = {
    409: {"description": "These are not lines of such a dispute."},
    408: {"description": "The lines came too slowly."},
    411: {"description": "Nobody said how many bytes come."},
    413: {"description": "These are more bytes than a line can have here."},
}


@dataclass(frozen=True)
class PartyHere:
    """Who plays here, and before whom."""

    format: str
    key: str
    referee: str


@dataclass(frozen=True)
class PartysTurn:
    """How many lines are known, and what is to be sent after them, once that is known too."""

    lines: int
    message: str | None


class Desk:
    """One seat, one thread for its work, one dispute at a time."""

    def __init__(self, seat: Seat) -> None:
        self.seat = seat
        self._worker = Worker("dispute")
        self._running: asyncio.Future[PartysTurn] | None = None
        self._known = 0
        self.most = PIECE

    def begin(
        self,
        keys: Mapping[Name, _core.PublicKey],
        after: int,
        lines: Sequence[str],
        *,
        more: bool,
    ) -> asyncio.Future[PartysTurn]:
        """What is under way, or begins with these lines."""
        running = self._running
        if running is None:
            running = self._running = self._worker.start(self._work, keys, after, lines, more)
            running.add_done_callback(self._done)
        return running

    async def turn(
        self, running: asyncio.Future[PartysTurn], *, wait: float, enough: asyncio.Event
    ) -> PartysTurn:
        """What a caller is told. What is under way goes on without it."""
        done = asyncio.Event()

        def ended(_: asyncio.Future[PartysTurn]) -> None:
            done.set()

        running.add_done_callback(ended)
        try:
            await first_of(done, enough, seconds=wait)
        finally:
            running.remove_done_callback(ended)
        return running.result() if running.done() else PartysTurn(lines=self._known, message=None)

    def end(self) -> None:
        """Before the server does."""
        self._worker.end()

    def _done(self, running: asyncio.Future[PartysTurn]) -> None:
        self._running = None
        if not running.cancelled() and running.exception() is not None:
            # Whoever reaches the server may have written what is in it.
            _log.warning("a dispute: %s", printable(running.exception()))

    def _work(
        self,
        keys: Mapping[Name, _core.PublicKey],
        after: int,
        lines: Sequence[str],
        more: bool,
    ) -> PartysTurn:
        self._known = known = self.seat.hear(keys, after, lines)
        self.most = max(PIECE, self.seat.line_bytes)
        return PartysTurn(lines=known, message=None if more else self.seat.message())


def add_disputes(app: FastAPI, desk: Desk, limits: ServeLimits) -> None:
    """The endpoints of a party."""
    seat, waits = desk.seat, Waits(_MOST_WAITING)

    @app.get(PATH, summary="Who plays in disputes here")
    async def _party() -> PartyHere:
        return PartyHere(
            format="potl-dispute-party-v1",
            key=seat.party.key.public_key.raw.hex(),
            referee=seat.referee.raw.hex(),
        )

    @app.post(PATH, summary="Lines of a dispute", responses=_REFUSED, openapi_extra=_BODY)
    async def _lines(
        request: Request,
        trainer: Key,
        auditor: Key,
        after: After = 0,
        more: More = False,
        wait: Wait = 0,
    ) -> PartysTurn:
        # First: somebody whose lines do not come keeps nobody else out.
        body = await read_body(request, desk.most, limits)
        try:
            keys: dict[Name, _core.PublicKey] = {
                "trainer": _core.PublicKey.from_raw(bytes.fromhex(trainer)),
                "auditor": _core.PublicKey.from_raw(bytes.fromhex(auditor)),
            }
            # Lines that are not needed are not held while somebody waits.
            running = desk.begin(keys, after, _split(body), more=more)
            del body
            with waits.one(request.scope) as enough:
                return await desk.turn(running, wait=wait, enough=enough)
        except (MalformedError, MismatchError, LimitError, UsageError) as error:
            raise HTTPException(409, error.message) from error


async def read_body(request: Request, most: int, limits: ServeLimits) -> bytes:
    """What a client sends, of which it says first how much it is."""
    length = request.headers.get("content-length", "")
    if not (length.isascii() and length.isdigit() and len(length) < 16):
        raise HTTPException(411, "say how many bytes come")
    if int(length) > most:
        raise HTTPException(413, f"at most {most} bytes")
    parts, left = [], int(length)

    async def read() -> None:
        nonlocal left
        async for part in request.stream():
            left -= len(part)
            # HTTP lets a body come in chunks whatever its length was said to be.
            if left < 0:
                raise HTTPException(413, "more bytes come than were announced")
            parts.append(part)

    seconds = limits.stall_seconds + int(length) / LEAST_BYTES_PER_SECOND
    try:
        await asyncio.wait_for(read(), seconds)
    except (asyncio.TimeoutError, TimeoutError) as error:
        raise HTTPException(408, "it comes too slowly") from error
    except ClientDisconnect as error:
        raise HTTPException(400, "it did not come whole") from error
    return b"".join(parts)


def _split(body: bytes) -> list[str]:
    if not body.endswith(b"\n"):
        raise HTTPException(409, "each line ends with a newline")
    lines = body[:-1].split(b"\n", _MOST_LINES)
    if len(lines) > _MOST_LINES:
        raise HTTPException(409, f"at most {_MOST_LINES} lines")
    try:
        return [line.decode() for line in lines]
    except UnicodeDecodeError as error:
        raise HTTPException(409, "lines are UTF-8") from error
