# SPDX-License-Identifier: Apache-2.0
"""The command that judges a dispute again: referee."""

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
        "  potl referee --offline evidence.json --job job.json --task trainer:build",
    )(_referee)


def _referee(
    *,
    offline: Annotated[
        Path, typer.Option(metavar="EVIDENCE", help="The transcript of a dispute, with its keys.")
    ],
    job: Annotated[Path, typer.Option(help="What was agreed.")],
    task: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="Makes the agreed task. With it the referee's decisions are computed again; "
            "without it they are believed.",
        ),
    ] = None,
    auditor_key: Annotated[
        Path | None, typer.Option(help="The auditor's public key, as you know it.")
    ] = None,
    referee_key: Annotated[
        Path | None, typer.Option(help="The referee's public key, as you know it.")
    ] = None,
    json: Json = False,
    debug: Debug = False,
) -> Result:
    """Judge a dispute again from its evidence.

    The trainer's key is the job's. Without the referee's the evidence may be made up.

    Ends with 0 if the trainer is right or both agree, with 1 if the trainer is wrong, with 3 if
    nothing was decided.
    """
    from .._dispute._evidence import judge

    given = {"auditor": auditor_key, "referee": referee_key}
    found = judge(
        offline,
        job=job,
        task=None if task is None else load(task),
        keys={name: key for name, key in given.items() if key is not None},
    )
    return result_of(found)


def result_of(found: Verdict) -> Result:
    """How a command ends that came to a verdict."""

    def show(console: Console) -> None:
        for line in found.lines():
            console.print(printable(line))

    decided = found.trainer_wrong or found.auditor_wrong or found.why == "agreement"
    code = REJECTED if found.trainer_wrong else 0 if decided else FAILED
    return Result(document=found.document(), show=show, exit_code=code)
