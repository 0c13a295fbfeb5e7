# SPDX-License-Identifier: Apache-2.0
"""`serve`: a run over HTTP, until somebody ends it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._base._errors import StorageError, UsageError
from .._record._inputs import Recorded, run_directory
from ._served import ServedRun

if TYPE_CHECKING:
    from .. import _core
    from .._dispute._party import Party
    from .._dispute._seat import Seat
    from ._limits import ServeLimits


def serve(
    run: str | os.PathLike[str] | Recorded,
    *,
    listen: str = "127.0.0.1:8470",
    token: str | None = None,
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
            reads the run, its weights included.
        tls_cert: PEM file of the server's certificate and those above it. Without it nothing is
            encrypted.
        tls_key: PEM file of its private key.
        limits: What is spent on clients.
        disputes: The run's party, which then plays in disputes that a referee holds.
        referee_key: Public key of that referee, or its file. Nobody else's lines are answered.
        ready: Is told the URL, once clients can connect.

    Raises:
        UsageError: Nothing can be served like that.
        StorageError: The address is taken.
    """
    try:
        import fastapi  # noqa: F401
        import uvicorn
    except ImportError as error:
        raise UsageError(
            f"serving a run needs {error.name}", 'pip install "potl[serve]"'
        ) from error
    from ._app import application
    from ._limits import ServeLimits
    from ._protocol import protocol

    host, port = _address(listen)
    if (tls_cert is None) != (tls_key is None):
        raise UsageError("a certificate and its key belong together", "pass both of them")
    for path in (tls_cert, tls_key):
        if path is not None and not Path(path).is_file():
            raise UsageError(f"there is no file {os.fspath(path)}", "")
    if token is not None and not re.fullmatch(r"[!-~]{16,4096}", token):
        raise UsageError("a token is one word of 16 or more visible ASCII characters", "")
    limits = ServeLimits() if limits is None else limits
    directory = run_directory(run)
    seat = _seat(directory, disputes, referee_key)
    served = ServedRun(directory)
    try:
        config = uvicorn.Config(
            application(served, token=token, limits=limits, seat=seat),
            http=protocol(limits.stall_seconds),
            ws="none",
            lifespan="off",
            # What clients do wrong fills no log; what fails here is told by the gate.
            log_level="critical",
            access_log=False,
            server_header=False,
            # Beyond what is answered at a time, so that a client is told to come back.
            limit_concurrency=4 * limits.requests,
            timeout_keep_alive=max(1, int(limits.stall_seconds)),
            timeout_graceful_shutdown=5,
            h11_max_incomplete_event_size=16 << 10,
            ssl_certfile=None if tls_cert is None else os.fspath(tls_cert),
            ssl_keyfile=None if tls_key is None else os.fspath(tls_key),
        )
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listening = socket.create_server((host, port), family=family, backlog=256)
        except OSError as error:
            raise StorageError(f"cannot listen at {listen}: {error}", "") from error
        with listening:
            shown = f"[{host}]" if ":" in host else host
            scheme = "http" if tls_cert is None else "https"
            url = f"{scheme}://{shown}:{listening.getsockname()[1]}"

            class Server(uvicorn.Server):
                @contextlib.contextmanager
                def capture_signals(self) -> Iterator[None]:
                    # uvicorn's own would raise them again in the end.
                    ends = (signal.SIGTERM, signal.SIGINT)
                    before = [signal.signal(one, self.handle_exit) for one in ends]
                    try:
                        yield
                    finally:
                        for one, handler in zip(ends, before, strict=True):
                            signal.signal(one, handler)

                async def startup(self, *args: Any, **options: Any) -> None:
                    await super().startup(*args, **options)
                    if ready is not None:
                        ready(url)

            try:
                Server(config).run(sockets=[listening])
            except OSError as error:
                raise UsageError(f"the certificate cannot be used: {error}", "") from error
    finally:
        served.close()


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
    from .._dispute._evidence import public_key
    from .._dispute._seat import Seat

    return Seat(party, public_key(referee_key))


def _address(text: str) -> tuple[str, int]:
    found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9.-]+)):(\d{1,5})", text)
    if found is None or int(found[3]) > 65535:
        raise UsageError(f'"{text}" is no address', "write HOST:PORT, for example 0.0.0.0:8470")
    return found[1] or found[2], int(found[3])
