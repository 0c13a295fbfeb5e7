# SPDX-License-Identifier: Apache-2.0
"""The command that decides disputes, or judges one again: referee."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .._base._printable import printable
from ._result import FAILED, REJECTED, Debug, Json, Result, command
from ._task import load

if TYPE_CHECKING:
    from rich.console import Console

    from .._dispute._evidence import Verdict


def add_to(app: typer.Typer) -> None:
    """Adds the command to the application."""
    command(
        app,
        "referee",
        examples="  potl referee --offline evidence.json --job job.json\n\n"
        "  potl referee --offline evidence.json --job job.json --task trainer:build\n\n"
        "  potl referee --listen 0.0.0.0:8471 --tls-cert cert.pem --tls-key key.pem "
        "--token-file token --transcripts disputes --job job.json --task trainer:build "
        "--key referee.pem --auditor-key auditor.pub",
    )(_referee)


def _referee(
    *,
    job: Annotated[Path, typer.Option(help="What was agreed.")],
    offline: Annotated[
        Path | None,
        typer.Option(
            metavar="EVIDENCE", help="Judge the transcript of a dispute, with its keys, again."
        ),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Decide disputes of parties that call; port 0 takes a free one. With --task, "
            "--key, --auditor-key and --transcripts.",
        ),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="Makes the agreed task. With it the referee's decisions are computed again; "
            "without it they are believed.",
        ),
    ] = None,
    trainer_key: Annotated[
        Path | None,
        typer.Option(help="To listen: the trainer's public key, unless the job pins it."),
    ] = None,
    auditor_key: Annotated[
        Path | None, typer.Option(help="The auditor's public key, as you know it.")
    ] = None,
    referee_key: Annotated[
        Path | None,
        typer.Option(help="Of evidence: the referee's public key, as you know it."),
    ] = None,
    commitment: Annotated[
        Path | None,
        typer.Option(help="Of evidence: the trainer's commitment, as you hold it."),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            help="To listen: signs the transcripts, a PEM file, created when there is none."
        ),
    ] = None,
    transcripts: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="To listen: keeps a file of lines for each dispute. After a crash they go on.",
        ),
    ] = None,
    turn_seconds: Annotated[
        float | None,
        typer.Option(
            help="To listen: a party that does not move for so long has lost. Default: 3600."
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(help="To listen: as of potl serve. With --tls-key.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(help="To listen: as of potl serve. With --tls-cert.")
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="To listen: file of a token that parties have to send. Without it whoever reaches "
            "the port reads what they open of their runs."
        ),
    ] = None,
    json: Json = False,
    debug: Debug = False,
) -> Result:
    """Decide disputes of parties that call, or judge one again from its evidence.

    With --offline: the trainer's key is the job's. Without the referee's the evidence may be made
    up. Ends with 0 if the trainer is right or both agree, with 1 if the trainer is wrong, with 3
    if nothing was decided.

    With --listen: parties call with `potl dispute --referee URL`. SIGTERM and Ctrl-C end it.
    Needs `pip install "potl[serve]"`.
    """
    from .._dispute._evidence import judge

    to_listen = (trainer_key, key, transcripts, turn_seconds, tls_cert, tls_key, token_file)
    if offline is not None:
        if listen is not None or any(one is not None for one in to_listen):
            raise typer.BadParameter(
                "--offline takes --job, --task, --commitment and public keys alone"
            )
        given = {"auditor": auditor_key, "referee": referee_key}
        found = judge(
            offline,
            job=job,
            task=None if task is None else load(task),
            keys={name: key for name, key in given.items() if key is not None},
            commitment=commitment,
        )
        return result_of(found)
    if listen is None:
        raise typer.BadParameter("name what to judge (--offline) or where to listen (--listen)")
    if task is None or key is None or transcripts is None or auditor_key is None:
        raise typer.BadParameter("--listen needs --task, --key, --auditor-key and --transcripts")
    if referee_key is not None or commitment is not None:
        raise typer.BadParameter("--referee-key and --commitment are for --offline")
    from .._dispute._referee import Referee
    from .._remote._remote import read_token
    from .._serve._host import host_disputes

    public = {"trainer": trainer_key, "auditor": auditor_key}
    host_disputes(
        Referee(job, task=load(task), key=key),
        keys={name: one for name, one in public.items() if one is not None},
        transcripts=transcripts,
        turn_seconds=3600.0 if turn_seconds is None else turn_seconds,
        listen=listen,
        token=None if token_file is None else read_token(token_file),
        tls_cert=tls_cert,
        tls_key=tls_key,
        ready=lambda url: typer.echo(f"deciding disputes at {url}", err=True),
    )
    return Result(document={"path": str(transcripts)}, show=lambda console: None)


def result_of(found: Verdict) -> Result:
    """How a command ends that came to a verdict."""

    def show(console: Console) -> None:
        for line in found.lines():
            console.print(printable(line))

    decided = found.trainer_wrong or found.auditor_wrong or found.why == "agreement"
    code = REJECTED if found.trainer_wrong else 0 if decided else FAILED
    return Result(document=found.document(), show=show, exit_code=code)
