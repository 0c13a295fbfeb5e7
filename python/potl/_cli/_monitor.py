# SPDX-License-Identifier: Apache-2.0
"""The command that watches a run while it is trained: monitor."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .._base._printable import counted, duration, number, printable
from ._options import given_of, parameters_of
from ._result import Result, command
from ._serve import AnyRun, CacheBytes, OpenWith, TlsCa, TokenFile, run_of
from ._task import TaskOption, load

if TYPE_CHECKING:
    from .._base._errors import PotlError
    from .._verify._monitor import Look


def add_to(app: typer.Typer) -> None:
    """Adds the command to the application."""
    command(
        app,
        "monitor",
        examples="  potl monitor runs/1 --job job.json --task trainer:build\n\n"
        "  potl monitor https://trainer.example --token-file token --job job.json "
        "--task trainer:build --samples 40 --html watched.html\n\n"
        "  potl monitor runs/1 --job job.json --task trainer:build --timeout 0 --json",
        extra=[one for one in parameters_of("replay") if one.name == "replay_samples"],
    )(_monitor)


def _monitor(
    run: AnyRun,
    *,
    job: Annotated[Path, typer.Option(help="Your own copy of the job.")],
    task: TaskOption,
    every: Annotated[float, typer.Option(metavar="SECONDS", help="Time between looks.")] = 30.0,
    timeout: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Stop after this time, when a look that has begun is over. 0: look once. Default: "
            "watch until the trainer closes the run.",
        ),
    ] = None,
    token_file: TokenFile = None,
    open_with: OpenWith = None,
    tls_ca: TlsCa = None,
    cache_bytes: CacheBytes = None,
    html: Annotated[
        Path | None, typer.Option(help="Write the report as a page, anew at each look.")
    ] = None,
    **options: object,
) -> Result:
    """Watch a run while it is trained, and replay drawn segments as they are recorded.

    RUN need not be there yet. Prints a line for each segment that was replayed. Ends when the
    trainer closes the run, or at the first rejection that is found again. Ends with 1 if the run is
    rejected, else with 3: a run that can still change is never accepted. Verify it with the
    trainer's commitment afterwards. With --json the lines go to standard error, and the report of
    the last look is printed in the end.
    """
    from .._base._errors import PotlError
    from .._report._page import require_page, write_page
    from .._report._report import render_html, render_terminal
    from .._verify._monitor import monitor

    if html is not None:
        require_page(html)
    teller = _Teller()

    def tell(look: Look) -> None:
        teller.tell(look)
        if html is not None and look.report is not None:
            try:
                write_page(html, render_html(look.report.document))
            except PotlError as error:  # a full disk here ends no watch, and takes no verdict away
                teller.tell_of(error)

    place = run_of(run, token_file, tls_ca, cache_bytes, open_with)
    report = monitor(
        place,
        job=job,
        task=load(task, place if isinstance(place, Path) else None),
        every=every,
        timeout=timeout,
        on_look=tell,
        **given_of("replay", options),
    )
    document = report.document
    return Result(
        document=report.json().encode(),
        show=lambda console: render_terminal(document, console),
        exit_code=report.exit_code,
    )


class _Teller:
    """Prints what is new in a look."""

    def __init__(self) -> None:
        self._waits_for = ""

    def tell(self, look: Look) -> None:
        where = f"step {number(look.step)} of {number(look.steps)}: "
        for one in look.judged:
            trained = counted((one.last_step or 0) - (one.first_step or 1) + 1, "step")
            seconds = duration(float(one.details["replay_seconds"]))
            self._print(f"{where}{one.reason} ({trained}, {seconds})")
        if look.waits_for and look.waits_for != self._waits_for:
            self._print(f"waiting: {look.waits_for}")
        self._waits_for = look.waits_for

    def tell_of(self, error: PotlError) -> None:
        """Says why there is no page of a look."""
        self._print(f"no page of this look: {error}")

    @staticmethod
    def _print(line: str) -> None:
        print(printable(line), flush=True)
