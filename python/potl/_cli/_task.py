# SPDX-License-Identifier: Apache-2.0
"""Tasks on the command line: "module:function", importable from the current directory."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from .._task._task import Task

TaskName = Annotated[
    str | None,
    typer.Option(
        metavar="MODULE:FUNCTION",
        help="Your own build function; the current directory is importable. Without it nothing "
        "can be replayed.",
    ),
]
TaskOption = Annotated[
    str,
    typer.Option(
        metavar="MODULE:FUNCTION",
        help="Your own build function; the current directory is importable.",
    ),
]
TaskArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:FUNCTION",
        help="The function that builds the task; the current directory is importable.",
    ),
]


def make_importable(run: Path | None = None) -> None:
    """Lets modules of the current directory be imported, as `python -m` does, and none of a run
    directory: what lies there is the trainer's.
    """
    from .._base import _imports

    if run is not None:
        _imports.close(run)
    here = str(Path.cwd())
    if here not in sys.path and not _imports.is_closed(here):
        sys.path.insert(0, here)


def load(name: str, run: Path | None = None) -> Callable[[], Task]:
    """The build function of that name, which does not come from the directory `run`.

    Raises:
        UsageError: There is no such module or function.
    """
    from .._base._executors import load_task

    make_importable(run)
    return load_task(name)
