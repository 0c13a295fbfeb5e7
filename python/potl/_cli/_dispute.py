# SPDX-License-Identifier: Apache-2.0
"""The command that settles a dispute: dispute."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ._referee import result_of
from ._result import Debug, Json, Result, command
from ._task import load

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._dispute._party import Party
    from .._remote._remote import Remote
    from .._task._task import Task

Side = Annotated[
    str,
    typer.Option(
        metavar="RUN", help="A run directory with its key, or the URL of potl serve --disputes."
    ),
]


def add_to(app: typer.Typer) -> None:
    """Adds the command to the application."""
    command(
        app,
        "dispute",
        examples="  potl dispute --trainer runs/1 --auditor audits/1 --job job.json "
        "--task trainer:build --evidence evidence.json\n\n"
        "  potl dispute --trainer https://trainer.example --auditor https://auditor.example "
        "--auditor-key auditor.pub --referee-key referee.pem --job job.json --task trainer:build "
        "--transcript lines --evidence evidence.json",
    )(_dispute)


def _dispute(
    *,
    trainer: Side,
    auditor: Side,
    job: Annotated[Path, typer.Option(help="What was agreed.")],
    task: Annotated[
        str, typer.Option(metavar="MODULE:FUNCTION", help="Makes the task that was agreed.")
    ],
    evidence: Annotated[
        Path, typer.Option(help="Where the transcript with its keys is written, for others.")
    ],
    referee_key: Annotated[
        Path | None,
        typer.Option(
            help="Signs the transcript: a PEM file, created when there is none. Default: a key "
            "that is kept nowhere."
        ),
    ] = None,
    trainer_key: Annotated[
        Path | None,
        typer.Option(
            help="At a URL: the trainer's public key, unless the job pins it. For a directory: "
            "its signing key; default: the one in it."
        ),
    ] = None,
    auditor_key: Annotated[
        Path | None, typer.Option(help="The same of the auditor, whom no job pins.")
    ] = None,
    trainer_token: Annotated[
        Path | None, typer.Option(help="File of the token that the trainer's server wants.")
    ] = None,
    auditor_token: Annotated[
        Path | None, typer.Option(help="The same of the auditor's server.")
    ] = None,
    tls_ca: Annotated[
        Path | None,
        typer.Option(help="Certificates that vouch for the servers. Default: the system's."),
    ] = None,
    turn_seconds: Annotated[
        float, typer.Option(help="A party that does not move for so long has lost.")
    ] = 3600.0,
    transcript: Annotated[
        Path | None,
        typer.Option(help="Keeps each line. After a crash the dispute goes on with it."),
    ] = None,
    json: Json = False,
    debug: Debug = False,
) -> Result:
    """Find out who is right when two parties repeat one training and get two results.

    Ends with 0 if the trainer is right or both agree, with 1 if the trainer is wrong, with 3 if
    nothing was decided.
    """
    from .._dispute._dispute import dispute
    from .._dispute._referee import Referee

    if transcript is not None and referee_key is None:
        raise typer.BadParameter("--transcript needs --referee-key, to sign the next lines too")
    build = load(task)
    sides: dict[str, Party | Remote] = {}
    keys: dict[str, Path] = {}
    given = {
        "trainer": (trainer, trainer_key, trainer_token),
        "auditor": (auditor, auditor_key, auditor_token),
    }
    for name, (where, key, token) in given.items():
        sides[name], is_elsewhere = _side(where, key, token, tls_ca, job, build)
        if is_elsewhere and key is not None:
            keys[name] = key
    verdict = dispute(
        trainer=sides["trainer"],
        auditor=sides["auditor"],
        referee=Referee(job, task=build, key=referee_key),
        keys=keys,
        turn_seconds=turn_seconds,
        transcript=transcript,
    )
    verdict.evidence.write(evidence)
    return result_of(verdict)


def _side(
    where: str,
    key: Path | None,
    token: Path | None,
    ca: Path | None,
    job: Path,
    build: Callable[[], Task],
) -> tuple[Party | Remote, bool]:
    """A party, and whether it is elsewhere."""
    from .._dispute._party import Party
    from .._remote._remote import Remote, is_url, read_token

    if is_url(where):
        word = None if token is None else read_token(token)
        return Remote(where, token=word, ca=ca), True
    if token is not None:
        raise typer.BadParameter("a token is for a URL")
    return Party(where, job=job, task=build, key=key), False
