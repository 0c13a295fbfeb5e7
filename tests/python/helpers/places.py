# SPDX-License-Identifier: Apache-2.0
"""Where the tests find this repository, and what they share."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

HELPERS = Path(__file__).resolve().parent
"""On sys.path of the tests; on PYTHONPATH of the processes that need it."""
ROOT = HELPERS.parents[2]


def script(name: str, folder: str = "scripts") -> ModuleType:
    """A program of this repository as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / folder / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
