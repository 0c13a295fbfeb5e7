# SPDX-License-Identifier: Apache-2.0
"""An adversary that does not tire: lies made by random composition of edits, and an oracle that
does not ask the judge.

`generate` draws a lie from a seed; `forge` trains, writes, signs and commits it as a prover with
the real key would; `oracle` says which verdicts it must not get; `play` asks for the verdict in a
process of bounded memory; `minimise` drops what a finding does not need.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2]


def _prepare() -> None:
    """In a process of its own, what tests/conftest.py and the settings of pytest do."""
    if "potl" in sys.modules:
        return
    sys.path.insert(0, str(TESTS / "python/helpers"))
    if os.environ.get("POTL_HOOKS") == "1":
        spec = importlib.util.spec_from_file_location("potl_tests_conftest", TESTS / "conftest.py")
        assert spec is not None and spec.loader is not None
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


_prepare()
