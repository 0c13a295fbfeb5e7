# SPDX-License-Identifier: Apache-2.0
"""Public keys, as users name them."""

from __future__ import annotations

import os
from pathlib import Path

from .. import _core
from ._errors import MalformedError, UsageError


def public_key(key: _core.PublicKey | str | os.PathLike[str]) -> _core.PublicKey:
    """A key, or the one in a PEM file, which somebody else may have written.

    Raises:
        UsageError: There is no such file.
        MalformedError: It is no public key.
    """
    if isinstance(key, _core.PublicKey):
        return key
    path = os.fspath(key)
    if not Path(path).is_file():
        raise UsageError(
            f"there is no public key {path}", "check the path; potl keygen NAME makes NAME.pub"
        )
    pem = _core.read_file(path, max_bytes=1 << 16).decode("ascii", "backslashreplace")
    try:
        return _core.PublicKey.from_pem(pem)
    except MalformedError as error:
        raise MalformedError(f"{path}: {error.message}", error.remedy) from error
