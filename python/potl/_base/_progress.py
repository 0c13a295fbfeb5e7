# SPDX-License-Identifier: Apache-2.0
"""Progress of long work: a bar on a terminal, a callback, or nothing."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TypeAlias

Progress: TypeAlias = bool | Callable[[int, int], None] | None
"""None: a bar when stderr is a terminal. A callable gets (done, total) after each unit."""

Advance: TypeAlias = Callable[[int], None]

# Drawing a bar after each step of a millisecond would cost more than the step's recording.
_REDRAW_SECONDS = 0.1


@contextlib.contextmanager
def track(label: str, total: int, progress: Progress) -> Iterator[Advance | None]:
    """Yields a function that is told how many units are done, or None when nobody looks."""
    if callable(progress):
        report = progress
        yield lambda done: report(done, total)
        return
    wanted = sys.stderr.isatty() if progress is None else progress
    if not wanted or total <= 0:
        yield None
        return
    import rich.console
    import rich.progress

    console = rich.console.Console(stderr=True)
    with rich.progress.Progress(console=console, transient=True, auto_refresh=False) as bar:
        task = bar.add_task(label, total=total)
        next_redraw = 0.0

        def advance(done: int) -> None:
            nonlocal next_redraw
            now = time.monotonic()
            if now >= next_redraw:
                next_redraw = now + _REDRAW_SECONDS
                bar.update(task, completed=done)
                bar.refresh()

        yield advance


Phases: TypeAlias = bool | Callable[[str], None] | None
"""None: a line when stderr is a terminal. A callable gets a text before each phase."""


@contextlib.contextmanager
def phases(label: str, progress: Phases) -> Iterator[Callable[[str], None]]:
    """Yields a function that is told what is done next, for work that has no unit."""
    if callable(progress):
        yield progress
        return
    if not (sys.stderr.isatty() if progress is None else progress):
        yield lambda text: None
        return
    import rich.console

    console = rich.console.Console(stderr=True)
    with console.status(f"{label} ...") as status:
        yield lambda text: status.update(f"{label}: {text} ...")
