# SPDX-License-Identifier: Apache-2.0
"""`Worker`: the untrusted side of a spot-checked training."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .. import _core
from .._base._errors import StorageError, UsageError
from .._base._printable import printable
from .._job._agreement import open_checked
from .._job._job import Job
from ._gradients import Gradients

if TYPE_CHECKING:
    from .._job._session import Session
    from .._task._task import Task
    from ._own_loop import OwnLoop

_log = logging.getLogger("potl")

Key = bytes | str | os.PathLike[str]

_LEAST_KEY = 16
# How long a worker waits for a connection before it looks whether somebody wants it to end.
_ACCEPT_SECONDS = 3600.0


@dataclass(frozen=True, kw_only=True)
class Served:
    """How a worker's last session ended.

    Attributes:
        steps: Gradients that were sent.
        finished: Whether the training came to its end.
        reason: Why the trusted side stopped it; empty when finished.
    """

    steps: int
    finished: bool
    reason: str


class Worker:
    """Computes gradients for a trusted side, and keeps nothing between two steps.

    Args:
        build: Makes the agreed task. Whether it is the job's is looked at before the first step.
        key: The secret that both sides share, as bytes or as a file that holds them. Not needed
            where the trusted side has the worker in its own process.
        wrap: For tests and demonstrations: changes what computes the gradients.

    Example:
        >>> worker = potl.spot_check.Worker(build, key="shared.key")  # doctest: +SKIP
        >>> worker.serve("unix:/run/potl.sock")  # doctest: +SKIP
    """

    def __init__(
        self,
        build: Callable[[], Task],
        *,
        key: Key | None = None,
        wrap: Callable[[Gradients], _core.GradientSource] | None = None,
    ) -> None:
        self._build = build
        self._key = None if key is None else secret(key)
        self._wrap = wrap
        self._opened: tuple[bytes, Session, _core.GradientSource] | None = None

    def serve(
        self,
        address: str,
        *,
        timeout: float = 600.0,
        ready: Callable[[str], None] | None = None,
    ) -> Served:
        """Waits for a trusted side and answers it, until it ends the training.

        A connection that is lost changes nothing: the next one is waited for. Whoever connects has
        10 s to show that it has the key, and others come in meanwhile: at most 64 connections wait
        so, and the oldest gives way.

        Args:
            address: "unix:/path" or "tcp://host:port"; port 0 takes a free one.
            timeout: Seconds that the trusted side may be silent, once it has shown its key.
            ready: Told the address once it can be connected to.

        Raises:
            StorageError: Nobody can listen there.
            UsageError: No such address, or the worker has no key.
        """
        key = self._own_key()
        door = _core.SpotCheckDoor(address, key=key)
        if ready is not None:
            ready(door.address)
        while True:
            try:
                socket = door.next(_ACCEPT_SECONDS)
            except StorageError:
                continue
            stopped, reason, steps = self._answer(socket, key, timeout)
            if stopped:
                return Served(steps=steps, finished=not reason, reason=reason)
            _log.warning("a session ended after %d steps: %s", steps, printable(reason))

    def open(self, address: str, *, timeout: float = 600.0) -> OwnLoop:
        """Waits for a trusted side that checks a loop of your own: see
        `potl.SpotCheckedOptimizer`. It is a context, and serves one session.

        Args:
            address: As of `serve`.
            timeout: The same.

        Raises:
            StorageError: Nobody can listen there.
            UsageError: No such address, or the worker has no key.
        """
        from ._own_loop import OwnLoop

        key = self._own_key()
        return OwnLoop(self._gradients, address=address, key=key, timeout=timeout)

    def _own_key(self) -> bytes:
        if self._key is None:
            raise UsageError("the worker has no key", "pass key=, the same as the trusted side's")
        return self._key

    def _answer(
        self, socket: _core.SpotCheckSocket, key: bytes, timeout: float
    ) -> tuple[bool, str, int]:
        return _core.spot_check_serve(socket, key=key, make=self._gradients, timeout=timeout)

    def _gradients(self, text: str) -> _core.GradientSource:
        job = _core.Job.parse(text.encode())
        if self._opened is None or self._opened[0] != job.id:
            self.close()
            session = open_checked(self._build, Job(job))
            honest = Gradients(session)
            source = honest if self._wrap is None else self._wrap(honest)
            self._opened = job.id, session, source
        return self._opened[2]

    def close(self) -> None:
        """Lets go of the task."""
        if self._opened is not None:
            self._opened[1].close()
            self._opened = None


def secret(key: Key) -> bytes:
    """A shared secret.

    Raises:
        UsageError: There is no such file, or too few bytes.
    """
    if not isinstance(key, bytes):
        path = Path(key)
        if not path.is_file():
            raise UsageError(
                f"there is no key {path}",
                f"make one for both sides: head -c 32 /dev/urandom > {path}",
            )
        key = path.read_bytes()
    if not _LEAST_KEY <= len(key) <= 1 << 16:
        raise UsageError(
            f"a key of {len(key)} bytes", f"use {_LEAST_KEY} random bytes or more, for example 32"
        )
    return key
