# SPDX-License-Identifier: Apache-2.0
"""uvicorn's HTTP, which by itself waits without end for a client that neither asks nor takes."""

from collections import Counter
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from ._limits import Message, Receive, Send, address_of


def protocol(seconds: float, most: int) -> type[H11Protocol]:
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
