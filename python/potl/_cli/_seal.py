# SPDX-License-Identifier: Apache-2.0
"""The commands that send a job with its code and data: seal, unseal."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .._base._printable import counted, number, printable, size
from ._result import Result, command
from ._task import TaskArgument, make_importable

if TYPE_CHECKING:
    from rich.console import Console

    from .._seal._contents import SealedJob

_SHOWN = 20
_VERSIONS = ("potl", "python", "torch", "numpy")


def add_to(app: typer.Typer) -> None:
    """Adds the commands to the application."""
    command(
        app,
        "seal",
        examples="  potl seal trainer:build job.json job.sealed --for box.pub\n\n"
        "  potl seal trainer:build job.json job.sealed --for box.pub --with data "
        "--with config.yaml",
    )(_seal)
    command(app, "unseal", examples="  potl unseal job.sealed order --open-with box.pem")(_unseal)


def _seal(
    task: TaskArgument,
    job: Annotated[Path, typer.Argument(metavar="JOB", help="What was agreed.")],
    out: Annotated[Path, typer.Argument(metavar="SEALED", help="The file to write.")],
    *,
    reader: Annotated[
        Path,
        typer.Option(
            "--for",
            metavar="FILE",
            help="Public key of the trainer (potl keygen --encryption). Nobody else can open it.",
        ),
    ],
    files: Annotated[
        list[Path] | None,
        typer.Option(
            "--with",
            metavar="PATH",
            help="A file or folder below the current directory that the task reads. Repeatable.",
        ),
    ] = None,
) -> Result:
    """Encrypt a job, its code and its data to the trainer, in one file.

    Packs the modules that hold the task's code, and what --with names. Before it writes anything,
    it tries what is packed: a new process that has nothing else builds the task and compares it
    with the job. Needs room for a copy in the folder for temporary files (TMPDIR).
    """
    from .._seal._seal import seal

    make_importable()
    sealed = seal(task, job, out, reader=reader, files=files or ())

    def show(console: Console) -> None:
        _show(sealed, console)
        console.print(
            f"next: send {printable(out)} to the trainer, and the line contents by another channel",
            soft_wrap=True,
        )

    return Result(document=_document(sealed), show=show)


def _unseal(
    sealed: Annotated[Path, typer.Argument(metavar="SEALED", help="What potl seal wrote.")],
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The folder to make. It must not hold a file.")
    ],
    *,
    open_with: Annotated[Path, typer.Option(metavar="FILE", help="Your secret encryption key.")],
) -> Result:
    """Open a sealed job and write its files.

    Nothing in it is imported or run, and nothing is written outside FOLDER. Encryption does not
    prove who sealed it: compare the printed contents with the client by another channel. Read the
    code before you record with it.
    """
    from .._seal._unseal import unseal

    order = unseal(sealed, folder, key=open_with)
    # The command is for within the folder: from there .. leads out of what a link names.
    key = os.path.relpath("trainer.pem", os.path.realpath(folder))
    words = ["potl", "record", order.task, "runs/1", "--job", "job.json", "--key", key]
    words += ["--", *order.arguments] if order.arguments else []

    def show(console: Console) -> None:
        _show(order, console)
        console.print("who sealed it is not proven: compare contents with the client")
        console.print(
            f"next: read the code, then cd {printable(shlex.quote(str(folder)))} && "
            f"{printable(shlex.join(words))}",
            soft_wrap=True,
        )

    return Result(document=_document(order), show=show)


def _document(sealed: SealedJob) -> dict[str, object]:
    return {
        "path": str(sealed.path),
        "job": sealed.job.id.hex(),
        "contents": sealed.contents,
        "task": sealed.task,
        "arguments": list(sealed.arguments),
        "files": dict(sealed.files),
        "environment": sealed.job.core.fields()["environment"],
    }


def _show(sealed: SealedJob, console: Console) -> None:
    made = sealed.job.core.fields()["environment"]
    versions = [f"{name} {made[name]}" for name in _VERSIONS if name in made]
    rows = (
        ("job", sealed.job.id.hex()),
        ("contents", sealed.contents),
        ("task", sealed.task),
        ("made with", ", ".join(versions)),
        ("files", f"{number(len(sealed.files))}, {size(sum(sealed.files.values()))}"),
    )
    for name, value in rows:
        console.print(f"{name:<12}{printable(value)}")
    for name in list(sealed.files)[:_SHOWN]:
        console.print(f"{'':<12}{size(sealed.files[name]):>10}  {name}")
    if len(sealed.files) > _SHOWN:
        rest = counted(len(sealed.files) - _SHOWN, "more file")
        console.print(f"{'':<12}{rest}; --json lists all")
