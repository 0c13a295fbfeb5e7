# SPDX-License-Identifier: Apache-2.0
"""A thread for work that takes long, which ends with the server and not with the work."""

from __future__ import annotations

import asyncio
import ctypes
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class _EndedError(BaseException):
    """Nobody waits for this work any more."""


class Worker:
    """One piece of work at a time."""

    def __init__(self, name: str) -> None:
        self._threads = ThreadPoolExecutor(1, name)
        self._started: set[asyncio.Future[Any]] = set()
        self._thread: int | None = None
        self._rests = threading.Event()
        self._rests.set()

    def start(self, call: Callable[..., T], *given: object) -> asyncio.Future[T]:
        """What the call returns, in the end."""
        loop = asyncio.get_running_loop()
        started = loop.run_in_executor(self._threads, self._work, call, *given)
        self._started.add(started)
        started.add_done_callback(self._started.discard)
        return started

    def end(self) -> None:
        """Interrupts what is under way, between two lines of Python: a process that ends would wait
        for its threads. Returns when it has ended, or after a second.
        """
        self._threads.shutdown(wait=False, cancel_futures=True)
        for one in list(self._started):
            one.cancel()
        if (thread := self._thread) is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(thread), ctypes.py_object(_EndedError)
            )
            self._rests.wait(1.0)

    def _work(self, call: Callable[..., T], *given: object) -> T:
        self._thread = threading.get_ident()
        self._rests.clear()
        try:
            return call(*given)
        finally:
            self._thread = None
            self._rests.set()
