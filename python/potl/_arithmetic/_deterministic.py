# SPDX-License-Identifier: Apache-2.0
"""Arithmetic whose every bit is a function of its operands: `deterministic`.

Operators are replaced in C++ (src/libtorch/arithmetic), in this thread alone, and only inside the
block; what Python does between operators is looked after by `_block_patches`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .._base._errors import NotReproducible, UsageError
from ._block_patches import patches
from ._library import module

if TYPE_CHECKING:
    from ._rounding import RoundingAuditor, RoundingTrainer

# What kernels for dense tensors say of others, which a block keeps from kernels of their own.
_NOT_DENSE = re.compile(
    "unsupported tensor layout"
    "|Cannot access (storage|data pointer) of (Sparse|Opaque)"
    "|(Sparse|Opaque|Nested)[A-Za-z]*TensorImpl"
)


def refusal_of(error: RuntimeError) -> NotReproducible | None:
    """What a kernel for dense tensors says of another one, as the refusal that it is."""
    said = str(error).partition("\n")[0]
    if not _NOT_DENSE.search(said):
        return None
    return NotReproducible(
        f"an operator has a tensor that is not dense ({said})",
        "use dense tensors: call to_dense(), or to_padded_tensor(), before the block",
    )


@contextlib.contextmanager
def deterministic(
    mode: str = "ord32",
    *,
    bits: int | None = None,
    log: RoundingTrainer | RoundingAuditor | None = None,
) -> Iterator[None]:
    """Inside the block torch computes the same bits on every machine.

    Stock modules, autograd and optimizers run unchanged on reproducible operators: forward pass,
    backward pass and update belong into one block. Operators without a reproducible form raise, and
    the error names the remedy. docs/reference/arithmetic.md explains the modes;
    docs/reference/operators.md lists the operators.

    The block belongs to the thread that enters it. Blocks nest, in the same mode. Data loaders run
    outside it, even if they are used inside; `torch.compile`d callables run as eager code, with a
    warning.

    Args:
        mode: "ord32", "cr32", "xint24", "xint16", or "log64".
        bits: For log64: what products are rounded to, 23 to 32; by default those of `log`, else 32.
        log: For log64: the side that logs or follows the directions of roundings near a tie, in a
            step that it has begun. Without it results are those of the default
            order of summation, and no other device is promised the same.

    Raises:
        NotReproducible: At entry, or inside at an operator that uses torch's workers, if the
            floating-point environment of this thread or of a worker is not that of IEEE 754.
            Inside, at an operator that is not reproducible, in another thread, and at a backward
            pass of a graph that was computed outside. Outside, at a backward pass of a graph that
            was computed inside.
        UsageError: There is no such mode, or this thread computes in another one; `bits` are not
            those of `log`, or its step has not begun.
        UnsupportedError: This installation has no reproducible operators.

    >>> import potl, torch
    >>> a, b = torch.ones(3, 1000), torch.full((1000, 2), 0.1)
    >>> with potl.deterministic("ord32"):
    ...     (a @ b)[0, 0].item().hex()
    '0x1.8fffc20000000p+6'
    """
    if mode != "log64" and (bits not in (None, 32) or log is not None):
        raise UsageError(f"bits and log belong to log64, not to {mode}", 'use mode="log64"')
    if log is not None and bits not in (None, log.bits):
        raise UsageError(f"the log is one of {log.bits} bits, not of {bits}", "leave out bits")
    if log is not None and not log.is_open:
        raise UsageError("the log has no open step", "call its begin_step before the block")
    before = None if log is None else module().install_rounding(log.session)
    try:
        block = module().Block(mode, log.bits if log is not None else 32 if bits is None else bits)
        try:
            with patches:
                yield
        except RuntimeError as why:
            refusal = refusal_of(why)
            if refusal is not None:
                raise refusal from why
            raise
        finally:
            block.leave()
    finally:
        if log is not None:
            module().install_rounding(before)
