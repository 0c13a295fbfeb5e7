# SPDX-License-Identifier: Apache-2.0
"""A C++ project outside this tree finds the installed library; including all of it is cheap."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("POTL_BUILD_DIR", ROOT / "build/test"))
# g++ 12 compiles 100,000 lines of declarations in about a second; nearly all are the standard
# library's.
MOST_PREPROCESSED_LINES = 100_000


def run(*command: object, **options: object) -> str:
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=600, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not (BUILD / "libpotl.a").is_file():
        pytest.skip("no C++ build in build/test: make test makes it")
    path = tmp_path_factory.mktemp("installed")
    run("cmake", "--install", BUILD, "--prefix", path)
    return path


def merkle_root(leaves: list[bytes]) -> bytes:
    if len(leaves) == 1:
        return hashlib.sha256(b"\0" + leaves[0]).digest()
    split = 1 << ((len(leaves) - 1).bit_length() - 1)
    return hashlib.sha256(
        b"\1" + merkle_root(leaves[:split]) + merkle_root(leaves[split:])
    ).digest()


def test_find_package_gives_a_library_that_links_and_runs(prefix: Path, tmp_path: Path) -> None:
    consumer = ROOT / "tests/install/consumer"
    run("cmake", "-S", consumer, "-B", tmp_path, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", tmp_path)
    printed = run(tmp_path / "consumer")
    assert printed.strip() == merkle_root([b"\0", b"\1", b"\2"]).hex()


WITHIN = """
cmake_minimum_required(VERSION 3.22)
project(within LANGUAGES CXX)
if(TORCH_TOO)
  find_package(Torch REQUIRED)
endif()
include(FetchContent)
FetchContent_Declare(potl SOURCE_DIR {root})
FetchContent_MakeAvailable(potl)
foreach(name potl core libtorch libtorch_arithmetic)
  if(TARGET potl::${{name}})
    message(STATUS "has potl::${{name}}")
  endif()
endforeach()
"""


@pytest.mark.parametrize("with_torch", [False, True])
def test_a_build_that_potl_is_part_of_has_the_same_targets(
    tmp_path: Path, with_torch: bool
) -> None:
    (tmp_path / "CMakeLists.txt").write_text(WITHIN.format(root=ROOT))
    options = []
    if with_torch:
        torch = pytest.importorskip("torch")
        if torch.version.cuda is not None and shutil.which("nvcc") is None:
            pytest.skip("this LibTorch needs the CUDA toolkit to be linked")
        options = [
            "-DTORCH_TOO=ON",
            f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}",
            f"-DPython_EXECUTABLE={sys.executable}",
        ]
    printed = run("cmake", "-S", tmp_path, "-B", tmp_path / "build", "-DPOTL_CUDA=OFF", *options)
    names = ["potl", "core", *(["libtorch", "libtorch_arithmetic"] if with_torch else [])]
    assert re.findall(r"has potl::(\w+)", printed) == names


CUDA_CONSUMER = """
#include <cstdio>
#include <potl/cuda/digest.hpp>
#include <potl/cuda/elementwise.hpp>
#include <potl/potl.hpp>
int main() {
  float x = 1;
  try {
    potl::cuda::apply(potl::numeric::unary::erfinv, &x, &x, 1, nullptr);
  } catch (const potl::exception& e) {
    std::printf("refused, device %d\\n", potl::cuda::has_device());
  }
}
"""


def test_the_component_cuda_links_without_a_cuda_compiler(prefix: Path, tmp_path: Path) -> None:
    if not list(prefix.rglob("libpotl_cuda.a")):
        pytest.skip("potl was built without nvcc")
    (tmp_path / "main.cpp").write_text(CUDA_CONSUMER)
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.22)\nproject(c LANGUAGES CXX)\n"
        "find_package(potl 0.1 REQUIRED COMPONENTS core cuda)\n"
        "add_executable(c main.cpp)\ntarget_link_libraries(c PRIVATE potl::core potl::cuda)\n"
    )
    build = tmp_path / "build"
    run("cmake", "-S", tmp_path, "-B", build, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", build)
    assert run(build / "c").strip() in ("refused, device 1", "refused, device 0")


def test_the_extra_task_needs_no_torch(prefix: Path, tmp_path: Path) -> None:
    example = ROOT / "examples/05_extra_task"
    run("cmake", "-S", example, "-B", tmp_path, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", tmp_path)
    lines = run(tmp_path / "extra_task").splitlines()
    assert lines[0] == "400 extra samples in 50400 uploaded ones"
    assert lines[1].startswith("trained until it converged: 400 hits of 68 needed")
    assert [line.rsplit(": ", 1)[1] for line in lines[1:]] == ["accepted", "rejected"]


def test_an_installed_tree_has_every_public_header_and_no_test_hooks(prefix: Path) -> None:
    source = ROOT / "include"
    headers = {path.relative_to(source) for path in source.rglob("*.hpp")}
    assert {path.relative_to(prefix / "include") for path in prefix.rglob("*.hpp")} == headers
    archives = {path.name: path for path in prefix.rglob("*.a")}
    adapters = {
        "libpotl_libtorch_arithmetic.a",
        "libpotl_cuda.a",
    }  # where the build found torch, nvcc
    built = {path.name for path in BUILD.rglob("libpotl_*.a")} & adapters
    assert archives.keys() == {"libpotl.a"} | built
    symbols = run("nm", "-C", "--defined-only", archives["libpotl.a"])
    assert "potl::rule_enabled" in symbols
    for path in archives.values():
        assert "set_rule_enabled" not in run("nm", "-C", "--defined-only", path)


def test_a_newer_minor_version_is_not_found(prefix: Path, tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.22)\nproject(c LANGUAGES CXX)\n"
        "find_package(potl 0.99 REQUIRED)\n"
    )
    done = subprocess.run(
        ["cmake", "-S", tmp_path, "-B", tmp_path / "b", f"-DCMAKE_PREFIX_PATH={prefix}"],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode != 0
    assert "0.99" in done.stderr


def test_including_everything_is_bounded_work_and_names_no_library(prefix: Path) -> None:
    text = run(
        *("g++", "-std=c++20", "-E", "-x", "c++", "-I", prefix / "include", "-"),
        input="#include <potl/potl.hpp>\n",
    )
    files = {line.split('"')[1] for line in text.splitlines() if line.startswith("# ")}
    assert any(name.endswith("potl/crypto/merkle.hpp") for name in files)
    for library in ("openssl/", "nlohmann/", "Eigen/", "torch/", "zstd"):
        assert not [name for name in files if f"/{library}" in name], library
    lines = sum(1 for line in text.splitlines() if line.strip() and not line.startswith("#"))
    assert lines < MOST_PREPROCESSED_LINES


def test_a_plain_build_has_no_tests_and_forgives_warnings(tmp_path: Path) -> None:
    for mode in ("OFF", "ON"):
        out = tmp_path / mode
        # Neither torch nor a CUDA compiler is looked for: seconds each.
        options = ["-DPOTL_BUILD_TORCH=OFF", "-DPOTL_CUDA=OFF"]
        options += [f"-DPOTL_DEVELOPER_MODE={mode}"] * (mode == "ON")
        run("cmake", "-S", ROOT, "-B", out, "-G", "Ninja", *options)
        commands = (out / "compile_commands.json").read_text()
        assert "-ffp-contract=off" in commands
        for developers in ("-Werror", "-Wall", "tests/unit"):
            assert (developers in commands) == (mode == "ON"), developers


def test_the_umbrella_header_names_every_public_header() -> None:
    run("python3", ROOT / "scripts/umbrella.py", "--check")
