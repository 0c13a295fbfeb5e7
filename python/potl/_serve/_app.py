# SPDX-License-Identifier: Apache-2.0
"""The endpoints that read a run: docs/format/http.md."""

# FastAPI reads the annotations of the endpoints: no postponed ones here.

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import FastAPI, Header, HTTPException, Path, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from .. import _core
from .._base._errors import MissingError, PotlError
from .._dispute._seat import Seat
from .._remote import _source
from ._disputes import Desk, add_disputes
from ._limits import Application, Gate, Responses, ServeLimits, Waits, first_of
from ._sealing import Sealing
from ._served import File, Listing, OpenedChunk, OpenedRecord, ServedRun

T = TypeVar("T")

_log = logging.getLogger("potl")

_PIECE = 256 << 10
_MOST = 10**15 - 1
_OCTETS = "application/octet-stream"
_RANGE = re.compile(r"bytes=(\d{1,15})-(\d{1,15})?")

Step = Annotated[int, Path(ge=0, le=_MOST, description="Step of the job; 0 is before the first.")]
Branch = Annotated[int, Path(ge=0, le=_MOST, description="0, or the number of a resume.")]
Index = Annotated[int, Path(ge=0, le=_MOST, description="Number of the record, from 0.")]
Chunk = Annotated[int, Path(ge=0, le=_MOST, description="Number of the chunk, from 0.")]
Tensor = Annotated[str, Query(max_length=1024, description="Path of the tensor in the state.")]
InBranch = Annotated[int, Query(ge=0, le=_MOST, description="0, or the number of a resume.")]
Size = Annotated[
    int | None,
    Query(
        ge=1, le=_MOST, description="Records that the proof is about; default: the commitment's."
    ),
]
Wanted = Annotated[
    str | None,
    Header(
        alias="Range", description="bytes=FIRST-LAST or bytes=FIRST-; any other form is ignored."
    ),
]

_MISSING: Responses = {404: {"description": "It is not there."}}
_BUSY: Responses = {503: {"description": "Too many wait for something to be opened."}}
_FILE: Responses = {
    200: {"description": "All of it.", "content": {_OCTETS: {}}},
    206: {"description": "The bytes that were asked for.", "content": {_OCTETS: {}}},
    416: {"description": "There are no such bytes."},
    **_MISSING,
}


def application(
    run: ServedRun,
    *,
    token: str | None,
    limits: ServeLimits,
    seat: Seat | None = None,
    readers: Sequence[_core.SealingKey] = (),
) -> Application:
    """The whole of what is served; with readers encrypted to one of them."""
    app: Application = endpoints(run, limits=limits, seat=seat)
    if readers:
        app = Sealing(app, job=run.job, readers=readers)
    return Gate(app, job=run.job, token=token, limits=limits, sealed=bool(readers))


def endpoints(run: ServedRun, *, limits: ServeLimits, seat: Seat | None = None) -> FastAPI:
    """The same without the gate. With a seat the run's party plays in disputes."""
    desk = None if seat is None else Desk(seat)

    @contextlib.asynccontextmanager
    async def running(_: FastAPI) -> AsyncIterator[None]:
        yield
        if desk is not None:
            desk.end()

    app = FastAPI(
        title="potl serve",
        version="1",
        lifespan=running,
        description="A recorded training run, for those who verify it.",
        # Their pages fetch scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
    )
    # Who waits for its turn to open something takes no place from those who ask for anything else.
    waits, opening, ended = Waits(limits.requests), 0, asyncio.Event()

    @app.exception_handler(PotlError)
    async def _failed(_: Request, error: PotlError) -> JSONResponse:
        if isinstance(error, MissingError):
            return JSONResponse({"detail": error.message}, status_code=404)
        _log.warning("%s", error)  # nobody but who serves it can mend it
        return JSONResponse({"detail": error.message}, status_code=500)

    async def opened(request: Request, call: Callable[[], T]) -> T:
        nonlocal opening, ended
        while opening >= limits.openings:
            with waits.one(request.scope) as enough:
                await first_of(ended, enough, seconds=limits.request_seconds)
            if enough.is_set():
                raise HTTPException(503, "too many wait", {"Retry-After": "1"})
        opening += 1
        try:
            return await asyncio.to_thread(call)
        finally:
            opening -= 1
            ended.set()
            ended = asyncio.Event()

    def file(path: str, name: str, what: str) -> None:
        @app.get(path, responses=_FILE, response_class=Response, summary=what, name=name)
        async def _read(wanted: Wanted = None) -> Response:
            return _answer(run.open(name), wanted)

    file("/v1/job", _source.JOB, "The job")
    file("/v1/commitment", _source.COMMITMENT, "The commitment")
    file("/v1/telemetry", _source.TELEMETRY, "The telemetry")
    file("/v1/log", _source.LOG, "The log of records")

    @app.get("/v1/run", summary="What is there")
    async def _listing() -> Listing:
        return await asyncio.to_thread(run.listing)

    @app.get("/v1/records/{index}", responses=_MISSING, summary="A record and its proof")
    async def _record(index: Index, size: Size = None) -> OpenedRecord:
        return await asyncio.to_thread(run.open_record, index, size)

    @app.get("/v1/steps/{step}", responses=_MISSING, summary="The record of a step and its proof")
    async def _step(step: Step, branch: InBranch = 0, size: Size = None) -> OpenedRecord:
        return await asyncio.to_thread(run.open_step, step, branch, size)

    @app.get(
        "/v1/checkpoints/{step}/{branch}",
        responses=_FILE,
        response_class=Response,
        summary="The state after a step",
    )
    async def _state(step: Step, branch: Branch, wanted: Wanted = None) -> Response:
        return _answer(await asyncio.to_thread(run.open_state, step, branch), wanted)

    @app.get(
        "/v1/checkpoints/{step}/{branch}/tree",
        responses={200: _FILE[200], **_MISSING, **_BUSY},
        response_class=Response,
        summary="The encoding of a state",
    )
    async def _tree(request: Request, step: Step, branch: Branch) -> Response:
        tree = await opened(request, lambda: run.tree(step, branch))
        return Response(tree, media_type=_OCTETS)

    @app.get(
        "/v1/checkpoints/{step}/{branch}/chunks/{index}",
        responses={**_MISSING, **_BUSY},
        summary="A chunk of a tensor and its proof",
    )
    async def _chunk(
        request: Request, step: Step, branch: Branch, index: Chunk, tensor: Tensor
    ) -> OpenedChunk:
        return await opened(request, lambda: run.open_chunk(step, branch, tensor, index))

    @app.get(
        "/v1/rounding/{branch}",
        responses=_FILE,
        response_class=Response,
        summary="The rounding logs of a branch",
    )
    async def _rounding(branch: Branch, wanted: Wanted = None) -> Response:
        return _answer(await asyncio.to_thread(run.open_rounding, branch), wanted)

    @app.get(
        "/v1/rounding/{branch}/{step}",
        responses={200: _FILE[200], **_MISSING},
        response_class=Response,
        summary="The rounding log of a step",
    )
    async def _rounding_of(branch: Branch, step: Step) -> Response:
        start, size = await asyncio.to_thread(run.rounding_log, step, branch)
        logs = await asyncio.to_thread(run.open_rounding, branch)
        if start + size > logs.size:
            logs.close()
            raise MissingError("the rounding log ends too early", "")
        return _stream(logs, start, size, status=200)

    if desk is not None:
        add_disputes(app, desk, limits)
    return app


def _answer(file: File, wanted: str | None) -> Response:
    """A file, or the range of it that was asked for. Closes it in the end."""
    found = None if wanted is None else _RANGE.fullmatch(wanted)
    first, end = (int(found[1]), int(found[2] or _MOST)) if found else (0, -1)
    if first > end:  # no range, or none of that form: RFC 9110 ignores it
        return _stream(file, 0, file.size, status=200)
    last = min(end, file.size - 1)
    if first > last:
        file.close()
        raise HTTPException(416, "no such bytes", {"Content-Range": f"bytes */{file.size}"})
    headers = {"Content-Range": f"bytes {first}-{last}/{file.size}"}
    return _stream(file, first, last + 1 - first, status=206, headers=headers)


def _stream(
    file: File, start: int, size: int, *, status: int, headers: dict[str, str] | None = None
) -> Response:
    async def pieces() -> AsyncIterator[bytes]:
        at = start
        while at < start + size:
            # A thread reads a piece and is free again: a client that takes nothing holds none.
            length = min(_PIECE, start + size - at)
            piece = await asyncio.to_thread(file.read, at, length)
            if len(piece) != length:
                raise OSError("the file became shorter")
            yield piece
            at += length

    return _Closing(
        pieces(),
        status_code=status,
        media_type=_OCTETS,
        headers={"Content-Length": str(size), "Accept-Ranges": "bytes", **(headers or {})},
        file=file,
    )


class _Closing(StreamingResponse):
    """Closes its file however the answer ends."""

    def __init__(self, *args: Any, file: File, **options: Any) -> None:
        super().__init__(*args, **options)
        self._file = file

    async def __call__(self, *asgi: Any) -> None:
        try:
            await super().__call__(*asgi)
        finally:
            self._file.close()
