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
        came.append(number)
        raise KeyboardInterrupt

    def leave() -> None:
        for one in _NUMBERS:
            if signal.getsignal(one) is interrupt:
                signal.signal(one, signal.SIG_DFL)

    # What a task forks has nothing to remove, and may hang where Python handles no signals.
    os.register_at_fork(after_in_child=leave)
    # nohup has its programs ignore SIGHUP.
    taken = [one for one in _NUMBERS if signal.getsignal(one) is signal.SIG_DFL]
    for one in taken:
        signal.signal(one, interrupt)
    try:
        yield
    finally:
        leave()
        if came:
            os.kill(process, came[0])
