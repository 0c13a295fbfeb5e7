# SPDX-License-Identifier: Apache-2.0
"""The guard for C++ trainers, from an installed tree; Python computes the same bits."""

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("potl._torch", reason="potl was built without torch")

from libtorch_build import run  # noqa: E402

import potl  # noqa: E402

MODES = ["ord32", "cr32", "xint24", "xint16", "log64"]


def test_the_installed_guard(programs: Path) -> None:
    done = run(programs / "exact_programs", "arithmetic_test")
    assert done.returncode == 0, done.stdout + done.stderr


CONSUMER = """
cmake_minimum_required(VERSION 3.25)
project(consumer CXX)
add_library(torch INTERFACE IMPORTED)
find_package(potl REQUIRED COMPONENTS libtorch_arithmetic)
"""


def test_operators_are_found_for_one_minor_version_of_libtorch(
    prefix: Path, tmp_path: Path
) -> None:
    if not [*prefix.glob("**/potl-torch-targets.cmake")]:
        pytest.skip("the C++ build has no operators for torch: POTL_BUILD_PYTHON or _TORCH is off")
    (tmp_path / "CMakeLists.txt").write_text(CONSUMER)
    minor = ".".join(torch.__version__.split(".")[:2])
    for version, is_found in ((f"{minor}.99", True), (f"{minor}0.0", False), ("2.1.0", False)):
        done = run(
            *("cmake", "-S", tmp_path, "-B", tmp_path / version, "-G", "Ninja"),
            *(f"-DCMAKE_PREFIX_PATH={prefix}", f"-DTorch_VERSION={version}"),
        )
        said = " ".join(done.stderr.split())
        assert (done.returncode == 0) == is_found, said
        assert is_found or f"built against LibTorch {minor}, this is {version}" in said


def pattern(*sizes: int, period: int) -> Any:
    count = 1
    for size in sizes:
        count *= size
    steps = torch.arange(count).mul(7919).remainder(period)
    return steps.float().div(float(period)).sub(0.5).reshape(sizes)


def in_python(mode: str) -> str:
    """The training of examples/04_libtorch/reproducible.cpp."""
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution = nn.Conv2d(1, 8, 3, padding=1)
            self.norm = nn.BatchNorm2d(8)
            self.last = nn.Linear(8 * 16, 10)

        def forward(self, x: Any) -> Any:
            x = nn.functional.gelu(self.norm(self.convolution(x)))
            return self.last(nn.functional.max_pool2d(x, 2).flatten(1))

    net = Net()
    with torch.no_grad():
        for weight in net.parameters():
            weight.copy_(pattern(*weight.shape, period=1009))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    images, labels = pattern(64, 1, 8, 8, period=65537), torch.arange(64).remainder(10)
    for _ in range(10):
        with potl.deterministic(mode):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(images), labels).backward()
            optimizer.step()
    sha = hashlib.sha256()
    for weight in net.parameters():
        sha.update(weight.detach().numpy().tobytes())
    return sha.hexdigest()


@pytest.mark.parametrize("mode", MODES)
def test_the_example_and_python_end_in_the_same_bits(programs: Path, mode: str) -> None:
    done = run(programs / "example/reproducible", mode)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == in_python(mode)


def test_threads_and_instruction_sets_change_no_bit(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = programs / "example/reproducible"
    want = run(program).stdout
    assert run(program, "ord32", 4).stdout == want
    monkeypatch.setitem(os.environ, "POTL_ISA", "portable")
    monkeypatch.setitem(os.environ, "ATEN_CPU_CAPABILITY", "default")
    monkeypatch.setitem(os.environ, "GLIBC_TUNABLES", "glibc.cpu.hwcaps=-FMA,-AVX2")
    assert run(program).stdout == want
    assert len(want) == 65
