# SPDX-License-Identifier: Apache-2.0
"""uvicorn's HTTP, which by itself waits without end for a client that neither asks nor takes."""

import contextlib
import socket
from collections import Counter
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from ._limits import Message, Receive, Send, address_of


class Door(socket.socket):
    """A listening socket. No protocol knows a connection before its TLS is set up, which may take
    as long as its client likes, and it holds a file all the same. Of more of them than `most`, the
    one ends that has come first, of the address that has most.
    """

    def __init__(self, listening: socket.socket, most: int) -> None:
        super().__init__(fileno=listening.detach())
        self._most = most
        # By the number of its file, which says whether it still has that; the first first.
        self._coming: dict[int, tuple[socket.socket, str]] = {}
        self._ended = set[int]()

    def accept(self) -> tuple[socket.socket, Any]:
        """The next one. BlockingIOError: not before those that were ended are gone."""
        self._coming = {at: one for at, one in self._coming.items() if one[0].fileno() == at}
        self._ended &= self._coming.keys()
        if len(self._coming) >= 2 * self._most:
            raise BlockingIOError
        connection, client = super().accept()
        self._coming[connection.fileno()] = connection, address_of(client)
        addresses = {at: one[1] for at, one in self._coming.items() if at not in self._ended}
        if len(addresses) > self._most:
            held = Counter(addresses.values())
            first = max(addresses, key=lambda at: held[addresses[at]])
            self._ended.add(first)
            with contextlib.suppress(OSError):  # its client has left
                self._coming[first][0].shutdown(socket.SHUT_RDWR)
        return connection, client

    def has_come(self, number: int) -> None:
        """A protocol knows the connection with this file."""
        self._coming.pop(number, None)
        self._ended.discard(number)


def protocol(seconds: float, most: int, door: Door) -> type[H11Protocol]:
    """HTTP over connections that end when no request has come within so many seconds, or when an
    answer was given up. Of more connections than `most`, the one ends that has waited longest for
    its client's next request, of the address that has most connections: whoever asks comes in,
    however many others hold the line or come.
    """
    # Without a whole request, the longest first.
    silent: dict[H11Protocol, None] = {}
    addresses: dict[H11Protocol, str] = {}

    class Impatient(H11Protocol):
        _waiting: Any = None

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self._inner = self.app
            self.app = self._answered

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            door.has_come(transport.get_extra_info("socket").fileno())
            self._wait()
            addresses[self] = address_of(self.client)
            silent[self] = None
            if len(addresses) > most:
                held = Counter(addresses.values())
                longest = max(silent, key=lambda one: held[addresses[one]])
                if longest is not self:  # of whose address all others are being answered
                    del silent[longest]
                    longest.transport.abort()

        def connection_lost(self, exc: Exception | None) -> None:
            self._waiting.cancel()
            silent.pop(self, None)
            addresses.pop(self, None)
            super().connection_lost(exc)

        def handle_events(self) -> None:
            super().handle_events()
            cycle = self.cycle
            if cycle is not None and not cycle.response_complete and not cycle.more_body:
                silent.pop(self, None)

        def on_response_complete(self) -> None:
            silent[self] = None
            super().on_response_complete()
            self._waiting.cancel()
            self._wait()

        async def _answered(self, scope: Message, receive: Receive, send: Send) -> None:
            # This request's: at the end, the client's next one may have come.
            cycle = self.cycle
            try:
                await self._inner(scope, receive, send)
            finally:
                # Closed, it would wait until the client takes what is on its way.
                if not cycle.response_complete:
                    self.transport.abort()

        def _wait(self) -> None:
            self._waiting = self.loop.call_later(seconds, self._give_up)

        def _give_up(self) -> None:
            if self.cycle is None or self.cycle.response_complete:
                self.transport.abort()

    return Impatient
