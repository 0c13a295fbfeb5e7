# SPDX-License-Identifier: Apache-2.0
"""With POTL_HOOKS=1 the tests run against the build in which single rules can be switched off.

That build is `potl._core_hooks`, which only a plain CMake build makes (POTL_BUILD_TEST_HOOKS) and
no wheel contains. It is put in the place of `potl._core` before anything imports it. POTL_HOOKS_DIR
names its folder; without it the folders of `make test` and of a plain build are searched.
"""

import importlib.util
import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def find_hooks() -> Path:
    named = os.environ.get("POTL_HOOKS_DIR")
    folders = [Path(named)] if named else [ROOT / "build/test/python", ROOT / "python/potl"]
    for folder in folders:
        for suffix in EXTENSION_SUFFIXES:
            module = folder / f"_core_hooks{suffix}"
            if module.is_file():
                return module
    raise FileNotFoundError(
        f"POTL_HOOKS=1, but no _core_hooks module in {', '.join(map(str, folders))}; "
        "make test builds it, or CMake with -DPOTL_BUILD_TEST_HOOKS=ON"
    )


def load_hooks() -> None:
    if "potl._core" in sys.modules:
        raise RuntimeError(
            "potl was imported before the tests' conftest: its rules cannot be replaced now"
        )
    spec = importlib.util.spec_from_file_location("potl._core_hooks", find_hooks())
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["potl._core"] = sys.modules["potl._core_hooks"] = module
    spec.loader.exec_module(module)
    import potl

    potl._core = module


if os.environ.get("POTL_HOOKS") == "1":
    load_hooks()
