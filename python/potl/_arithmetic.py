# SPDX-License-Identifier: Apache-2.0
"""The arithmetic that a job names, as blocks that a session puts around its steps."""

from __future__ import annotations

import contextlib

STOCK = "stock"
MODES = ("ord32", "cr32", "log64", "xint24", "xint16")


def require(name: str) -> None:
    """Checks that this installation computes in the arithmetic of that name.

    Raises:
        UsageError: No arithmetic has that name.
        UnsupportedError: This installation of potl has no reproducible operators.
    """
    if name == STOCK:
        return
    if name not in MODES:
        from ._errors import UsageError  # late: the command line starts without potl._core

        known = ", ".join(f'"{mode}"' for mode in (STOCK, *MODES))
        raise UsageError(f"arithmetic {name!r} is not known", f"use one of {known}")
    from ._deterministic import module

    module()


def block(name: str) -> contextlib.AbstractContextManager[None]:
    """Computes in the arithmetic of that name.

    The floating-point environment of this thread and of torch's workers is tested at every entry.

    Raises:
        NotReproducible: That environment is broken, or (inside) an operator is not reproducible.
    """
    if name == STOCK:
        return contextlib.nullcontext()
    from ._deterministic import deterministic

    return deterministic(name)
