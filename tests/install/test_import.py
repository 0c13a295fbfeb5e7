# SPDX-License-Identifier: Apache-2.0
"""`import potl` is cheap: no torch, no numpy, few modules. Release builds have no rule switches."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import potl

ROOT = Path(__file__).resolve().parents[2]


def child(code: str, *options: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, *options, "-c", code], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return done


def test_importing_potl_imports_neither_torch_nor_numpy() -> None:
    heavy = ("torch", "numpy", "typer", "rich", "jinja2", "safetensors", "asyncio")
    printed = child(f"import sys, potl; print([name for name in {heavy} if name in sys.modules])")
    assert printed.stdout.strip() == "[]"


def test_importing_potl_imports_few_modules() -> None:
    lines = child("import potl", "-X", "importtime").stderr.splitlines()
    bare = child("pass", "-X", "importtime").stderr.splitlines()
    assert len(lines) - len(bare) <= 60


def test_a_release_build_has_no_rule_switches() -> None:
    code = "import potl._core as c; print('rule_enabled' in dir(c), 'set_rule_enabled' in dir(c))"
    assert child(code).stdout.split() == ["True", "False"]


def test_there_is_one_version() -> None:
    version = (ROOT / "VERSION").read_text().strip()
    assert potl.__version__ == version
    assert importlib.metadata.version("potl") == version
