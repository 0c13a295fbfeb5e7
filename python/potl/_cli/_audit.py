# SPDX-License-Identifier: Apache-2.0
"""The command that repeats a run: audit."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .._base._printable import counted, duration, printable
from ._files import signing_key
from ._result import FAILED, REJECTED, Result, command
from ._serve import AnyRun, CacheBytes, OpenWith, TlsCa, TokenFile, run_of
from ._task import TaskOption, load

if TYPE_CHECKING:
    from rich.console import Console


def add_to(app: typer.Typer) -> None:
    """Adds the command to the application."""
    command(
        app,
        "audit",
        examples="  potl audit runs/1 --job job.json --task trainer:build\n\n"
        "  potl audit runs/1 --job job.json --task trainer:build --log audits/1 --follow\n\n"
        "  potl audit https://trainer.example --token-file token --job job.json "
        "--task trainer:build --log audits/1\n\n"
        "  potl audit runs/1 --job job.json --task trainer:build --log audits/1 "
        "--commitment note.txt --to-the-end\n\n"
        "  potl audit runs/1 --job job.json --task trainer:build --log audits/1 "
        "--nonce nonce.txt --check",
    )(_audit)


def _audit(
    run: AnyRun,
    *,
    job: Annotated[Path, typer.Option(help="The agreed job: the client's own file.")],
    task: TaskOption,
    log: Annotated[
        Path | None,
        typer.Option(
            help="Directory for the repetition. An interrupted audit resumes from it. Default: one "
            "in your state directory for each run and job."
        ),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(help="The auditor's key, a file of potl keygen. Default: one in LOG."),
    ] = None,
    commitment: Annotated[
        Path | None, typer.Option(help="The trainer's commitment, if there is one yet.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Wait for steps that are not trained yet.")
    ] = False,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="Longest wait for the next step.")
    ] = 600.0,
    to_the_end: Annotated[
        bool,
        typer.Option(
            "--to-the-end", help="Repeat all steps even after a difference, as a dispute needs."
        ),
    ] = False,
    nonce: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|HEX",
            help="The client's 32 bytes; the audit signs codes over the states under them.",
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Check whether the auditor who made LOG under --nonce did the work.",
        ),
    ] = False,
    draw: Annotated[
        int | None, typer.Option(help="Number of steps that --check draws. Default: 20.")
    ] = None,
    auditor_key: Annotated[
        Path | None, typer.Option(help="For --check: public key of the auditor you hired.")
    ] = None,
    token_file: TokenFile = None,
    open_with: OpenWith = None,
    tls_ca: TlsCa = None,
    cache_bytes: CacheBytes = None,
) -> Result:
    """Repeat a run in full, and compare every step with its log.

    Needs a job in a reproducible arithmetic. Ends with 0 if all steps are the same, with 1 at the
    first difference, with 3 if the run is not finished. With --check: 0 did the work, 1 did
    not, 3 unknown or not all of it.
    """
    from .._base._errors import UsageError

    if check:
        if nonce is None or log is None or follow or to_the_end or key is not None:
            raise UsageError(
                "--check needs the auditor's --log and --nonce, and repeats nothing",
                "leave out --follow, --to-the-end and --key",
            )
        here = run_of(run, token_file, tls_ca, cache_bytes, open_with)
        if not isinstance(here, Path):
            raise UsageError("--check executes steps of a run directory", "copy the run first")
        return _checked(here, job, task, log, nonce, draw, commitment, auditor_key)
    if draw is not None or auditor_key is not None:
        raise UsageError("--draw and --auditor-key belong to --check", "")
    from .._dispute._audit import audit

    found = audit(
        run_of(run, token_file, tls_ca, cache_bytes, open_with),
        job=job,
        task=load(task),
        log=log,
        key=signing_key(key),
        commitment=commitment,
        follow=follow,
        timeout=timeout,
        to_the_end=to_the_end,
        nonce=nonce,
    )
    difference = None if found.difference is None else dataclasses.asdict(found.difference)
    document = {
        "agrees": found.agrees,
        "steps": found.steps,
        "difference": difference,
        "reason": found.reason,
        "log": str(found.log),
        "commitment": None if found.commitment is None else str(found.commitment),
        "seconds": found.seconds,
    }

    def show(console: Console) -> None:
        word = {True: "agrees", False: "differs", None: "undecided"}[found.agrees]
        console.print(f"{word}: {printable(found.reason)}")
        console.print(f"{counted(found.steps, 'step')} alike, in {duration(found.seconds)}")
        console.print(f"the repetition is in {printable(str(found.log))}")

    code = 0 if found.agrees else FAILED if found.agrees is None else REJECTED
    return Result(document=document, show=show, exit_code=code)


def _checked(
    run: Path,
    job: Path,
    task: str,
    log: Path,
    nonce: str,
    draw: int | None,
    commitment: Path | None,
    auditor: Path | None,
) -> Result:
    from .._dispute._work_check import check_audit

    found = check_audit(
        log,
        run=run,
        job=job,
        task=load(task),
        nonce=nonce,
        steps=20 if draw is None else draw,
        commitment=commitment,
        auditor=auditor,
    )

    def show(console: Console) -> None:
        words = {
            True: "the auditor did the work",
            False: "the auditor did not do the work",
            None: "undecided",
        }
        console.print(f"{words[found.worked]}: {printable(found.reason)}")
        if found.worked:
            console.print(
                f"an auditor who left out 10 % of the steps is seen with {found.seen(0.1):.3g}, "
                f"20 % with {found.seen(0.2):.3g}"
            )
        console.print(f"steps 1 to {found.covered}, key {found.auditor}")

    code = 0 if found.worked else FAILED if found.worked is None else REJECTED
    return Result(document=dataclasses.asdict(found), show=show, exit_code=code)
