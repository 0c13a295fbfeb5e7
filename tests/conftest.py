# SPDX-License-Identifier: Apache-2.0
"""With POTL_HOOKS=1 the tests run against the build in which single rules can be switched off.

That build is `potl._core_hooks`, which only a CMake build makes (POTL_BUILD_TEST_HOOKS) and no
wheel contains. It is put in the place of `potl._core` before anything imports it. It lies beside
the package's sources, unless POTL_HOOKS_DIR names another folder. Without POTL_HOOKS the module can
be imported beside the release build, if it was built.

`--part i/n` runs every n-th of the tests that were asked for, from the i-th on: the parts of a file
that is too long for one unit of `make test-full`.
"""

import gc
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", default="1/1", metavar="i/n", help="every n-th test, from the i-th")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    number, count = map(int, config.getoption("--part").split("/"))
    if not 1 <= number <= count:
        raise pytest.UsageError(f"a part is i/n with 1 <= i <= n, not {number}/{count}")
    mine = items[number - 1 :: count]
    chosen = {id(item) for item in mine}
    config.hook.pytest_deselected(items=[item for item in items if id(item) not in chosen])
    items[:] = mine


def pytest_collection_finish() -> None:
    # What was imported stays: no collection of garbage needs to look through it after each test.
    gc.collect()
    gc.freeze()


def find_hooks() -> Path | None:
    folder = Path(os.environ.get("POTL_HOOKS_DIR", ROOT / "python/potl"))
    for suffix in EXTENSION_SUFFIXES:
        module = folder / f"_core_hooks{suffix}"
        if module.is_file():
            return module
    return None


def load_hooks() -> None:
    if "potl._core" in sys.modules:
        raise RuntimeError(
            "potl was imported before the tests' conftest: its rules cannot be replaced now"
        )
    file = find_hooks()
    if file is None:
        raise FileNotFoundError(
            "POTL_HOOKS=1, but there is no _core_hooks module: make test builds it, or CMake with "
            "-DPOTL_BUILD_TEST_HOOKS=ON"
        )
    spec = importlib.util.spec_from_file_location("potl._core_hooks", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["potl._core"] = sys.modules["potl._core_hooks"] = module
    spec.loader.exec_module(module)
    import potl

    potl._core = module


def offer_hooks() -> None:
    file = find_hooks()
    if file is not None:
        import potl

        potl.__path__.append(str(file.parent))


if os.environ.get("POTL_HOOKS") == "1":
    load_hooks()
else:
    offer_hooks()


@pytest.fixture
def set_threads() -> Iterator[Callable[[int], None]]:
    """torch.set_num_threads, until the test ends."""
    import torch

    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture(scope="session", autouse=True)
def _state(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Ledgers and keys of tests are not those of whoever runs them."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))
