# SPDX-License-Identifier: Apache-2.0
"""Commands about the installation: doctor, demo."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ._cli_result import FAILED, Debug, Json, Result, command


def add_to(app: typer.Typer) -> None:
    """Adds the commands to the application."""
    command(app, "doctor", examples="  potl doctor\n\n  potl doctor --directory /data/runs --json")(
        _doctor
    )
    command(app, "demo", examples="  potl demo --out build/demo")(_demo)


def _doctor(
    *,
    directory: Annotated[Path, typer.Option(help="Where runs would be written.")] = Path(),
    json: Json = False,
    debug: Debug = False,
) -> Result:
    """Say what is wrong with this installation, and what to do about it.

    Looks at the C++ module, torch, OpenSSL, the processor, the floating-point environment before
    and after torch is loaded, disk and clock. Ends with 0 when potl works here, else with 3.
    """
    from . import _doctor

    diagnosis = _doctor.examine(directory)
    return Result(
        document=diagnosis.document(),
        show=lambda console: _doctor.show(diagnosis, console),
        exit_code=0 if diagnosis.fine else FAILED,
    )


def _demo(
    *,
    out: Annotated[Path, typer.Option(help="Directory for runs and report.html.")] = Path(
        "potl-demo"
    ),
    json: Json = False,
    debug: Debug = False,
) -> Result:
    """Train a small net on scikit-learn's digits, verify it, and play named cheats against it.

    Ends with 0 only if the honest run is accepted and every cheat is rejected for its expected
    reason, else with 3. Takes about a minute. Needs torch and scikit-learn.
    """
    from . import _demo

    out.mkdir(parents=True, exist_ok=True)
    result = _demo.run_demo(out)
    return Result(
        document=result,
        show=lambda console: _demo.show(result, console),
        exit_code=0 if result["ok"] else FAILED,
    )
