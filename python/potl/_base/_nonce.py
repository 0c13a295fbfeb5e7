# SPDX-License-Identifier: Apache-2.0
"""Nonces as they are passed: what a draw depends on that no trainer knew before."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TypeAlias

from .. import _core
from ._errors import UsageError

Nonce: TypeAlias = "bytes | str | os.PathLike[str]"

_REMEDY = "make one with `openssl rand -hex 32`, and keep it from the trainer"


def as_nonce(nonce: Nonce) -> bytes:
    """The 32 bytes of a nonce: as they are, as 64 hexadecimal digits, or in a file of those."""
    if isinstance(nonce, (bytes, bytearray, memoryview)):
        raw = bytes(nonce)
    elif isinstance(nonce, (str, os.PathLike)):
        text = os.fspath(nonce)
        raw = _of_digits(text)
        # Some other text can be no name of a file, and is refused below.
        with contextlib.suppress(OSError):
            if len(raw) != 32 and Path(text).is_file():
                read = _core.read_file(text, max_bytes=1 << 10)
                raw = _of_digits(read.decode("ascii", "replace").strip())
    else:
        raw = b""
    if len(raw) != 32:
        raise UsageError(
            "a nonce is 32 bytes, their 64 hexadecimal digits, or a file that holds those", _REMEDY
        )
    if not any(raw):
        raise UsageError("the nonce is zero, which nobody drew", _REMEDY)
    return raw


def _of_digits(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""


def or_fresh(nonce: Nonce | None) -> bytes:
    """The nonce that was given, or a new one."""
    return _core.fresh_nonce() if nonce is None else as_nonce(nonce)
