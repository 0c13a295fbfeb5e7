# SPDX-License-Identifier: Apache-2.0
"""The command that compares two runs: diff."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .._base._printable import printable
from ._result import REJECTED, Result, command
from ._serve import TlsCa, run_of
from ._task import load

if TYPE_CHECKING:
    from rich.console import Console


def add_to(app: typer.Typer) -> None:
    """Adds the command to the application."""
    command(
        app,
        "diff",
        examples="  potl diff runs/1 runs/2\n\n  potl diff runs/1 runs/2 --task trainer:build\n\n"
        "  potl diff runs/1 https://other.example --other-token-file token",
    )(_diff)


def _diff(
    run_a: Annotated[str, typer.Argument(metavar="RUN_A", help="A run directory, or a URL.")],
    run_b: Annotated[str, typer.Argument(metavar="RUN_B", help="The run to compare it with.")],
    *,
    task: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="The build function of both runs. With it the step is executed again to name the "
            "first operator that differs.",
        ),
    ] = None,
    other_task: Annotated[
        str | None,
        typer.Option(metavar="MODULE:FUNCTION", help="The build function of RUN_B."),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the token of RUN_A's server.")
    ] = None,
    other_token_file: Annotated[
        Path | None, typer.Option(help="The same for RUN_B's server.")
    ] = None,
    open_with: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Your secret encryption key, to which RUN_A's server encrypts."
        ),
    ] = None,
    other_open_with: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The same for RUN_B's server.")
    ] = None,
    tls_ca: TlsCa = None,
) -> Result:
    """Find the first step and operator at which two runs part.

    Compares two runs of one training on your own machines, without keys and without a verdict. Ends
    with 0 if all steps that both have agree, and with 1 if one differs. Ends with 4 if a log is
    damaged behind the last step that could be compared.
    """
    from .._dispute._diff import diff
    from .._remote._remote import is_url

    found = diff(
        run_of(run_a, token_file, tls_ca if is_url(run_a) else None, None, open_with),
        run_of(run_b, other_token_file, tls_ca if is_url(run_b) else None, None, other_open_with),
        task=None if task is None else load(task),
        other_task=None if other_task is None else load(other_task),
    )
    document = {"same": found.same, **dataclasses.asdict(found)}

    def show(console: Console) -> None:
        for line in found.lines():
            console.print(printable(line))

    return Result(document=document, show=show, exit_code=0 if found.same else REJECTED)
