# SPDX-License-Identifier: Apache-2.0
"""Says once what other libraries say at every build of a task.

potl builds and restores a task several times where a user's script does so once; a warning that
comes with each would look like several.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator
from typing import Any

# By text: what differs in a number is another message.
_told: set[str] = set()


@contextlib.contextmanager
def once() -> Iterator[None]:
    """Within, each log record and each warning of others is passed on once in this process."""
    handle, show = logging.Logger.callHandlers, warnings.showwarning

    def call_handlers(self: logging.Logger, record: logging.LogRecord) -> None:
        if record.name.partition(".")[0] == "potl" or _is_new(
            f"{record.name} {record.levelno} {record.getMessage()}"
        ):
            handle(self, record)

    def showwarning(message: Warning | str, category: type[Warning], *args: Any, **kw: Any) -> None:
        if _is_new(f"{category.__name__} {message}"):
            show(message, category, *args, **kw)

    logging.Logger.callHandlers = call_handlers  # type: ignore[method-assign]
    warnings.showwarning = showwarning
    try:
        yield
    finally:
        # Somebody else may have put something of their own there meanwhile.
        if logging.Logger.callHandlers is call_handlers:
            logging.Logger.callHandlers = handle  # type: ignore[method-assign]
        if warnings.showwarning is showwarning:
            warnings.showwarning = show


def _is_new(text: str) -> bool:
    if text in _told:
        return False
    _told.add(text)
    return True
