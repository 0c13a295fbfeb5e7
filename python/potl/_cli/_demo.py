# SPDX-License-Identifier: Apache-2.0
"""The command demo: the one place from where the package plays its attacks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ._result import FAILED, Result, command


def add_to(app: typer.Typer) -> None:
    """Adds the command to the application."""
    command(app, "demo", examples="  potl demo --out build/demo")(_demo)


def _demo(
    *,
    out: Annotated[Path, typer.Option(help="Directory for runs and report.html.")] = Path(
        "potl-demo"
    ),
) -> Result:
    """Train on scikit-learn's digits, verify, and play cheats.

    Ends with 0 only if the honest run is accepted and every cheat is rejected for its expected
    reason, else with 3. Takes about a minute. Needs torch and scikit-learn.
    """
    from .._attacks import _demo

    out.mkdir(parents=True, exist_ok=True)
    result = _demo.run_demo(out)
    return Result(
        document=result,
        show=lambda console: _demo.show(result, console),
        exit_code=0 if result["ok"] else FAILED,
    )
