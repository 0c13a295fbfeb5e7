# SPDX-License-Identifier: Apache-2.0
"""A new pair of keys on disk."""

from __future__ import annotations

from pathlib import Path

from .. import _core
from .._base._durable import write_new
from .._base._errors import UsageError


def write_pair(path: Path, *, encryption: bool = False) -> tuple[Path, Path, str]:
    """Writes NAME.pem (mode 0600) and NAME.pub, and returns both paths and the public key in
    hexadecimal, as jobs show it.

    Args:
        path: NAME, or one of the files.
        encryption: A pair for encryption, instead of one for signatures.

    Raises:
        UsageError: One of the files exists.
    """
    name = path.with_suffix("") if path.suffix in (".pem", ".pub") else path
    private, public = name.with_name(name.name + ".pem"), name.with_name(name.name + ".pub")
    for existing in (private, public):
        if existing.exists():
            raise UsageError(f"{existing} exists and is not replaced", "choose another name")
    _core.create_directory(str(name.parent))
    key = _core.OpeningKey.generate() if encryption else _core.SigningKey.generate()
    write_private(private, key)
    try:
        write_new(public, key.public_key.to_pem(), mode=0o644)
    except BaseException:
        # Nobody has the public half: the key has no use, and would be in the way of the next try.
        private.unlink()
        raise
    return private, public, key.public_key.raw.hex()


def write_private(path: Path, key: _core.SigningKey | _core.OpeningKey) -> None:
    """Writes a PEM file that only its owner can read. It must not exist."""
    write_new(path, key.to_pem())
