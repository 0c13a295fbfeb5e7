# SPDX-License-Identifier: Apache-2.0
"""The compiled operators, `potl._torch`."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path
from types import ModuleType

import torch

from .._base._errors import NotReproducible, UnsupportedError, UsageError

_REINSTALL = (
    "build potl again, from its checkout: "
    "pip install --no-build-isolation --no-cache-dir --force-reinstall --no-deps ."
)


def _folder() -> Path:
    """Where the compiled operators are: in an editable installation not beside the sources."""
    found = importlib.util.find_spec("potl._torch")
    if found is None or found.origin is None:
        raise FileNotFoundError("potl._torch")
    return Path(found.origin).parent


@functools.cache
def module() -> ModuleType:
    """`potl._torch`, once it is known to fit the torch that is installed.

    Raises:
        UnsupportedError: potl was built without torch, or against another minor version of it,
            whose classes may be laid out otherwise.
    """
    try:
        built = (_folder() / "_torch.version").read_text().strip()
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
        loaded = importlib.import_module("potl._torch")
    except ImportError as why:
        raise UnsupportedError(
            f"potl's operators, built against torch {built}, do not load: {why}", _REINSTALL
        ) from why
    loaded.set_error_classes(NotReproducible, UsageError)
    if torch.version.cuda is not None and importlib.util.find_spec("potl._cuda") is not None:
        loaded.use_device("cuda", importlib.import_module("potl._cuda").kernels())
    return loaded
