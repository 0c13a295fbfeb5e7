# SPDX-License-Identifier: Apache-2.0
"""A server at an address, until somebody ends it."""

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

if TYPE_CHECKING:
    from ._limits import Application, ServeLimits

# Connections that wait to be accepted.
_BACKLOG = 256


def require_installed(what: str) -> None:
    """Raises UsageError where the packages of a server are not there."""
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise UsageError(f"{what} needs {error.name}", 'pip install "potl[serve]"') from error


def run_server(
    application: Application,
    *,
    listen: str,
    token: str | None,
    tls_cert: str | os.PathLike[str] | None,
    tls_key: str | os.PathLike[str] | None,
    limits: ServeLimits,
    ready: Callable[[str], None] | None,
) -> None:
    """Answers until SIGTERM or SIGINT; in a process's main thread.

    Raises:
        UsageError: Nothing can be served like that.
        StorageError: The address is taken.
    """
    import uvicorn

    from ._protocol import Door, protocol

    host, port = _address(listen)
    if (tls_cert is None) != (tls_key is None):
        raise UsageError("a certificate and its key belong together", "pass both of them")
    for path in (tls_cert, tls_key):
        if path is not None and not Path(path).is_file():
            raise UsageError(f"there is no file {os.fspath(path)}", "")
    if token is not None and not re.fullmatch(r"[!-~]{16,4096}", token):
        raise UsageError(
            "a token is one word of 16 or more visible ASCII characters",
            "check the token, or whether its file holds anything else",
        )
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        # The error's own text repeats the address.
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise StorageError(
            f"cannot listen at {listen}: {why or error}",
            "name an address of this machine and a free port; port 0 picks one",
        ) from error
    with Door(listening, limits.requests) as door:
        config = uvicorn.Config(
            application,
            http=protocol(limits.stall_seconds, limits.requests, door),
            loop="asyncio",  # another one would not come in by the door
            backlog=_BACKLOG,  # as many come in at a time: none may be one file too many
            ws="none",
            lifespan="on",
            # What clients do wrong fills no log; what fails here is told by the gate.
            log_level="critical",
            access_log=False,
            server_header=False,
            timeout_keep_alive=max(1, int(limits.stall_seconds)),
            timeout_graceful_shutdown=1,
            h11_max_incomplete_event_size=16 << 10,
            ssl_certfile=None if tls_cert is None else os.fspath(tls_cert),
            ssl_keyfile=None if tls_key is None else os.fspath(tls_key),
        )
        shown = f"[{host}]" if ":" in host else host
        scheme = "http" if tls_cert is None else "https"
        url = f"{scheme}://{shown}:{door.getsockname()[1]}"

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
            Server(config).run(sockets=[door])
        except OSError as error:
            raise UsageError(f"the certificate cannot be used: {error}", "") from error


def _address(text: str) -> tuple[str, int]:
    found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9.-]+)):(\d{1,5})", text)
    if found is None or int(found[3]) > 65535:
        raise UsageError(f'"{text}" is not an address', "write HOST:PORT, for example 0.0.0.0:8470")
    return found[1] or found[2], int(found[3])
