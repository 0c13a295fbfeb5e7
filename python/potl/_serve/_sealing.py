# SPDX-License-Identifier: Apache-2.0
"""Encrypts every answer to the key of who asks, and answers nobody else: docs/format/http.md."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .. import _core
from .._remote._sealed import (
    ANSWER_HEADER,
    MEDIA_TYPE,
    SEAL_HEADER,
    Enclosing,
    bound,
    sealed_size,
)
from ._limits import Application, Message, Receive, Send, refuse

_ASKED = re.compile(rb"([0-9a-f]{64}) ([0-9a-f]{32})")


class Sealing:
    """Stands before the endpoints.

    Args:
        inner: The endpoints.
        job: Id of the run's job.
        readers: To whom is encrypted.
    """

    def __init__(
        self, inner: Application, *, job: str, readers: Sequence[_core.SealingKey]
    ) -> None:
        self._inner, self._job = inner, job
        self._readers = {one.key_id.encode(): one for one in readers}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        headers = dict(scope["headers"])
        asked = _ASKED.fullmatch(headers.get(SEAL_HEADER.lower().encode(), b""))
        reader = None if asked is None else self._readers.get(asked[1])
        if asked is None or reader is None:
            await refuse(send, 403, f"{SEAL_HEADER} has to name a key that this server knows")
            return
        query = scope["query_string"]
        target = scope["raw_path"] + (b"?" + query if query else b"")
        wanted = headers.get(b"range", b"")
        about = (scope["method"], target.decode("latin-1"), wanted.decode("latin-1"), self._job)
        answer = _Answer(reader, (*about, asked[2].decode()), send)
        await self._inner(scope, receive, answer.send)


class _Answer:
    """One answer on its way out."""

    def __init__(
        self, reader: _core.SealingKey, about: tuple[str, str, str, str, str], send: Send
    ) -> None:
        self._reader, self._about, self._send = reader, about, send
        self._frames: Enclosing | None = None

    async def send(self, message: Message) -> None:
        """What the endpoints send."""
        if message["type"] == "http.response.start":
            await self._send(self._started(message))
            return
        assert self._frames is not None
        last = not message.get("more_body", False)
        for frame in self._frames.take(message.get("body", b""), last=last):
            more = not self._frames.ended
            await self._send({"type": "http.response.body", "body": frame, "more_body": more})

    def _started(self, message: Message) -> Message:
        """Of what the endpoints say about their answer, what goes out in the open."""
        headers = dict(message["headers"])
        given = headers.get(b"content-range", b"").decode()
        said = f"{message['status']} {given}".rstrip()
        self._frames = Enclosing(self._reader, bound(*self._about, said))
        size = sealed_size(int(headers[b"content-length"]))
        return {
            "type": message["type"],
            "status": 200,
            "headers": [
                (b"content-type", MEDIA_TYPE.encode()),
                (b"content-length", str(size).encode()),
                (ANSWER_HEADER.lower().encode(), said.encode()),
            ],
        }
