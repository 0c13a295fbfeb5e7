# SPDX-License-Identifier: Apache-2.0
"""A referee over HTTP, whom both parties call: docs/format/http.md."""

# FastAPI reads the annotations of the endpoints: no postponed ones here.

import contextlib
import hashlib
import hmac
import os
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

from fastapi import FastAPI, HTTPException, Path as PathOf, Query, Request, Response

from .._base._errors import LimitError, PotlError
from .._dispute._away import DISPUTES, FORMAT, REFEREE, joining
from ._disputes import read_body
from ._docket import Dispute, Docket
from ._limits import Application, Gate, Responses, ServeLimits, Waits

_MOST_NOTE = 256 << 10
_NONCE_SECONDS = 60
_OCTETS = "application/octet-stream"

Who = Annotated[Literal["trainer", "auditor"], Query(description="Who asks.")]
Nonce = Annotated[str, Query(pattern="^[0-9a-f]{64}$", description="Of an answer before.")]
Signature = Annotated[
    str, Query(pattern="^[0-9a-f]{128}$", description="The party's, over what it joins.")
]
About = Annotated[
    str | None,
    Query(pattern="^[0-9a-f]{64}$", description="The only commitment of the trainer to dispute."),
]
Wait = Annotated[float, Query(ge=0, le=20, description="Seconds that the answer may wait.")]
After = Annotated[int, Query(ge=0, le=1 << 30, description="Lines that the party has.")]
Named = Annotated[
    str, PathOf(pattern="^[0-9a-f]{64}-[0-9a-f]{64}$", description="The dispute, as it is named.")
]


def _body(what: str) -> dict[str, object]:
    content = {_OCTETS: {"schema": {"type": "string"}}}
    return {"requestBody": {"required": True, "content": content, "description": what}}


_SENT: Responses = {
    408: {"description": "It came too slowly."},
    411: {"description": "Nobody said how many bytes come."},
    413: {"description": "These are more bytes than it can have."},
    503: {"description": "Too many ask at a time, or more disputes are held than can be."},
}
_JOINED: Responses = {409: {"description": "This is not a commitment of that party."}, **_SENT}
_MISSING: Responses = {404: {"description": "There is no such dispute, or it has no such line."}}
_LINES: Responses = {
    200: {"description": "Lines, each with its newline.", "content": {_OCTETS: {}}},
    **_MISSING,
}


@dataclass(frozen=True)
class RefereeHere:
    """Who decides here, and between whom."""

    format: str
    key: str
    trainer: str
    auditor: str
    turn_ms: int


@dataclass(frozen=True)
class Joined:
    """The dispute, once the other party is there too, and what to sign when asking again."""

    dispute: str | None
    nonce: str


@dataclass(frozen=True)
class Sent:
    """How many lines there are now."""

    lines: int


class Nonces:
    """What a party signs to show that it is there now. One holds for two minutes at most."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._secret, self._clock = os.urandom(32), clock

    def now(self, before: int = 0) -> bytes:
        """The one of this minute, or of one before."""
        number = int(self._clock() // _NONCE_SECONDS) - before
        return hmac.digest(self._secret, str(number).encode(), hashlib.sha256)

    def knows(self, nonce: bytes) -> bool:
        """Whether it still holds."""
        return nonce in (self.now(), self.now(1))


def application(docket: Docket, *, token: str | None, limits: ServeLimits) -> Application:
    """The whole of what is served."""
    job = docket.referee.job.id.hex()
    return Gate(endpoints(docket, limits=limits), job=job, token=token, limits=limits)


def endpoints(docket: Docket, *, limits: ServeLimits) -> FastAPI:
    """The same without the gate."""

    @contextlib.asynccontextmanager
    async def running(_: FastAPI) -> AsyncIterator[None]:
        async with docket.running():
            yield

    app = FastAPI(
        title="potl referee",
        version="1",
        description="Decides disputes about a training, for parties that call it.",
        lifespan=running,
        # Their pages fetch scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
    )
    nonces, waits = Nonces(), Waits(limits.requests)

    def held(name: str) -> Dispute:
        if name not in docket.disputes:
            raise HTTPException(404, "there is no such dispute")
        return docket.disputes[name]

    @app.get(REFEREE, summary="Who decides here")
    async def _referee() -> RefereeHere:
        return RefereeHere(
            format=FORMAT,
            key=docket.referee.key.public_key.raw.hex(),
            trainer=docket.keys["trainer"].raw.hex(),
            auditor=docket.keys["auditor"].raw.hex(),
            turn_ms=docket.turn_ms,
        )

    @app.post(
        DISPUTES,
        summary="Which dispute is about a commitment",
        responses=_JOINED,
        openapi_extra=_body("The text of the party's commitment."),
    )
    async def _join(
        request: Request,
        who: Who,
        nonce: Nonce,
        signature: Signature,
        about: About = None,
        wait: Wait = 0,
    ) -> Joined:
        dispute, signed = None, bytes.fromhex(nonce)
        body = await read_body(request, _MOST_NOTE, limits)
        try:
            note = body.decode()
            key = docket.referee.key.public_key
            text = joining(docket.referee.job.id, key, note, signed, about)
            if nonces.knows(signed):
                docket.keys[who].verify(text, bytes.fromhex(signature))
                waiting = partial(waits.one, request.scope)
                dispute = await docket.join(who, note, about, wait=wait, waiting=waiting)
        except LimitError as error:
            raise HTTPException(503, error.message) from error
        except (UnicodeDecodeError, PotlError) as error:
            raise HTTPException(409, str(error)) from error
        return Joined(dispute=dispute, nonce=nonces.now().hex())

    @app.get(
        DISPUTES + "/{dispute}/lines",
        summary="Lines of a dispute",
        responses=_LINES,
        response_class=Response,
    )
    async def _lines(
        request: Request, dispute: Named, after: After = 0, wait: Wait = 0
    ) -> Response:
        found = held(dispute)
        if after > found.count:
            raise HTTPException(404, "there is no such line")
        waiting = partial(waits.one, request.scope)
        body = await docket.lines(found, after, wait=wait, waiting=waiting)
        return Response(body, media_type=_OCTETS)

    @app.post(
        DISPUTES + "/{dispute}/messages",
        summary="A message of a party",
        responses={**_SENT, **_MISSING},
        openapi_extra=_body("The message."),
    )
    async def _message(request: Request, dispute: Named) -> Sent:
        found = held(dispute)
        # Whose message has come waits in line: nobody keeps the one out whose turn it is.
        await docket.receive(found, await read_body(request, found.message_bytes, limits))
        return Sent(lines=found.count)

    return app
