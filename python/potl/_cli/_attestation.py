# SPDX-License-Identifier: Apache-2.0
"""The commands of attestations: attestation sign, check."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .._base._printable import printable
from ._files import signing_key
from ._result import Result, command

if TYPE_CHECKING:
    from rich.console import Console

_FILE = "ATTESTATION"


def add_to(app: typer.Typer) -> None:
    """Adds the commands to the application."""
    group = typer.Typer(
        help="Sign what you verified, for those who trust you.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    app.add_typer(group, name="attestation")
    command(
        group,
        "sign",
        examples="  potl verify runs/1 --job job.json --commitment note.txt --task trainer:build "
        "--model delivered.safetensors --json > report.json\n\n"
        "  potl attestation sign report.json attestation.json --key verifier.pem",
    )(_sign)
    command(
        group,
        "check",
        examples="  potl attestation check attestation.json --key verifier.pub "
        "--model delivered.safetensors --job job.json",
    )(_check)


def _sign(
    report: Annotated[
        Path,
        typer.Argument(metavar="REPORT", help="What potl verify --json wrote.", show_default=False),
    ],
    out: Annotated[
        Path, typer.Argument(metavar=_FILE, help="The file to write.", show_default=False)
    ],
    *,
    key: Annotated[Path, typer.Option(help="Your private key: potl keygen verifier.")],
) -> Result:
    """Sign a report.

    Whoever has your public key can check the file with potl attestation check, and so can tools
    that read in-toto statements in DSSE envelopes. Sign only what you verified yourself.
    """
    from .._record._inputs import require_file
    from .._report._value import Report

    require_file(report, "report")
    private = signing_key(key)
    assert private is not None
    said = Report.read(report)
    said.attest(out, key=private)
    signer = private.public_key.raw.hex()

    def show(console: Console) -> None:
        console.print(f"{printable(out)}: {said.verdict}, signed by {signer}")

    return Result(document={"path": str(out), "signer": signer, "verdict": said.verdict}, show=show)


def _check(
    path: Annotated[
        Path,
        typer.Argument(metavar=_FILE, help="What potl attestation sign wrote.", show_default=False),
    ],
    *,
    key: Annotated[Path, typer.Option(help="The verifier's public key, as you know it.")],
    model: Annotated[
        Path | None, typer.Option(help="The delivered file, of which the SHA-256 is compared.")
    ] = None,
    job: Annotated[Path | None, typer.Option(help="What was agreed.")] = None,
    commitment: Annotated[Path | None, typer.Option(help="The prover's commitment.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the report as a page.")] = None,
) -> Result:
    """Check who signed a report, and that it is about what you have.

    Compares at least one of --model, --job and --commitment. Ends with the verdict of the report:
    0 if the run was accepted, 1 if it was rejected and 3 if it could not be judged. Ends with 4 if
    the key has not signed it, or if it is about something else.
    """
    from .._report._attestation import Attestation
    from .._report._report import render_html, render_terminal

    got = Attestation.read(path, key=key, model=model, job=job, commitment=commitment)
    report = got.report.document
    left = [name for name in ("model", "job", "commitment") if name not in got.compared]

    def show(console: Console) -> None:
        render_terminal(report, console)
        console.print()
        console.print(f"Signed by {got.signer}, {got.signed_at:%Y-%m-%d %H:%M:%S} UTC")
        console.print(f"About your {', '.join(got.compared)}")
        if left:
            console.print(f"Not compared: {', '.join(left)}")

    return Result(
        document={
            "signer": got.signer,
            "signed_at": got.signed_at.isoformat(),
            "compared": list(got.compared),
            "report": dict(report),
        },
        show=show,
        exit_code=got.report.exit_code,
        files={} if html is None else {html: render_html(report)},
    )
