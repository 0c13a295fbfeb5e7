# SPDX-License-Identifier: Apache-2.0
"""The file of a sealed job: a head in the open, then frames. See docs/format/sealed_job.md."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import BinaryIO

from .. import _core
from .._base._errors import MalformedError, MismatchError, UnsupportedError, UsageError
from .._base._printable import printable
from .._remote._sealed import FRAME_BYTES, Opening, opened_size
from ._contents import ANOTHER

_VERSION, _ANY_VERSION = b"potl-sealed-job-v1\n", b"potl-sealed-job-v"
_HEAD = len(_VERSION) + 65
_AGAIN = f"get the file again; if it stays so, {ANOTHER}"


def head_of(key: _core.SealingKey) -> bytes:
    """What stands in the open, and is bound to every frame."""
    return _VERSION + key.raw.hex().encode() + b"\n"


class Plain:
    """What was sealed, in its order. Holds two frames at most.

    Args:
        file: Opened at its beginning.
        key: The secret key of its reader.

    Raises:
        MalformedError: It is not a sealed job, or not a whole one.
        UnsupportedError: It is of a later version.
        UsageError: It is sealed for another key.
    """

    def __init__(self, file: BinaryIO, key: _core.OpeningKey) -> None:
        self._file = file
        head = file.read(_HEAD)
        if len(head) < _HEAD or not head.startswith(_ANY_VERSION):
            raise MalformedError("it is not a sealed job", "name a file that potl seal wrote")
        if not head.startswith(_VERSION):
            raise UnsupportedError("it is of an unknown version", "a newer potl may read it")
        if head != head_of(key.public_key):
            meant = printable(head[len(_VERSION) : -1].decode("ascii", "backslashreplace"))
            raise UsageError(
                f"it is sealed for the key {meant[:64]}, and yours is {key.public_key.raw.hex()}",
                "open it with the secret key of the pair that the client was given",
            )
        try:
            self.left = opened_size(os.fstat(file.fileno()).st_size - len(head))
        except ValueError as error:
            raise MalformedError("it is not whole", _AGAIN) from error
        self._opening = Opening(key, head, self.left)
        self._frame = memoryview(b"")

    def read(self, size: int) -> Iterator[bytes]:
        """The next bytes, in pieces; no more than are left.

        Raises:
            MismatchError: What comes is not what was sealed.
        """
        while size > 0:
            if not self._frame:
                self._frame = memoryview(self._next())
            piece, self._frame = self._frame[:size], self._frame[size:]
            size -= len(piece)
            self.left -= len(piece)
            yield bytes(piece)

    def _next(self) -> bytes:
        while True:
            came = self._file.read(FRAME_BYTES)
            try:
                opened = self._opening.take(came)
            except (MalformedError, MismatchError) as error:
                raise MismatchError("it was cut or altered after it was sealed", _AGAIN) from error
            if opened:
                return b"".join(opened)
            if not came:
                raise MalformedError("it is not whole", _AGAIN)
