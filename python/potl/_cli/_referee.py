# SPDX-License-Identifier: Apache-2.0
"""The command that decides disputes, or judges one again: referee."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .._base._printable import printable
from ._files import signing_key
from ._result import FAILED, REJECTED, Result, command
from ._task import load

if TYPE_CHECKING:
    from rich.console import Console

    from .._dispute._evidence import Verdict


def add_to(app: typer.Typer) -> None:
    """Adds the command to the application."""
    command(
        app,
        "referee",
        examples="  potl referee --offline evidence.json --job job.json --task trainer:build "
        "--auditor-key auditor.pub --referee-key referee.pub\n\n"
        "  potl referee --listen 0.0.0.0:8471 --tls-cert cert.pem --tls-key key.pem "
        "--token-file token --transcripts disputes --job job.json --task trainer:build "
        "--key referee.pem --auditor-key auditor.pub",
    )(_referee)


def _referee(
    *,
    job: Annotated[Path, typer.Option(help="The agreed job.")],
    offline: Annotated[
        Path | None,
        typer.Option(
            metavar="EVIDENCE", help="Judge a dispute again, from its transcript and keys."
        ),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Decide disputes of parties that call; port 0 picks a free port. Needs --task, "
            "--key, --auditor-key and --transcripts.",
        ),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="Builds the agreed task. With it the referee's decisions are recomputed; without "
            "it they are taken on trust.",
        ),
    ] = None,
    trainer_key: Annotated[
        Path | None,
        typer.Option(help="The trainer's public key, unless the job pins it."),
    ] = None,
    auditor_key: Annotated[
        Path | None, typer.Option(help="The auditor's public key, as you know it.")
    ] = None,
    referee_key: Annotated[
        Path | None,
        typer.Option(help="With --offline: the referee's public key, as you know it."),
    ] = None,
    commitment: Annotated[
        Path | None,
        typer.Option(help="With --offline: the trainer's commitment that you hold."),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(help="With --listen: the referee's key, a file of potl keygen."),
    ] = None,
    transcripts: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="With --listen: keeps one file per dispute. After a crash the disputes resume.",
        ),
    ] = None,
    turn_seconds: Annotated[
        float | None,
        typer.Option(
            help="With --listen: time for each move; a party that exceeds it loses. Default: 3600."
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(help="With --listen: as for potl serve. Needs --tls-key.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(help="With --listen: as for potl serve. Needs --tls-cert.")
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="With --listen: file with a token that parties must send. Without it, anybody who "
            "reaches the port can read what they open of their runs."
        ),
    ] = None,
) -> Result:
    """Decide disputes of parties that call, or judge one again.

    With --offline: ends with 0 if the trainer is right or both agree, with 1 if the trainer is
    wrong, with 3 if nothing was decided, or if the owner of a key that you do not name can have
    made it up: a trainer can invent an auditor that is wrong, or that agrees.

    With --listen: parties call with `potl dispute --referee URL`. SIGTERM and Ctrl-C end it.
    Needs `pip install "potl[serve]"`.
    """
    from .._base._errors import UsageError
    from .._dispute._evidence import judge
    from .._report._dispute import may_be_made_up

    to_listen = (key, transcripts, turn_seconds, tls_cert, tls_key, token_file)
    if offline is not None:
        if listen is not None or any(one is not None for one in to_listen):
            raise typer.BadParameter(
                "--offline takes --job, --task, --commitment and public keys alone"
            )
        if not offline.is_file():
            raise UsageError(f"there is no evidence {offline}", "check the path")
        given = {"trainer": trainer_key, "auditor": auditor_key, "referee": referee_key}
        found = judge(
            offline,
            job=job,
            task=None if task is None else load(task),
            keys={name: key for name, key in given.items() if key is not None},
            commitment=commitment,
        )
        return result_of(found, is_made_up=may_be_made_up(found.document(), found.unknown_keys))
    if listen is None:
        raise typer.BadParameter("name what to judge (--offline) or where to listen (--listen)")
    if task is None or key is None or transcripts is None or auditor_key is None:
        raise typer.BadParameter("--listen needs --task, --key, --auditor-key and --transcripts")
    if referee_key is not None or commitment is not None:
        raise typer.BadParameter("--referee-key and --commitment are for --offline")
    from .._dispute._referee import Referee
    from .._dispute._table import TURN_SECONDS
    from .._remote._remote import read_token
    from .._serve._host import host_disputes

    public = {"trainer": trainer_key, "auditor": auditor_key}
    host_disputes(
        Referee(job, task=load(task), key=signing_key(key)),
        keys={name: one for name, one in public.items() if one is not None},
        transcripts=transcripts,
        turn_seconds=TURN_SECONDS if turn_seconds is None else turn_seconds,
        listen=listen,
        token=None if token_file is None else read_token(token_file),
        tls_cert=tls_cert,
        tls_key=tls_key,
        ready=lambda url: typer.echo(f"deciding disputes at {url}", err=True),
    )
    return Result(document={"path": str(transcripts)}, show=lambda console: None)


def result_of(found: Verdict, *, is_made_up: bool = False) -> Result:
    """How a command ends that came to a verdict, or read one that may be made up."""

    def show(console: Console) -> None:
        for line in found.lines():
            console.print(printable(line))

    decided = found.trainer_wrong or found.auditor_wrong or found.why == "agreement"
    code = REJECTED if found.trainer_wrong else 0
    if not decided or is_made_up:
        code = FAILED
    return Result(document=found.document(), show=show, exit_code=code)
