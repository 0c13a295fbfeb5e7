# SPDX-License-Identifier: Apache-2.0
"""`serve`: a run over HTTP, until somebody ends it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .._base._errors import UsageError
from .._record._inputs import Recorded, run_directory
from .._remote._sealed import read_sealing_key
from ._limits import ServeLimits
from ._listen import require_installed, run_server
from ._served import ServedRun

if TYPE_CHECKING:
    from .. import _core
    from .._dispute._party import Party
    from .._dispute._seat import Seat


def serve(
    run: str | os.PathLike[str] | Recorded,
    *,
    listen: str = "127.0.0.1:8470",
    token: str | None = None,
    readers: Sequence[str | os.PathLike[str]] = (),
    tls_cert: str | os.PathLike[str] | None = None,
    tls_key: str | os.PathLike[str] | None = None,
    limits: ServeLimits | None = None,
    disputes: Party | None = None,
    referee_key: _core.PublicKey | str | os.PathLike[str] | None = None,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serves a run to those who verify it: `potl.verify("https://...")`. Returns when SIGTERM or
    SIGINT ends it; call it in a process's main thread.

    Everything is read only; what the log does not name is not served. The run may still be
    recorded, and states may be derived, meanwhile.

    Args:
        run: The run directory.
        listen: HOST:PORT; port 0 takes a free one.
        token: What a client has to send (`Authorization: Bearer`). None: whoever reaches the port
            reads the run, its weights included, unless there are readers.
        readers: Files of public keys (`potl keygen --encryption`). Every answer is encrypted to the
            one that the client names, and who has none of them gets no answer.
        tls_cert: PEM file of the server's certificate and those above it. Without it nothing but
            what goes to readers is encrypted.
        tls_key: PEM file of its private key.
        limits: What is spent on clients.
        disputes: The run's party, which then plays in disputes that a referee holds.
        referee_key: Public key of that referee, or its file. Nobody else's lines are answered.
        ready: Is told the URL, once clients can connect.

    Raises:
        UsageError: Nothing can be served like that.
        JobMismatch: The party's task is not the job's.
        StorageError: The address is taken.
    """
    require_installed("serving a run")
    from ._app import application

    limits = ServeLimits() if limits is None else limits
    keys = [read_sealing_key(one) for one in readers]
    directory = run_directory(run)
    seat = _seat(directory, disputes, referee_key)
    with contextlib.closing(ServedRun(directory)) as served:
        run_server(
            application(served, token=token, limits=limits, seat=seat, readers=keys),
            listen=listen,
            token=token,
            tls_cert=tls_cert,
            tls_key=tls_key,
            limits=limits,
            ready=ready,
        )


def _seat(
    directory: Path,
    party: Party | None,
    referee_key: _core.PublicKey | str | os.PathLike[str] | None,
) -> Seat | None:
    if (party is None) != (referee_key is None):
        raise UsageError("a party and the referee that it plays before belong together", "")
    if party is None or referee_key is None:
        return None
    if party.directory.resolve() != directory.resolve():
        raise UsageError("the party is of another run", "name its run directory")
    from .._base._public_key import public_key
    from .._dispute._seat import Seat

    # Found out in the middle of a dispute, it would be silence.
    with party.open():
        pass

    return Seat(party, public_key(referee_key))
