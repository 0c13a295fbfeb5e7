# SPDX-License-Identifier: Apache-2.0
"""Commands about the installation: doctor, selftest."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .._base._printable import printable
from ._result import FAILED, Result, command

if TYPE_CHECKING:
    from rich.console import Console


def add_to(app: typer.Typer) -> None:
    """Adds the commands to the application."""
    command(app, "doctor", examples="  potl doctor\n\n  potl doctor --directory /data/runs --json")(
        _doctor
    )
    command(
        app,
        "selftest",
        examples="  potl selftest\n\n  POTL_ISA=portable potl selftest --json\n\n"
        "  potl selftest --device cuda",
    )(_selftest)


def _doctor(
    *,
    directory: Annotated[Path, typer.Option(help="Where runs would be written.")] = Path(),
) -> Result:
    """Say what is wrong with this installation, with the remedy.

    Looks at the C++ module, torch, OpenSSL, the processor, the floating-point environment before
    and after torch is loaded, disk and clock. Ends with 0 if potl works here, else with 3.
    """
    from .._machine import _doctor

    diagnosis = _doctor.examine(directory)
    return Result(
        document=diagnosis.document(),
        show=lambda console: _doctor.show(diagnosis, console),
        exit_code=0 if diagnosis.fine else FAILED,
    )


def _selftest(
    *,
    device: Annotated[
        str, typer.Option(help="cpu, or cuda for what a GPU computes.", metavar="DEVICE")
    ] = "cpu",
) -> Result:
    """Print a digest of what every reproducible operator computes.

    Each runs on fixed inputs. The lines after the processor are the same on every machine. A GPU
    refuses some operators, and prints the same for the others. Ends with 0 if the digests are those
    of this version and the floating-point environment is IEEE's, else with 3.
    """
    from .. import _core
    from .._base._progress import track
    from .._machine._doctor import arithmetic
    from .._machine._selftest import OTHERS, PRODUCTS, lines

    environment = list(arithmetic(_core.fp_environment(), when=""))
    total = len(PRODUCTS) * len(_core.MODES) + len(OTHERS)
    rows = []
    with track("testing", total, None) as advance:
        for line in lines(device):
            rows.append(line)
            if advance is not None:
                advance(len(rows))
    whole = hashlib.sha256("".join(line.digest for line in rows).encode()).hexdigest()
    broken = [item for item in environment if item.state != "ok"]
    strange = [line for line in rows if not line.as_kept and not line.refused]
    processor, kernels = _core.processor_name(), _core.active_isa()
    document = {
        "processor": processor,
        "kernels": kernels,
        "device": device,
        "digest": whole,
        "ok": not broken and not strange and any(line.as_kept for line in rows),
        "operators": [
            {
                "mode": line.mode,
                "operator": line.operator,
                "digest": line.digest,
                "ok": line.as_kept,
                "refused": line.refused,
            }
            for line in rows
        ],
        "environment": [{"check": item.name, "ok": item.state == "ok"} for item in environment],
    }

    def show(console: Console) -> None:
        console.print(f"processor  {printable(processor)}, kernels {kernels}")
        for line in rows:
            mark = "" if line.as_kept or line.refused else "   not this version's digest"
            found = f"refused on {device}" if line.refused else line.digest
            console.print(f"{line.mode:7s} {line.operator:22s} {found}{mark}", highlight=False)
        for item in environment:
            console.print(f"{item.name}: {item.state} ({item.seen})", highlight=False)
        console.print(f"all        {whole}", highlight=False)

    return Result(document=document, show=show, exit_code=0 if document["ok"] else FAILED)
