# SPDX-License-Identifier: Apache-2.0
"""Operators that were compiled against another torch are refused by name and not loaded."""

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import potl
from potl._arithmetic import _library

MAJOR, MINOR = map(int, torch.__version__.split(".")[:2])


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in which `_library` looks for the version that was built against."""
    monkeypatch.setattr(_library, "_folder", lambda: tmp_path)
    _library.module.cache_clear()
    yield tmp_path
    _library.module.cache_clear()


@pytest.mark.parametrize(
    "built", [f"{MAJOR}.{MINOR - 2}.0", f"{MAJOR}.{MINOR + 1}.0", f"{MAJOR + 1}.{MINOR}.0"]
)
def test_another_minor_version_of_torch_is_refused_by_name(package: Path, built: str) -> None:
    (package / "_torch.version").write_text(built + "\n")
    with pytest.raises(potl.UnsupportedError) as raised, potl.deterministic():
        pass
    assert built in str(raised.value) and torch.__version__.split("+")[0] in str(raised.value)
    assert "pip install --no-build-isolation" in raised.value.remedy


def test_another_patch_of_the_same_minor_version_is_taken(package: Path) -> None:
    (package / "_torch.version").write_text(f"{MAJOR}.{MINOR}.99\n")
    with potl.deterministic():
        assert _library.module().is_on()
    assert not _library.module().is_on()


def test_a_build_without_torch_says_so(package: Path) -> None:
    with pytest.raises(potl.UnsupportedError, match="no torch"), potl.deterministic():
        pass


def test_operators_that_do_not_load_are_an_error_with_a_remedy(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str) -> None:
        raise ImportError("undefined symbol: _ZN3c10")

    (package / "_torch.version").write_text(torch.__version__)
    refused = potl.UnsupportedError  # potl's names are imported when they are first asked for
    monkeypatch.setattr(importlib, "import_module", refuse)
    with pytest.raises(refused, match=r"do not load: undefined symbol") as raised:
        _library.module()
    assert "pip install" in raised.value.remedy


def test_the_operators_find_torch_without_a_path_of_their_own() -> None:
    code = (
        "import sys, potl; assert 'torch' not in sys.modules; "
        "from potl._arithmetic._library import module; print(module().__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True
    )
    headers = subprocess.run(
        ["readelf", "-d", done.stdout.strip()], capture_output=True, text=True, check=True
    )
    assert "libtorch_cpu.so" in headers.stdout
    assert "RPATH" not in headers.stdout and "RUNPATH" not in headers.stdout
