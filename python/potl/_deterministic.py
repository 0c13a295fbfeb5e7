# SPDX-License-Identifier: Apache-2.0
"""Arithmetic whose every bit is a function of its operands: `deterministic`.

Operators are replaced in C++ (src/libtorch/arithmetic), in this thread alone, and only inside the
block.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import torch

from ._errors import NotReproducible, UnsupportedError

_REINSTALL = (
    "build potl again, from its checkout: "
    "pip install --no-build-isolation --no-cache-dir --force-reinstall --no-deps ."
)


@functools.cache
def module() -> ModuleType:
    """`potl._torch`, once it is known to fit the torch that is installed.

    Raises:
        UnsupportedError: potl was built without torch, or against another minor version of it,
            whose classes may be laid out otherwise.
    """
    try:
        built = (Path(__file__).parent / "_torch.version").read_text().strip()
    except OSError:
        raise UnsupportedError(
            "potl was built where there was no torch: it has no reproducible operators", _REINSTALL
        ) from None
    installed = torch.__version__.split("+")[0]
    if built.split(".")[:2] != installed.split(".")[:2]:
        raise UnsupportedError(
            f"potl's operators were built against torch {built}, torch {installed} is installed",
            _REINSTALL,
        )
    try:
        loaded = importlib.import_module("._torch", __package__)
    except ImportError as why:
        raise UnsupportedError(
            f"potl's operators, built against torch {built}, do not load: {why}", _REINSTALL
        ) from why
    loaded.set_error_class(NotReproducible)
    return loaded


@contextlib.contextmanager
def deterministic(mode: str = "ord32") -> Iterator[None]:
    """Inside the block every operator of torch is reproducible: the same bits on every machine."""
    block = module().Block(mode)
    try:
        yield
    finally:
        block.leave()
