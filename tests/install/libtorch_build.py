# SPDX-License-Identifier: Apache-2.0
"""Runs programs for the tests of an installed tree."""

import os
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("POTL_BUILD_DIR", ROOT / "build/test"))


def run(*command: object, **options: Any) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=1500,
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # other test processes use the other cores
        **options,
    )


def run_well(*command: object) -> str:
    done = run(*command)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
