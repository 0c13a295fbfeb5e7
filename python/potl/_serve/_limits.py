# SPDX-License-Identifier: Apache-2.0
"""What stands before the endpoints: who may ask, how many at a time, and for how long."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import ipaddress
import json
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar

from .._remote._http import JOB_HEADER

T = TypeVar("T")

_log = logging.getLogger("potl")

# Any: ASGI's messages hold whatever.
Message: TypeAlias = MutableMapping[Any, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
# FastAPI's own type of what describes an answer.
Responses: TypeAlias = dict[int | str, dict[str, Any]]
Application: TypeAlias = Callable[[Message, Receive, Send], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class ServeLimits:
    """What a server spends on its clients.

    Attributes:
        requests: Requests that are answered at a time, of one address an eighth less; others are
            told to come back (503), unless a client has yet to take what was sent, or to send
            the rest of its request: then the one that has done so longest is cut, of the address
            that has most. Those that wait are not counted; of more of them the oldest are answered
            at once, of the address that has most.
        openings: Chunks and trees that are opened at a time: each reads and hashes a tensor.
        stall_seconds: How long a client may take for the next 64 KiB, or for sending its request.
        request_seconds: How long one request may take.
    """

    requests: int = 64
    openings: int = 2
    stall_seconds: float = 30.0
    request_seconds: float = 3600.0


# Where a request's scope says how to leave its place and take it again.
_LEAVE = "potl.leave"


class Waits:
    """Requests that wait for news. They hold no place of those that are answered at a time, so that
    nobody keeps others out by waiting; of more than so many the one that has waited longest is
    answered at once, of the address that has most.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._all: dict[asyncio.Event, str] = {}  # the longest first, and their addresses

    @contextlib.contextmanager
    def one(self, scope: Message) -> Iterator[asyncio.Event]:
        """While a request waits. The event is set when it has to be answered."""
        leave = scope.get(_LEAVE, contextlib.nullcontext)
        enough = asyncio.Event()
        self._all[enough] = address_of(scope.get("client"))
        if len(self._all) > self._most:
            held = Counter(self._all.values())
            longest = max(self._all, key=lambda one: held[self._all[one]])
            del self._all[longest]
            longest.set()
        try:
            with leave():
                yield enough
        finally:
            self._all.pop(enough, None)


async def first_of(*events: asyncio.Event, seconds: float) -> None:
    """Waits until one of them is set, or for so long."""
    waiting = [asyncio.create_task(one.wait()) for one in events]
    try:
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waiting:
            one.cancel()


class _StalledError(Exception):
    """A client that takes nothing."""


class Gate:
    """Answers itself what does not get through.

    Args:
        inner: The endpoints.
        job: Id of the run's job, which every answer names.
        token: What a client has to know; None: nothing.
        limits: What is spent.
        sealed: Whether nobody can read an answer but who has a key.
    """

    def __init__(
        self,
        inner: Application,
        *,
        job: str,
        token: str | None,
        limits: ServeLimits,
        sealed: bool = False,
    ) -> None:
        self._inner = inner
        self._headers = [
            (JOB_HEADER.lower().encode(), job.encode()),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
        ]
        self._token = None if token is None else _digest(token.encode())
        self._is_open = token is None and not sealed
        self._limits = limits
        # Of each address: who has many connections leaves places for others, as for the other party
        # of a dispute.
        self._running = Counter[str]()
        # What clients have yet to take or to send, the longest first, and their addresses.
        self._taking: dict[asyncio.Future[Any], str] = {}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._inner(scope, receive, send)
            return
        begun = is_cut = has_place = False
        address = address_of(scope.get("client"))

        async def sent(message: Message) -> None:
            nonlocal begun
            if is_cut:  # the endpoints would say that they failed
                raise _StalledError
            if message["type"] == "http.response.start":
                begun = True
                message["headers"] = [*message.get("headers", []), *self._headers]
            transfer, seconds = send(message), self._limits.stall_seconds
            if has_place:
                await self._cuttable(transfer, address, seconds)
            else:  # a refusal, whose end would make no room
                await asyncio.wait_for(transfer, seconds)

        is_whole = False

        async def received() -> Message:
            nonlocal is_whole, is_cut
            if is_whole:  # what comes now is that the client left, and may take as long as the work
                return await receive()
            try:
                message = await self._cuttable(receive(), address, None)
            except _StalledError:
                is_cut = True
                raise
            is_whole = not message.get("more_body", False)
            return message

        if self._is_open and _is_rebound(scope):
            await refuse(
                sent,
                421,
                "without a token this machine is not answered by that name: ask for localhost or "
                "127.0.0.1, also in a proxy's Host header, or serve with a token",
            )
        elif not self._is_known(scope):
            await refuse(sent, 401, "who is asking?", (b"www-authenticate", b"Bearer"))
        elif not self._has_room(address):
            await refuse(sent, 503, "too many requests at a time", (b"retry-after", b"1"))
        else:
            has_place = True
            self._running[address] += 1
            left = partial(self._left, address)
            try:
                await asyncio.wait_for(
                    self._inner({**scope, _LEAVE: left}, received, sent),
                    self._limits.request_seconds,
                )
            except (asyncio.TimeoutError, TimeoutError, _StalledError):
                # What has begun cannot be taken back: the connection ends without its last bytes.
                is_cut = False
                if not begun:
                    await refuse(sent, 503, "it takes too long")
            except Exception:
                _log.exception("a request failed")
                if not begun:
                    await refuse(sent, 500, "the server failed")
            finally:
                self._running -= Counter([address])

    async def _cuttable(self, transfer: Awaitable[T], address: str, seconds: float | None) -> T:
        """Until the client has taken so much that there is room for more, or has sent more."""
        taking = asyncio.ensure_future(transfer)
        self._taking[taking] = address
        try:
            return await asyncio.wait_for(taking, seconds)
        except (asyncio.TimeoutError, TimeoutError) as error:
            raise _StalledError from error
        except asyncio.CancelledError:
            if taking in self._taking:  # the request itself is to end
                raise
            raise _StalledError from None
        finally:
            self._taking.pop(taking, None)

    def _has_room(self, address: str) -> bool:
        """Makes it where it can: who takes or sends nothing keeps nobody out. An address that has
        more requests than others cuts its own alone.
        """
        running, most = self._running, self._limits.requests
        has_its_share = running[address] >= most - most // 8
        if not has_its_share and running.total() < most:
            return True
        under_way = (one for one in self._taking if not one.done())
        longest = max(under_way, key=lambda one: running[self._taking[one]], default=None)
        if longest is None or running[self._taking[longest]] < running[address]:
            return False
        del self._taking[longest]
        return longest.cancel()

    @contextlib.contextmanager
    def _left(self, address: str) -> Iterator[None]:
        # Who comes back finds room: so many more than allowed as had waited.
        self._running -= Counter([address])
        try:
            yield
        finally:
            self._running[address] += 1

    def _is_known(self, scope: Message) -> bool:
        if self._token is None:
            return True
        given = b""
        for name, value in scope["headers"]:
            if name == b"authorization":
                given = value
        scheme, _, word = given.partition(b" ")
        # Of digests, which have one length whatever was sent.
        same = hmac.compare_digest(_digest(word.strip()), self._token)
        return scheme.lower() == b"bearer" and same


def _is_rebound(scope: Message) -> bool:
    """Whether a request that came in at a loopback address is for another name: of a web page whose
    name leads here, so that a browser on this machine lets it read the answer. An address leads
    nowhere else.
    """
    server = scope.get("server")
    at = None if server is None else _address(server[0])
    if at is None or not at.is_loopback:
        return False
    hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
    names = [
        host[1:].partition("]")[0] if host[:1] == "[" else host.partition(":")[0] for host in hosts
    ]
    return any(name.lower() != "localhost" and _address(name) is None for name in names)


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def address_of(client: tuple[str, int] | None) -> str:
    """What a client's share is counted by: its address, or of IPv6 the network, as one machine may
    have all addresses of that. All machines of a link share the network of link-local ones.
    """
    text = "" if client is None else client[0]
    address = _address(text)  # none of a socket file
    if (
        isinstance(address, ipaddress.IPv6Address)
        and address.ipv4_mapped is None
        and not address.is_link_local
    ):
        return str(ipaddress.IPv6Network((address.packed[:8] + bytes(8), 64)))
    return text


def _digest(word: bytes) -> bytes:
    return hashlib.sha256(word).digest()


async def refuse(send: Send, status: int, why: str, *headers: tuple[bytes, bytes]) -> None:
    """An answer that says why there is no other."""
    body = json.dumps({"detail": why}).encode()
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [
                (b"content-type", b"application/json"),
                (b"content-length", str(len(body)).encode()),
                *headers,
            ],
        }
    )
    await send({"type": "http.response.body", "body": body})
