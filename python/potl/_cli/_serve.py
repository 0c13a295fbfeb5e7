# SPDX-License-Identifier: Apache-2.0
"""The command that serves a run, and the options of those that read one from elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ._files import RunPath, parse_size
from ._result import Result, command
from ._task import load

if TYPE_CHECKING:
    from .._remote._remote import Remote

AnyRun = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="The run directory, or its URL: a potl serve address (https, http), or storage (s3 "
        "and others that fsspec knows).",
        show_default=False,
    ),
]
TokenFile = Annotated[
    Path | None, typer.Option(help="If RUN is a URL: file with the server's token.")
]
TlsCa = Annotated[
    Path | None,
    typer.Option(help="If RUN is a URL: certificate authorities to trust. Default: the system's."),
]
OpenWith = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="If RUN is a URL: your secret encryption key. Other answers are refused.",
    ),
]
CacheBytes = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help="If RUN is a URL: largest size of the temporary folder. Default: 8GiB.",
    ),
]


def add_to(app: typer.Typer) -> None:
    """Adds the command to the application."""
    command(
        app,
        "serve",
        examples="  potl serve runs/1\n\n"
        "  potl serve runs/1 --listen 0.0.0.0:8470 --tls-cert cert.pem --tls-key key.pem "
        "--token-file token\n\n"
        "  potl serve runs/1 --listen 0.0.0.0:8470 --for verifier.pub\n\n"
        "  potl serve runs/1 --disputes --job job.json --task trainer:build --key trainer.pem "
        "--referee-key referee.pub",
    )(_serve)


def run_of(
    run: str,
    token_file: Path | None,
    tls_ca: Path | None,
    cache_bytes: str | None,
    open_with: Path | None,
) -> Path | Remote:
    """What a command line means by RUN."""
    from .._remote._remote import CACHE_BYTES, Remote, is_url

    if is_url(run):
        return Remote(
            run,
            token=token_file,
            key=open_with,
            ca=tls_ca,
            cache_bytes=CACHE_BYTES if cache_bytes is None else parse_size(cache_bytes),
        )
    if (token_file, tls_ca, cache_bytes, open_with) != (None, None, None, None):
        raise typer.BadParameter(
            "--token-file, --tls-ca, --cache-bytes and --open-with are for URLs, and this is a "
            "path (an address begins with http:// or https://)"
        )
    return Path(run)


def _serve(
    run: RunPath,
    *,
    listen: Annotated[
        str,
        typer.Option(metavar="HOST:PORT", help="Address to listen on; port 0 picks a free port."),
    ] = "127.0.0.1:8470",
    tls_cert: Annotated[
        Path | None, typer.Option(help="PEM file of the server's certificate. With --tls-key.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(help="PEM file of its private key. With --tls-cert.")
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="File with a token that clients must send. Without it, anybody who reaches the "
            "port can read the run, its weights included, unless --for is given."
        ),
    ] = None,
    readers: Annotated[
        list[Path] | None,
        typer.Option(
            "--for",
            metavar="FILE",
            help="Public key of a client (potl keygen --encryption). Answers are encrypted to it, "
            "and nobody else gets any. Repeatable.",
        ),
    ] = None,
    disputes: Annotated[
        bool,
        typer.Option(
            "--disputes",
            help="Also answer disputes about the run. Needs --job, --task and --referee-key.",
        ),
    ] = False,
    job: Annotated[Path | None, typer.Option(help="The agreed job, for disputes.")] = None,
    task: Annotated[
        str | None,
        typer.Option(metavar="MODULE:FUNCTION", help="Builds the run's task, for disputes."),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(help="The key that committed to the run. Default: the one in RUN."),
    ] = None,
    referee_key: Annotated[
        Path | None,
        typer.Option(help="Public key of the only referee whose disputes are answered."),
    ] = None,
) -> Result:
    """Serve a run over HTTP, to be verified from elsewhere.

    Serves what the log names, and nothing else; all of it is read only. The run may still be
    recorded meanwhile, and states may be derived. With --disputes it also executes a disputed step
    again, for the referee that was named. SIGTERM and Ctrl-C end it. Needs
    `pip install "potl[serve]"`.
    """
    from .._remote._remote import read_token
    from .._serve._server import serve

    party = None
    if disputes:
        if job is None or task is None or referee_key is None:
            raise typer.BadParameter("--disputes needs --job, --task and --referee-key")
        from .._dispute._party import Party

        party = Party(run, job=job, task=load(task), key=key)
    elif (job, task, key, referee_key) != (None, None, None, None):
        raise typer.BadParameter("--job, --task, --key and --referee-key are for --disputes")

    serve(
        run,
        listen=listen,
        tls_cert=tls_cert,
        tls_key=tls_key,
        token=None if token_file is None else read_token(token_file),
        readers=readers or (),
        disputes=party,
        referee_key=referee_key,
        ready=lambda url: typer.echo(f"serving {run} at {url}", err=True),
    )
    return Result(document={"path": str(run)}, show=lambda console: None)
