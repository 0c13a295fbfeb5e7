# SPDX-License-Identifier: Apache-2.0
"""The command explain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ._result import FAILED, Result, command
from ._task import TaskArgument, load

if TYPE_CHECKING:
    from rich.console import Console


def add_to(app: typer.Typer) -> None:
    """Adds the command to the application."""
    command(
        app,
        "explain",
        examples="  potl explain trainer:build\n\n"
        "  potl explain trainer:build --mode xint16 --json",
    )(_explain)


def _explain(
    task: TaskArgument,
    *,
    mode: Annotated[
        str, typer.Option(help="ord32, cr32, log64, xint24 or xint16.", metavar="MODE")
    ] = "ord32",
) -> Result:
    """Show how each operator of a task would run reproducibly.

    Looks at its first step. Ends with 3 if an operator has no reproducible form.
    """
    from .._arithmetic._explain import explain_call
    from .._base._printable import counted, printable
    from .._job._session import Session

    with Session.open(load(task), seed=0) as session, session.active():
        [(step, _, batch)] = session.batches(1, 1)
        found = explain_call(lambda: session.run_step(step, batch), mode=mode)
    count = len(found.refused)

    def show(console: Console) -> None:
        for line in str(found).splitlines():
            console.print(printable(line), markup=False, highlight=False, soft_wrap=True)
        refused = f"{counted(count, 'operator')} {'is' if count == 1 else 'are'} refused"
        console.print(refused if count else "the step is reproducible")

    return Result(document=found.document(), show=show, exit_code=FAILED if count else 0)
