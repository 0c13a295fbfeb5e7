# SPDX-License-Identifier: Apache-2.0
"""Files in which people read reports."""

from __future__ import annotations

from pathlib import Path

from .. import _core
from .._base._errors import LimitError, MalformedError, UsageError
from ._document import MOST_BYTES, parse

_PAGES = (b"<!doctype html", b"<?xml")


def require_page(path: Path) -> None:
    """Refuses a file that no report can be written to, or that is none and would be lost.

    Raises:
        UsageError: There is no folder for it, or something else has its name.
    """
    folder = path.absolute().parent
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}", "make it, or name another one")
    if path.is_dir():
        raise UsageError(f"{path} is a folder", "name a file in it")
    if path.exists() and not (path.is_file() and _is_report(path)):
        raise UsageError(f"{path} exists and is no report", "name another file")


def write_page(path: Path, text: str) -> None:
    """Writes a report over nothing but an earlier one. Who reads meanwhile sees one of them whole.

    Raises:
        UsageError: As `require_page`.
        StorageError: It cannot be written.
    """
    require_page(path)
    _core.write_file(str(path), text.encode())


def _is_report(path: Path) -> bool:
    try:
        text = _core.read_file(str(path), max_bytes=MOST_BYTES)
        if not text.lstrip()[:20].lower().startswith(_PAGES):
            parse(text)
    except (LimitError, MalformedError):
        return False
    return True
