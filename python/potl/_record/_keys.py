# SPDX-License-Identifier: Apache-2.0
"""Where a prover's signing key comes from."""

from __future__ import annotations

import fcntl
import logging
import os
from pathlib import Path

from .. import _core
from .._base._durable import state_folder
from .._base._errors import MalformedError, MissingError, StorageError, UsageError
from ._keygen import write_pair, write_private

_log = logging.getLogger("potl")


def load_or_create(path: str | os.PathLike[str]) -> _core.SigningKey:
    """The Ed25519 key in a PEM file; creates it, and NAME.pub beside it, when there is none.

    Raises:
        UsageError: The name is a public key's, or only the public half is there.
        MalformedError: The file is not a private key.
    """
    target = Path(path)
    if target.exists():
        return _load(target)
    if target.suffix != ".pem":
        raise UsageError(f"there is no key {target}", "name NAME.pem to have a new key made")
    public = target.with_suffix(".pub")
    if public.exists():
        raise UsageError(
            f"there is no {target}, but {public} is there",
            "restore the private key, or delete the public one to have a new pair made",
        )
    write_pair(target)
    _log.warning("created the signing key %s; whoever has this file can sign in your name", target)
    return _load(target)


def of_referee() -> _core.SigningKey:
    """The key with which this user decides disputes, where no other is named: in the state
    directory, created when there is none.
    """
    folder = state_folder()
    path = folder / "referee.pem"
    try:
        _core.create_directory(str(folder))
        with (folder / "referee.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be making it
            is_new = not path.exists()
            key = load_or_create(path)
    except (MissingError, StorageError, OSError) as error:
        remedy = "name one with --referee-key, in Python Referee(key=), or set XDG_STATE_HOME"
        why = error if isinstance(error, OSError) else error.message
        raise StorageError(
            f"the referee's key can be neither read nor made: {why}", remedy
        ) from error
    if is_new:
        _log.warning(
            "servers of parties answer a referee whose public key they have: potl serve "
            "--disputes --referee-key %s",
            path.with_suffix(".pub"),
        )
    return key


def for_run(
    key: str | os.PathLike[str] | _core.SigningKey | None, directory: Path
) -> _core.SigningKey:
    """The key to sign a run with: as given, or one kept in the run directory for a resume."""
    if isinstance(key, _core.SigningKey):
        return key
    if key is not None:
        return load_or_create(key)
    kept = directory / _core.KEY_NAME
    if not kept.exists():
        _core.create_directory(str(directory))
        write_private(kept, _core.SigningKey.generate())
    return _load(kept)


def of_recorded(
    key: str | os.PathLike[str] | _core.SigningKey | None, directory: Path
) -> _core.SigningKey:
    """The key that recorded a run. None is made: a new one cannot be it.

    Raises:
        UsageError: There is no such file, or none in the run directory.
    """
    if isinstance(key, _core.SigningKey):
        return key
    wanted = (
        "pass the key that recorded the run: --key, or key=; for a party of potl dispute, "
        "--trainer-key or --auditor-key"
    )
    if key is not None:
        return existing(key, wanted)
    kept = directory / _core.KEY_NAME
    if not kept.exists():
        raise UsageError(f"{directory} holds no key of its own", wanted)
    return _load(kept)


def existing(path: str | os.PathLike[str], remedy: str) -> _core.SigningKey:
    """The key in a PEM file. UsageError, with this remedy: there is no such file."""
    target = Path(path)
    if not target.exists():
        raise UsageError(f"there is no key {target}", remedy)
    return _load(target)


def _load(path: Path) -> _core.SigningKey:
    # A file that is not a PEM block at all is for the parser to refuse.
    text = path.read_bytes().decode("ascii", "backslashreplace")
    try:
        return _core.SigningKey.from_pem(text)
    except MalformedError as error:
        raise MalformedError(f"{path}: {error.message}", error.remedy) from error
