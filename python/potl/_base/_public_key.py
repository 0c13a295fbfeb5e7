# SPDX-License-Identifier: Apache-2.0
"""Public keys, as users name them."""

from __future__ import annotations

import os

from .. import _core


def public_key(key: _core.PublicKey | str | os.PathLike[str]) -> _core.PublicKey:
    """A key, or the one in a PEM file, which somebody else may have written."""
    if isinstance(key, _core.PublicKey):
        return key
    pem = _core.read_file(os.fspath(key), max_bytes=1 << 16).decode("ascii", "backslashreplace")
    return _core.PublicKey.from_pem(pem)
