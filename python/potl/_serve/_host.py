# SPDX-License-Identifier: Apache-2.0
"""`host_disputes`: a referee that both parties call, until somebody ends it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from .._dispute._dispute import public_keys
from .._dispute._referee import Referee
from .._dispute._table import SystemClock
from ._limits import ServeLimits
from ._listen import require_installed, run_server

if TYPE_CHECKING:
    from .. import _core


def host_disputes(
    referee: Referee,
    *,
    transcripts: str | os.PathLike[str],
    keys: Mapping[str, _core.PublicKey | str | os.PathLike[str]],
    turn_seconds: float,
    listen: str,
    token: str | None = None,
    tls_cert: str | os.PathLike[str] | None = None,
    tls_key: str | os.PathLike[str] | None = None,
    limits: ServeLimits | None = None,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Decides disputes between two parties that call (`potl.dispute_at`). Returns when SIGTERM or
    SIGINT ends it; call it in a process's main thread.

    Args:
        referee: Job, task and key of who decides.
        transcripts: Folder of the lines, a file for each dispute. After a crash they go on.
        keys: Public keys of "trainer", unless the job pins it, and "auditor", or their files.
        turn_seconds: A party that does not move for so long has lost.
        listen: HOST:PORT; port 0 takes a free one.
        token: What a client has to send (`Authorization: Bearer`). None: whoever reaches the port
            reads the lines, and what was opened of the runs in them.
        tls_cert: PEM file of the server's certificate and those above it.
        tls_key: PEM file of its private key.
        limits: What is spent on clients.
        ready: Is told the URL, once clients can connect.

    Raises:
        JobMismatch: The referee's task is not that of the job.
        UsageError: Nothing can be served like that, a key is not known, or another process holds
            the folder.
        MalformedError, MismatchError: A file in the folder is another dispute.
        StorageError: The address is taken, or the folder cannot be written.
    """
    require_installed("a referee that listens")
    from ._docket import Docket
    from ._hosting import application

    limits = ServeLimits() if limits is None else limits

    def another() -> Referee:
        return Referee(referee.job, task=referee.build, key=referee.key)

    referee._require_task()
    docket = Docket(
        another,
        keys=public_keys(referee, {}, keys),
        folder=transcripts,
        turn_seconds=turn_seconds,
        clock=SystemClock(),
    )
    with contextlib.closing(docket):
        run_server(
            application(docket, token=token, limits=limits),
            listen=listen,
            token=token,
            tls_cert=tls_cert,
            tls_key=tls_key,
            limits=limits,
            ready=ready,
        )
