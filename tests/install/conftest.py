# SPDX-License-Identifier: Apache-2.0
"""An installed tree, and programs of somebody who has it and LibTorch.

What is built stays in <build>/libtorch: LibTorch's headers take 15 to 20 seconds and 2 GB.
"""

import fcntl
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from libtorch_build import BUILD, ROOT, run, run_well
from libtorch_played import Played

# As cmake/flags.cmake: g++ takes more memory before it looks for what it could free.
FLAGS = "-O0 --param=ggc-min-heapsize=1048576"


@pytest.fixture(scope="session")
def prefix() -> Path:
    if not (BUILD / "libpotl.a").is_file():
        pytest.skip(f"no C++ build in {BUILD}: make test makes it")
    if shutil.which("cmake") is None or shutil.which("ninja") is None:
        pytest.skip("cmake or ninja is missing")
    path = BUILD / "libtorch/prefix"
    path.mkdir(parents=True, exist_ok=True)
    with (BUILD / "libtorch/lock").open("w") as lock:  # several test processes, one prefix
        fcntl.flock(lock, fcntl.LOCK_EX)
        run_well("cmake", "--install", BUILD, "--prefix", path)
    return path


@pytest.fixture(scope="session")
def built(prefix: Path) -> Path:
    torch = pytest.importorskip("torch")
    if torch.version.cuda is not None and shutil.which("nvcc") is None:
        pytest.skip("this LibTorch needs the CUDA toolkit to be linked")
    out = BUILD / "libtorch/build"
    found = f"{prefix};{torch.utils.cmake_prefix_path}"
    ccache = shutil.which("ccache")
    with (BUILD / "libtorch/lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run_well(
            *("cmake", "-S", ROOT / "tests/install/libtorch", "-B", out, "-G", "Ninja"),
            f"-DCMAKE_PREFIX_PATH={found}",
            *("-DCMAKE_BUILD_TYPE=Debug", f"-DCMAKE_CXX_FLAGS_DEBUG={FLAGS}"),
            *([f"-DCMAKE_CXX_COMPILER_LAUNCHER={ccache}"] if ccache else []),
        )
        run_well("cmake", "--build", out, "-j", "2")  # 2 GB each
    return out


@pytest.fixture(scope="session")
def programs(built: Path) -> Path:
    """The same, with the programs that compute by potl's operators."""
    if not (built / "exact_programs").exists():
        pytest.skip("the C++ build has no operators for torch: POTL_BUILD_PYTHON or _TORCH is off")
    return built


@pytest.fixture
def rehearse(programs: Path, tmp_path: Path) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Runs tests/install/libtorch/rehearsal.cpp in tmp_path."""

    def rehearse(**told: object) -> "subprocess.CompletedProcess[str]":
        words = [f"{name}={value}" for name, value in told.items()]
        return run(programs / "exact_programs", "rehearsal", tmp_path / "run", *words)

    return rehearse


@pytest.fixture
def play(
    rehearse: Callable[..., "subprocess.CompletedProcess[str]"], tmp_path: Path
) -> Callable[..., Played]:
    """The same, up to a report."""

    def play(**told: object) -> Played:
        done = rehearse(**told)
        assert done.returncode in (0, 1, 3), done.stdout + done.stderr
        return Played(tmp_path / "run", done.stderr)

    return play


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    datasets = pytest.importorskip("sklearn.datasets")
    safetensors = pytest.importorskip("safetensors.torch")
    torch = pytest.importorskip("torch")
    data = datasets.load_digits()
    path = tmp_path_factory.mktemp("digits") / "digits.safetensors"
    images = torch.tensor(data.images, dtype=torch.float32).div(16).unsqueeze(1).contiguous()
    safetensors.save_file({"images": images, "labels": torch.tensor(data.target)}, str(path))
    return path
