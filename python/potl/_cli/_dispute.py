# SPDX-License-Identifier: Apache-2.0
"""The command that settles a dispute: dispute."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .._base._printable import printable
from ._files import signing_key
from ._referee import result_of
from ._result import Result, command
from ._task import TaskOption, load

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._dispute._evidence import Verdict
    from .._dispute._party import Party
    from .._remote._remote import Remote
    from .._task._task import Task

Side = Annotated[
    str | None,
    typer.Option(
        metavar="RUN", help="A run directory with its key, or the URL of a potl serve --disputes."
    ),
]


def add_to(app: typer.Typer) -> None:
    """Adds the command to the application."""
    command(
        app,
        "dispute",
        examples="  potl dispute --trainer runs/1 --trainer-key trainer.pem --auditor audits/1 "
        "--job job.json --task trainer:build --evidence evidence.json\n\n"
        "  potl dispute --trainer https://trainer.example --auditor https://auditor.example "
        "--auditor-key auditor.pub --referee-key referee.pem --job job.json --task trainer:build "
        "--transcript lines --evidence evidence.json\n\n"
        "  potl dispute --referee https://referee.example --referee-key referee.pub --run runs/1 "
        "--job job.json --task trainer:build --evidence evidence.json",
    )(_dispute)


def _dispute(
    *,
    trainer: Side = None,
    auditor: Side = None,
    job: Annotated[Path, typer.Option(help="The agreed job.")],
    task: TaskOption,
    evidence: Annotated[
        Path, typer.Option(help="File to write: the transcript and its keys, for others to judge.")
    ],
    referee: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Take part in a dispute at this referee (potl referee --listen). Needs --run and "
            "--referee-key.",
        ),
    ] = None,
    run: Annotated[Path | None, typer.Option(help="With --referee: your own run.")] = None,
    key: Annotated[
        Path | None,
        typer.Option(help="With --run: the key that committed to it. Default: the one in it."),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="With --referee: file with its token.")
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="With --referee: longest wait for the other party to arrive, and for a new line. "
            "Default: two turns, but at least 3600 and at most a week.",
        ),
    ] = None,
    referee_key: Annotated[
        Path | None,
        typer.Option(
            help="The key that signs the transcript, a file of potl keygen. Default: referee.pem "
            "in your state directory, made if missing. With --referee: the referee's public key."
        ),
    ] = None,
    trainer_key: Annotated[
        Path | None,
        typer.Option(
            help="If the trainer is a URL: its public key, unless the job pins it. If it is a "
            "directory: its signing key. Default: the one in it."
        ),
    ] = None,
    auditor_key: Annotated[
        Path | None, typer.Option(help="The same for the auditor, whom no job pins.")
    ] = None,
    commitment: Annotated[
        Path | None,
        typer.Option(
            help="The trainer's commitment that you hold. Without it, a trainer that signed two "
            "chooses which one the dispute is about."
        ),
    ] = None,
    trainer_token: Annotated[
        Path | None, typer.Option(help="File with the token of the trainer's server.")
    ] = None,
    auditor_token: Annotated[
        Path | None, typer.Option(help="File with the token of the auditor's server.")
    ] = None,
    open_with: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The referee's secret encryption key; the servers must encrypt to it.",
        ),
    ] = None,
    tls_ca: Annotated[
        Path | None,
        typer.Option(
            help="Certificate authorities to trust for the servers. Default: the system's."
        ),
    ] = None,
    turn_seconds: Annotated[
        float | None,
        typer.Option(help="Time for each move; a party that exceeds it loses. Default: 3600."),
    ] = None,
    transcript: Annotated[
        Path | None,
        typer.Option(
            help="File that keeps each line. After a crash, the same command resumes from it."
        ),
    ] = None,
) -> Result:
    """Settle who is right when two parties get different results.

    Ends with 0 if the trainer is right or both agree, with 1 if the trainer is wrong, with 3 if
    nothing was decided.
    """
    from .._dispute._away import dispute_at
    from .._dispute._dispute import dispute
    from .._dispute._evidence import DisputeEvidence
    from .._dispute._party import Party
    from .._dispute._referee import Referee
    from .._dispute._table import TURN_SECONDS

    DisputeEvidence._require_place(evidence)
    if referee is not None:
        if run is None or referee_key is None or (trainer, auditor) != (None, None):
            raise typer.BadParameter(
                "--referee needs --run and --referee-key, and no --trainer or --auditor"
            )
        if turn_seconds is not None:
            raise typer.BadParameter("how long a turn is, the referee says")
        if open_with is not None:
            raise typer.BadParameter(
                "a referee that listens sends signed lines as they are: --open-with is for "
                "--trainer and --auditor"
            )
        others = {"trainer": trainer_key, "auditor": auditor_key}
        verdict = dispute_at(
            _remote(referee, token_file, None, tls_ca),
            party=Party(run, job=job, task=load(task), key=key),
            referee_key=referee_key,
            keys={name: one for name, one in others.items() if one is not None},
            commitment=commitment,
            transcript=transcript,
            timeout=timeout,
        )
        return _kept(verdict, evidence)
    if trainer is None or auditor is None:
        raise typer.BadParameter("name --trainer and --auditor, or --referee and --run")
    if (run, key, token_file, timeout) != (None, None, None, None):
        raise typer.BadParameter("--run, --key, --token-file and --timeout are for --referee")
    build = load(task)
    sides: dict[str, Party | Remote] = {}
    keys: dict[str, Path] = {}
    given = {
        "trainer": (trainer, trainer_key, trainer_token),
        "auditor": (auditor, auditor_key, auditor_token),
    }
    for name, (where, key, token) in given.items():
        sides[name], is_elsewhere = _side(where, key, token, tls_ca, open_with, job, build)
        if is_elsewhere and key is not None:
            keys[name] = key
    verdict = dispute(
        trainer=sides["trainer"],
        auditor=sides["auditor"],
        referee=Referee(job, task=build, key=signing_key(referee_key)),
        keys=keys,
        commitment=commitment,
        turn_seconds=TURN_SECONDS if turn_seconds is None else turn_seconds,
        transcript=transcript,
    )
    return _kept(verdict, evidence)


def _kept(verdict: Verdict, evidence: Path) -> Result:
    """Writes the evidence. Who waited for the verdict reads it also where there is no room."""
    from .._base._errors import PotlError

    try:
        verdict.evidence.write(evidence)
    except PotlError:
        print(*map(printable, verdict.lines()), sep="\n", file=sys.stderr)
        raise
    return result_of(verdict)


def _side(
    where: str,
    key: Path | None,
    token: Path | None,
    ca: Path | None,
    open_with: Path | None,
    job: Path,
    build: Callable[[], Task],
) -> tuple[Party | Remote, bool]:
    """A party, and whether it is elsewhere."""
    from .._dispute._party import Party
    from .._remote._remote import is_url

    if is_url(where):
        return _remote(where, token, open_with, ca), True
    if token is not None:
        raise typer.BadParameter("a token is for a URL")
    return Party(where, job=job, task=build, key=key), False


def _remote(url: str, token: Path | None, key: Path | None, ca: Path | None) -> Remote:
    from .._remote._remote import Remote, read_token

    return Remote(url, token=None if token is None else read_token(token), key=key, ca=ca)
