# SPDX-License-Identifier: Apache-2.0
"""The arithmetic that a job names, as blocks that a session puts around its steps."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .._base._errors import Problem

_log = logging.getLogger("potl")

# What `Job.create` is asked for, and never what a job says.
AUTO = "auto"
# Of AUTO: the other modes differ in float32 products only, and are slower on most processors.
EXACT = "ord32"
STOCK = "stock"


def require(name: str, *, or_auto: bool = False) -> None:
    """Checks that this installation computes in the arithmetic of that name.

    Args:
        name: Of an arithmetic.
        or_auto: Whether it may also be "auto".

    Raises:
        UsageError: No arithmetic has that name.
        UnsupportedError: This installation of potl has no reproducible operators.
    """
    if name == STOCK or (or_auto and name == AUTO):
        return
    from .. import _core  # late: the command line starts without it

    if name not in _core.MODES:
        from .._base._errors import UsageError

        known = ", ".join(
            f'"{mode}"' for mode in (*((AUTO,) if or_auto else ()), STOCK, *_core.MODES)
        )
        raise UsageError(f"arithmetic {name!r} is not known", f"use one of {known}")
    from ._library import module

    module()


def block(name: str, *, lenient: bool = False) -> contextlib.AbstractContextManager[None]:
    """Computes in the arithmetic of that name.

    Args:
        name: Of a job's arithmetic.
        lenient: Runs operators that have no form in it as torch does, instead of refusing them,
            and random ones too. For noise, which needs other roundings and not the same bits
            everywhere.

    The floating-point environment of this thread is tested at every entry, that of torch's workers
    as docs/reference/arithmetic.md says.

    Raises:
        NotReproducible: That environment is broken, or (inside) an operator is not reproducible.
    """
    if name == STOCK:
        return contextlib.nullcontext()
    from ._deterministic import deterministic

    return _lenient(name) if lenient else deterministic(name)


@contextlib.contextmanager
def outside() -> Iterator[None]:
    """Inside a block: leaves it for a while, for what computes nothing, such as communication."""
    library = sys.modules.get("potl._torch")
    if library is None:  # so that there is no block
        yield
        return
    left = library.StockBlock()
    try:
        yield
    finally:
        left.leave()


@contextlib.contextmanager
def _lenient(name: str) -> Iterator[None]:
    from ._deterministic import deterministic
    from ._library import module

    with deterministic(name):
        before = module().let_through(True)
        try:
            yield
        finally:
            module().let_through(before)


def missing() -> list[Problem]:
    """Why this installation computes in no reproducible arithmetic; empty when it does.

    Raises:
        NotReproducible: The floating-point environment is broken, which no arithmetic survives.
    """
    from .._base._errors import Problem, UnsupportedError

    try:
        require(EXACT)
    except UnsupportedError as error:
        return [
            Problem(
                what=error.message,
                where="this installation of potl",
                remedy=error.remedy,
                prevents="exact",
            )
        ]
    with block(EXACT):
        return []


# What a job in stock arithmetic cannot have.
LOST = (
    "In stock arithmetic a replay on another machine ends in other bits. It is compared within a "
    "tolerance: a cheat below it is not seen, an honest run beyond it may end inconclusive, every "
    "state has to be stored, and a difference does not name its first step and operator."
)
_said: set[str] = set()


def explain_stock(obstacles: Sequence[Problem]) -> None:
    """Says what a job in stock arithmetic cannot prove, and why it is one: once for each reason."""
    if obstacles:
        why = f"{'; '.join(map(str, obstacles))}. This job is in stock arithmetic. {LOST}"
    else:
        why = f'arithmetic="stock". {LOST} arithmetic="auto" avoids it where that is possible.'
    if why not in _said:
        _said.add(why)
        _log.warning("%s", why)
