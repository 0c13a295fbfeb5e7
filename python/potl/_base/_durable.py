# SPDX-License-Identifier: Apache-2.0
"""Files that survive a power cut whole; the small ones may only be read by their owner."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from .. import _core
from ._errors import StorageError


def state_folder() -> Path:
    """Where potl keeps what outlives a program: in the user's state directory."""
    home = os.environ.get("XDG_STATE_HOME", "")
    return Path(home if home.startswith("/") else "~/.local/state").expanduser() / "potl"


def write_new(path: Path, text: str, *, mode: int = 0o600) -> None:
    """Writes a file that must not exist, with these permissions.

    Raises:
        OSError: It exists, or cannot be written; then nothing is left of it.
        StorageError: Its name cannot be made durable.
    """
    with new_file(path, mode=mode) as file:
        file.write(text.encode("utf-8"))
    _core.sync_directory(str(path.parent))


@contextlib.contextmanager
def new_file(path: Path, *, mode: int = 0o600) -> Iterator[BinaryIO]:
    """A file that must not exist, to be written in the block. It has its name only when it is whole
    and durable, however the block or the process ends; the name itself is not durable yet.

    Raises:
        OSError: It exists, or cannot be written; then nothing is left of it, nor is if the block
            raises.
    """
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    made = path.with_name(f".potl-{secrets.token_hex(8)}.tmp")
    with _removed_unless_whole(made, named=path):
        handle = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        _give_name(made, path)


def _give_name(made: Path, path: Path) -> None:
    """Not by `rename`, which would replace what somebody else made meanwhile."""
    try:
        os.link(made, path)
    except OSError as error:
        # FAT, for example, has no hard links.
        no_links = error.errno in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS)
        if not no_links or os.path.lexists(path):
            raise
        made.rename(path)
    else:
        made.unlink()


def replace_private(path: Path, text: str) -> None:
    """Puts a file of mode 600 in the place of what is there, in one step.

    Raises:
        OSError: It cannot be written; the old file stands.
        StorageError: Its name cannot be made durable.
    """
    handle, name = tempfile.mkstemp(prefix=path.name, dir=path.parent)
    with _removed_unless_whole(Path(name), named=path):
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    _core.sync_directory(str(path.parent))


@contextlib.contextmanager
def stored() -> Iterator[None]:
    """Trouble of a disk in the block is a StorageError."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"{error.filename2 or error.filename}: {error.strerror or error}",
            "check who may read and write there, and the free space; TMPDIR names another folder "
            "for temporary files",
        ) from error
    except UnicodeEncodeError as error:
        raise StorageError(
            f"this locale cannot write the name {error.object!a}",
            "set a UTF-8 locale: LC_ALL=C.UTF-8",
        ) from error


@contextlib.contextmanager
def _removed_unless_whole(made: Path, *, named: Path) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        with contextlib.suppress(OSError):
            made.unlink()
        # Of a handle it has no name.
        if isinstance(error, OSError) and error.errno and error.filename in (None, str(made)):
            error.filename = str(named)
        raise
