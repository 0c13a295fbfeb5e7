# SPDX-License-Identifier: Apache-2.0
"""Writing files that replace nothing, are whole or absent, and have names that say nothing."""

from __future__ import annotations

import contextlib
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from .._base._errors import UsageError


def require_absent(path: Path) -> None:
    """Refuses to replace what exists."""
    if path.exists():
        raise UsageError(f"{path} exists and is not replaced", "choose another name")


def require_new(path: Path) -> None:
    """Refuses to replace what exists, and makes the folder of what does not."""
    require_absent(path)
    path.parent.mkdir(parents=True, exist_ok=True)


@contextlib.contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Yields a name to write a file or folder to, which gets its own when the block ends well. What
    was not written to its end never has that: half of an upload looks like one.
    """
    require_absent(path)
    made = path.with_name(f".potl-{random_name()}{path.suffix}")
    try:
        yield made
        require_absent(path)
        made.rename(path)
    except BaseException as error:
        if made.is_dir():
            shutil.rmtree(made, ignore_errors=True)
        else:
            made.unlink(missing_ok=True)
        if isinstance(error, OSError) and str(error.filename).startswith(str(made)):
            error.filename = str(path)
        raise


def random_name() -> str:
    """A file name that says nothing."""
    return secrets.token_hex(8)
