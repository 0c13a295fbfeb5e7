# SPDX-License-Identifier: Apache-2.0
"""Commands that work on files and need no torch: keygen, inspect, prune."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .._base._printable import counted, number, printable, size
from ._result import UNREADABLE, Result, command

if TYPE_CHECKING:
    from rich.console import Console

    from .._core import SigningKey

RunPath = Annotated[
    Path, typer.Argument(metavar="RUN", help="The run directory.", show_default=False)
]

_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4}


def add_to(app: typer.Typer) -> None:
    """Adds the commands to the application."""
    command(
        app,
        "keygen",
        examples="  potl keygen trainer        # trainer.pem and trainer.pub\n\n"
        "  potl keygen verifier --encryption",
    )(_keygen)
    command(
        app,
        "inspect",
        examples="  potl inspect runs/1\n\n  potl inspect runs/1 --json\n\n"
        "  potl inspect evidence.json --job job.json --html dispute.html",
    )(_inspect)
    command(
        app,
        "prune",
        examples="  potl prune runs/1 --max-bytes 2GiB --dry-run\n\n"
        "  potl prune runs/1 --max-bytes 500MB\n\n"
        "  potl prune runs/1 --max-bytes 50MB --archive",
    )(_prune)


def parse_size(text: str) -> int:
    """ "500MB", "2GiB", "4096" -> bytes.

    Raises:
        typer.BadParameter: Not a size.
    """
    match = re.fullmatch(r"\s*(\d{1,18}(?:\.\d{1,6})?)\s*([kmgt]?)(i?)b?\s*", text, re.IGNORECASE)
    if match is None or (match[3] and not match[2]):
        raise typer.BadParameter(f'"{text}" is not a size; write for example 500MB or 2GiB')
    unit = _UNITS[match[2].lower()]
    if match[3]:
        unit = 1024 ** (len(str(unit)) // 3)
    return int(float(match[1]) * unit) if "." in match[1] else int(match[1]) * unit


def signing_key(path: Path | None) -> SigningKey | None:
    """The key in a file that was named. A mistyped name is no reason to make a new one.

    Raises:
        UsageError: There is no such file.
        MalformedError: It is not a private key.
    """
    from .._record._keys import existing

    remedy = "" if path is None else f"check the path, or make one: potl keygen {path.stem}"
    return None if path is None else existing(path, remedy)


def _keygen(
    path: Annotated[
        Path,
        typer.Argument(metavar="NAME", help="Writes NAME.pem and NAME.pub.", show_default=False),
    ],
    *,
    encryption: Annotated[
        bool,
        typer.Option(
            "--encryption",
            help="A pair for encryption: NAME.pub is for --for of potl serve or potl seal, "
            "NAME.pem for --open-with.",
        ),
    ] = False,
) -> Result:
    """Make a key pair, for example of a trainer.

    A trainer signs with it, and so do an auditor, a referee and whoever attests reports. Keep
    NAME.pem, the private key, secret: with it anybody can sign in your name. Give NAME.pub to the
    others: a trainer's is for `potl job create --trainer`. Existing files are never replaced.
    """
    from .._record._keygen import write_pair

    private, public, key = write_pair(path, encryption=encryption)
    use = (
        "give it to whoever encrypts to you (potl serve --for, potl seal --for)"
        if encryption
        else "give it to the others (a trainer's: potl job create --trainer)"
    )
    document = {"private": str(private), "public": str(public), "key": key}

    def show(console: Console) -> None:
        console.print(f"{printable(private)}  private: keep it secret, keep a copy")
        console.print(f"{printable(public)}  public: {use}")
        console.print(f"key {key}")

    return Result(document=document, show=show)


def _inspect(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="A run directory, or the evidence of a dispute.", show_default=False
        ),
    ],
    *,
    job: Annotated[Path | None, typer.Option(help="Of evidence: what was agreed.")] = None,
    auditor_key: Annotated[
        Path | None, typer.Option(help="Of evidence: the auditor's public key, as you know it.")
    ] = None,
    referee_key: Annotated[
        Path | None, typer.Option(help="Of evidence: the referee's public key, as you know it.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Of evidence: write it as a page.")] = None,
) -> Result:
    """Show what a run directory holds, or the evidence of a dispute.

    Of a run: steps, checkpoints, sizes, losses, gaps, resumes, damage. Needs neither the job nor
    the task, and proves nothing; `potl verify` does. A damaged run is shown as far as it can be
    read, and still ends with exit code 0.

    Of the evidence of a dispute it shows who is right and how that was found. With --job it is
    judged, as by `potl referee`; without, nothing is checked. Ends with 4 if it does not hold.
    """
    from .. import _core
    from .._base._errors import UsageError

    given = {"auditor": auditor_key, "referee": referee_key}
    keys = {name: key for name, key in given.items() if key is not None}
    if path.is_file():
        return _inspect_evidence(path, job, keys, html)
    from .._record import _inspect
    from .._record._inputs import run_directory

    if not path.is_dir():
        raise UsageError(
            f"there is no run directory or evidence {path}", "check the path; a run is a folder"
        )
    if job is not None or keys or html is not None:
        raise UsageError("these options are for the evidence of a dispute", "leave them out")
    facts = _core.inspect_run(str(run_directory(path)))
    return Result(document=facts, show=lambda console: _inspect.show(facts, console))


def _inspect_evidence(
    path: Path, job: Path | None, keys: dict[str, Path], html: Path | None
) -> Result:
    from .._base._errors import UsageError
    from .._dispute._account import account
    from .._report._dispute import render_html, render_terminal

    if keys and job is None:
        raise UsageError("keys say nothing without the job", "give --job")
    found = account(path, job=job, keys=keys)
    return Result(
        document=found,
        show=lambda console: render_terminal(found, console),
        exit_code=UNREADABLE if found["status"] == "invalid" else 0,
        files={} if html is None else {html: render_html(found)},
    )


def _prune(
    run: RunPath,
    *,
    max_bytes: Annotated[
        str, typer.Option(help="Disk budget, for example 500MB or 2GiB.", show_default=False)
    ],
    archive: Annotated[
        bool,
        typer.Option(
            "--archive",
            help="If necessary, remove more than can be verified; potl rederive restores it.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be removed.")
    ] = False,
) -> Result:
    """Remove checkpoints until a run fits a disk budget.

    The run stays verifiable: the states that the job requires are kept. A run that cannot be made
    small enough stays as it is, and the command says so. By default a job requires every state;
    make it with --max-segment to leave room, or use --archive and derive the missing states again
    before an audit.
    """
    from .._record._prune import prune

    done = prune(run, max_bytes=parse_size(max_bytes), archive=archive, dry_run=dry_run)
    document = {
        "remove": list(done.removed),
        "keep": list(done.kept),
        "bytes": done.bytes,
        "segment": done.segment,
        "removed": done.applied,
    }

    def show(console: Console) -> None:
        verb = "removed" if done.applied else "would remove"
        for name in done.removed:
            console.print(f"{verb} {printable(name)}")
        console.print(
            f"{verb} {counted(len(done.removed), 'checkpoint')}, kept {number(len(done.kept))}: "
            f"{size(done.bytes)}, longest segment {counted(done.segment, 'step')}"
        )

    return Result(document=document, show=show)
