# SPDX-License-Identifier: Apache-2.0
"""The kernels for 64-bit ARM compile, which no other test here sees: `scripts/test-aarch64` runs
them where its packages are."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from places import ROOT

KERNELS = sorted((ROOT / "src" / "numeric").rglob("*_neon.cpp"))
WARNINGS = re.search(r"-Wall .*-Werror", (ROOT / "cmake" / "flags.cmake").read_text())


def test_there_are_kernels() -> None:
    assert len(KERNELS) >= 5
    assert WARNINGS is not None


@pytest.mark.parametrize("source", KERNELS, ids=lambda path: str(path.stem))
def test_a_kernel_for_64_bit_arm_compiles(source: Path, tmp_path: Path) -> None:
    headers = [Path("/usr/include/c++/12"), Path("/usr/include/x86_64-linux-gnu")]
    if platform.machine() != "x86_64" or not all(path.is_dir() for path in headers):
        pytest.skip("this reads the headers of g++ 12 for x86-64 as if they were ARM's")
    if shutil.which("clang++-14") is None:
        pytest.skip("there is no clang++-14, which compiles for each processor")
    # All of these headers but two hold for any processor with 64 bits.
    for name, content in {"gnu/stubs-32.h": "", "bits/wordsize.h": "#define __WORDSIZE 64"}.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(content + "\n")
    places = [tmp_path, headers[0], headers[1] / "c++" / "12", headers[1]]
    done = subprocess.run(
        [
            *("clang++-14", "--target=aarch64-linux-gnu", "-std=c++20", "-fsyntax-only"),
            *(WARNINGS.group().split() if WARNINGS else []),
            *("-nostdinc++", "-I", ROOT / "include", "-I", ROOT / "src"),
            *(word for place in places for word in ("-isystem", place)),
            source,
        ],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
