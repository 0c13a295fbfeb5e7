# SPDX-License-Identifier: Apache-2.0
"""A command that is told to end first removes its temporary files, as after Ctrl-C: they may hold
somebody's data."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from types import FrameType

_NUMBERS = (signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def ends_tidily() -> Iterator[None]:
    """SIGTERM and SIGHUP interrupt the block, and end the process behind it as they always do. A
    second one ends it at once.
    """
    process, came = os.getpid(), list[int]()

    def interrupt(number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        if os.getpid() != process:  # what a task forked has nothing to remove
            os.kill(os.getpid(), number)
        came.append(number)
        raise KeyboardInterrupt

    # nohup has its programs ignore SIGHUP.
    taken = [one for one in _NUMBERS if signal.getsignal(one) is signal.SIG_DFL]
    for one in taken:
        signal.signal(one, interrupt)
    try:
        yield
    finally:
        for one in taken:
            signal.signal(one, signal.SIG_DFL)
        if came:
            os.kill(process, came[0])
