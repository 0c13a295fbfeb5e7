# SPDX-License-Identifier: Apache-2.0
"""make test-gpu and bench-gpu never pass where there is no GPU, or where nothing could be built."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from places import ROOT


def run(use: str, programs: Path, python: str) -> subprocess.CompletedProcess[str]:
    """With a Python that finds a device or does not, and a CMake that cannot configure."""
    build = 'echo "cmake $*"; [ "$1" = --build ] || exit 9'
    for name, text in {"python3": python, "cmake": build}.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    for name in ("bash", "dirname"):
        (programs / name).symlink_to(shutil.which(name) or name)
    return subprocess.run(
        [ROOT / "scripts/gpu", use],
        env={**os.environ, "PATH": str(programs), "PYTHON": "python3"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("use", ["test", "bench"])
def test_without_a_gpu_it_is_refused(tmp_path: Path, use: str) -> None:
    result = run(use, tmp_path, "exit 1")
    assert result.returncode == 2
    assert "sees no CUDA device" in result.stderr and "make gpu-pack" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("use", ["test", "bench"])
def test_an_older_build_does_not_stand_in(tmp_path: Path, use: str) -> None:
    result = run(use, tmp_path, "exit 0")
    assert result.returncode == 9
    assert "-DCMAKE_CUDA_ARCHITECTURES=90a-real" in result.stdout
    assert "--build" not in result.stdout
