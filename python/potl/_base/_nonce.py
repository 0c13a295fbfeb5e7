# SPDX-License-Identifier: Apache-2.0
"""Nonces as they are passed: what a draw depends on that no trainer knew before."""

from __future__ import annotations

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
    else:
        text = os.fspath(nonce)
        if Path(text).is_file():
            text = _core.read_file(text, max_bytes=1 << 10).decode("ascii", "replace").strip()
        try:
            raw = bytes.fromhex(text)
        except ValueError:
            raw = b""
    if len(raw) != 32:
        raise UsageError(
            "a nonce is 32 bytes, their 64 hexadecimal digits, or a file that holds those", _REMEDY
        )
    if not any(raw):
        raise UsageError("the nonce is zero, which nobody drew", _REMEDY)
    return raw


def or_fresh(nonce: Nonce | None) -> bytes:
    """The nonce that was given, or a new one."""
    return _core.fresh_nonce() if nonce is None else as_nonce(nonce)
