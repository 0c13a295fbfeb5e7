# SPDX-License-Identifier: Apache-2.0
"""sdist -> wheel -> clean environment: what an index would serve works and is complete."""

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
VERSION = (ROOT / "VERSION").read_text().strip()


def run(*command: object, cwd: Path | None = None) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=1800,
        cwd=cwd,
        # The compiler cache goes by the compiler's name, and this is what CMake calls it.
        env={"CXX": "c++", **os.environ},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    run(sys.executable, "-m", "build", "--no-isolation", "--sdist", "-o", folder, ROOT)
    (archive,) = folder.iterdir()
    return archive


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder)
    source = folder / f"potl-{VERSION}"
    # The compiler cache knows a file when it is compiled with the flags of the checkout, and its
    # build folder, and what it includes, lie as there: the build two levels below the source, the
    # environment beside it.
    python = Path(sys.executable)
    if python.is_relative_to(ROOT):
        (source / ".venv").symlink_to(python.parents[1])
        python = source / ".venv/bin" / python.name
    run(
        *(
            python,
            "-m",
            "build",
            "--no-isolation",
            "--wheel",
            *("-C", "build-dir=build/wheel"),
            *("-C", "cmake.define.POTL_DEVELOPER_MODE=ON"),
            *("-C", "cmake.define.POTL_BUILD_TESTS=OFF"),
        ),
        *("-o", folder, source),
    )
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment that has the wheel alone."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=False)
    (packages,) = folder.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    return folder


def test_the_sdist_has_the_sources_and_nothing_that_was_built(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    for wanted in ("CMakeLists.txt", "VERSION", "LICENSE", "NOTICE", "include/potl/potl.hpp"):
        assert wanted in names
    assert "python/potl/_core.pyi" in names
    built = (".so", ".o", ".a", ".pyc")
    assert not [name for name in names if name.endswith(built) or name.startswith("build/")]


def test_the_wheel_has_the_package_its_data_and_no_hooks(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    package = ROOT / "python/potl"
    expected = {
        "potl/" + path.relative_to(package).as_posix()
        for path in package.rglob("*")
        if path.is_file() and path.suffix != ".so" and "__pycache__" not in path.parts
    }
    assert {"potl/py.typed", "potl/_core.pyi", "potl/_report/_templates/report.html.j2"} <= expected
    # The tests' environment has torch, so that the operators for it are built, and say for which.
    expected |= {"potl/_torch.version"}
    extensions = {name for name in names if name.endswith(".so")}
    modules = {name.split(".")[0] for name in extensions}
    # Kernels are for a torch that has CUDA, where there is nvcc.
    has_kernels = torch.version.cuda is not None and shutil.which("nvcc") is not None
    assert modules == {"potl/_core", "potl/_torch"} | ({"potl/_cuda"} if has_kernels else set())
    others = {name for name in names if not name.startswith(f"potl-{VERSION}.dist-info/")}
    assert others == expected | extensions


def test_the_wheel_names_its_licence_and_keeps_torch_optional(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(f"potl-{VERSION}.dist-info/METADATA").decode()
        licences = [name for name in archive.namelist() if "dist-info/licenses/" in name]
    assert f"\nVersion: {VERSION}\n" in metadata
    assert "\nLicense-Expression: Apache-2.0\n" in metadata
    assert sorted(Path(name).name for name in licences) == ["LICENSE", "NOTICE"]
    torch = [line for line in metadata.splitlines() if line.startswith("Requires-Dist: torch")]
    assert torch == ['Requires-Dist: torch>=2.11; extra == "torch"']


def test_the_installed_package_imports_without_anything_else(installed: Path) -> None:
    printed = run(
        *(installed / "bin/python", "-I", "-c"),
        "import potl, potl._core as c; print(potl.__version__, hasattr(c, 'set_rule_enabled'))",
    )
    assert printed.split() == [VERSION, "False"]


def test_the_installed_command_says_its_version(installed: Path) -> None:
    # typer, rich and jinja2 are pure Python: they are lent by the environment of the tests.
    (packages,) = installed.glob("lib/python*/site-packages")
    lent = [path for path in sys.path if path.endswith("site-packages")]
    code = f"import sys; sys.path += {lent!r}; from potl._cli._cli import main; main()"
    printed = run(installed / "bin/python", "-I", "-c", code, "--version")
    assert printed.strip() == f"potl {VERSION}"
    with (packages / f"potl-{VERSION}.dist-info/entry_points.txt").open() as entry_points:
        assert "potl=potl._cli._cli:main" in entry_points.read().replace(" ", "")


def test_the_installed_operators_load_under_the_torch_that_was_imported(installed: Path) -> None:
    lent = [path for path in sys.path if path.endswith("site-packages")]
    code = (
        f"import sys; sys.path += {lent!r}; import potl; assert 'torch' not in sys.modules\n"
        "import torch\n"
        "with potl.deterministic():\n"
        "    print((torch.ones(3, 4) @ torch.ones(4, 2)).sum().item(), potl.__file__)\n"
    )
    total, where = run(installed / "bin/python", "-I", "-c", code).split()
    assert float(total) == 24.0
    assert Path(where).is_relative_to(installed)
