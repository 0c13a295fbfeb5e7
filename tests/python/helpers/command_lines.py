# SPDX-License-Identifier: Apache-2.0
"""Command lines of potl, in the process of the tests."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from potl._cli import _cli


@dataclass(frozen=True)
class Done:
    """What a command line printed and ended with."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found


def command(folder: Path, words: str, **environment: str) -> Done:
    """Runs a command line in this process, where torch is loaded once."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", list(sys.path))
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        for name, value in environment.items():
            patch.setenv(name, value)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = _cli.run(shlex.split(words))
    return Done(code, out.getvalue(), err.getvalue())
