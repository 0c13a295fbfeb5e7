# SPDX-License-Identifier: Apache-2.0
"""Answers that are encrypted to the key of who asks: docs/format/http.md."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from .. import _core
from .._base._errors import MalformedError, UsageError

SEAL_HEADER, ANSWER_HEADER = "Potl-Seal", "Potl-Answer"
MEDIA_TYPE = "application/vnd.potl.sealed"
FRAME_BYTES = 256 << 10
_HEAD, _EXTRA = 32, 16
_MAX_PEM = 16 << 10

_Key = TypeVar("_Key")


def sealed_size(size: int) -> int:
    """Bytes that so many become."""
    return _HEAD + size + _EXTRA * max(1, -(-size // FRAME_BYTES))


def opened_size(size: int) -> int:
    """What became so many bytes. ValueError: nothing does."""
    body = size - _HEAD
    plain = body - _EXTRA * max(1, -(-body // (FRAME_BYTES + _EXTRA)))
    if plain < 0 or sealed_size(plain) != size:
        raise ValueError(f"nothing is encrypted in {size} bytes")
    return plain


def bound(method: str, target: str, wanted: str, job: str, nonce: str, answer: str) -> bytes:
    """What an answer is bound to: nobody makes it one to another request.

    Args:
        method: GET or POST.
        target: Path and query as they were sent.
        wanted: The header Range; "" if there is none.
        job: The header Potl-Job of the answer.
        nonce: Drawn by who asks.
        answer: The header Potl-Answer.
    """
    return "\n".join(("potl.sealed.v1", method, target, wanted, job, nonce, answer)).encode()


class Enclosing:
    """Encrypts a stream as its bytes come.

    Args:
        key: Of who is to read it.
        info: What it is bound to.
    """

    def __init__(self, key: _core.SealingKey, info: bytes) -> None:
        self._sealer = _core.FrameSealer(key, info)
        self._head, self._held = self._sealer.head, bytearray()
        self.ended = False

    def take(self, piece: bytes, *, last: bool) -> Iterator[bytes]:
        """The frames that are whole by now; the first comes with the head."""
        self._held += piece
        # The last frame may be a whole one: it waits until it is known for the last.
        while len(self._held) > FRAME_BYTES:
            yield self._frame()
        if last:
            self.ended = True
            yield self._frame()

    def _frame(self) -> bytes:
        with memoryview(self._held) as held, held[:FRAME_BYTES] as plain:
            frame = self._head + self._sealer.seal(plain, self.ended)
        self._head = b""
        del self._held[:FRAME_BYTES]
        return frame


class Opening:
    """Opens that stream as its bytes come.

    Args:
        key: The secret key of its reader.
        info: What it is bound to.
        size: What it holds.
    """

    def __init__(self, key: _core.OpeningKey, info: bytes, size: int) -> None:
        self._key, self._info = key, info
        self._left = size
        self._opener: _core.FrameOpener | None = None
        self._held = bytearray()
        self.ended = False

    def take(self, piece: bytes) -> list[bytes]:
        """What is in the frames that are whole by now.

        Raises:
            PotlError: It is not what was encrypted, in this order and bound to this.
        """
        self._held += piece
        if self._opener is None:
            if len(self._held) < _HEAD:
                return []
            self._opener = _core.FrameOpener(self._key, bytes(self._held[:_HEAD]), self._info)
            del self._held[:_HEAD]
        opened: list[bytes] = []
        while not self.ended:
            size = min(self._left, FRAME_BYTES)
            if len(self._held) < size + _EXTRA:
                return opened
            self.ended = size == self._left
            with memoryview(self._held) as held, held[: size + _EXTRA] as frame:
                opened.append(self._opener.open(frame, self.ended))
            del self._held[: size + _EXTRA]
            self._left -= size
        return opened


def read_opening_key(path: str | os.PathLike[str]) -> _core.OpeningKey:
    """The secret key in a file."""
    return _read(_core.OpeningKey.from_pem, path)


def read_sealing_key(path: str | os.PathLike[str]) -> _core.SealingKey:
    """The public key in a file."""
    return _read(_core.SealingKey.from_pem, path)


def _read(parse: Callable[[str], _Key], path: str | os.PathLike[str]) -> _Key:
    where = os.fspath(path)
    try:
        with Path(path).open("rb") as file:
            # What is not a PEM block is for the parser to refuse.
            text = file.read(_MAX_PEM + 1).decode("ascii", "backslashreplace")
        return parse(text)
    except OSError as error:
        remedy = "check the path; potl keygen NAME --encryption makes NAME.pem and NAME.pub"
        raise UsageError(f"there is no key {where}: {error.strerror}", remedy) from error
    except MalformedError as error:
        raise MalformedError(f"{where}: {error.message}", error.remedy) from error
