# SPDX-License-Identifier: Apache-2.0
"""Modules of experiments/, which are no package, for tests that keep them running."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import pytest
import torch
from places import ROOT


@contextmanager
def modules(*names: str) -> Iterator[list[ModuleType]]:
    """They are imported, and compute with one thread."""
    with pytest.MonkeyPatch.context() as patch:
        for folder in ("experiments", "benchmarks"):
            patch.syspath_prepend(str(ROOT / folder))
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        yield [importlib.import_module(name) for name in names]
        torch.set_num_threads(threads)
