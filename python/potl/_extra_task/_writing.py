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
def whole(path: Path) -> Iterator[None]:
    """What was not written to its end is removed: half of an upload looks like one."""
    require_absent(path)
    try:
        yield
    except BaseException:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
        raise


def random_name() -> str:
    """A file name that says nothing."""
    return secrets.token_hex(8)
