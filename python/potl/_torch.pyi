# SPDX-License-Identifier: Apache-2.0
"""Reproducible operators for torch, in C++ (python/bindings_torch).

Load it by `_deterministic.module()`, which checks that it was built against the installed torch.
"""

from collections.abc import Sequence

from torch import Tensor

from ._core import RoundingSession as RoundingSession

def set_error_classes(not_reproducible: type[Exception], usage: type[Exception]) -> None: ...
def use_device(device: str, kernels: object | None) -> None:
    """Has tensors of a kind of device computed by the kernels that `potl._cuda.kernels()` hands
    over, in all threads, from now on; None: no longer.
    """

def knows_device(device: str) -> bool:
    """Whether there are kernels for this kind of device."""

def operators() -> list[tuple[str, str, str]]:
    """Every operator of the table: name, how it runs (exact, kernel, composed or refused), note."""

def is_on() -> bool:
    """Whether this thread computes under a mode now."""

def exact_pow(x: float, y: float, /) -> float:
    """The same bits everywhere; within an ulp."""

def exact_cos(x: float, /) -> float:
    """The same bits everywhere; within an ulp."""

def places_of(tensors: list[Tensor], numbers: Sequence[int], /) -> tuple[int, int]:
    """How many nodes of the graphs of these tensors, and of the nodes of this thread with these
    numbers, were made inside of blocks, and how many outside.
    """

def content_root(tensor: Tensor) -> bytes:
    """The content root of a dense tensor's elements, in the order of their indices, hashed by
    torch's threads; releases the GIL.
    """

def content_roots_there(device: str, places: list[tuple[int, int]]) -> list[bytes]:
    """Content roots of memory of a device that has kernels, hashed there: addresses and sizes."""

def install_rounding(session: RoundingSession | None) -> RoundingSession | None:
    """The session that products of this thread feed in log64; returns the one before. The class is
    this module's own, with no `multiply`.
    """

def let_through(on: bool) -> bool:
    """Whether what a mode refuses is let through in this thread: operators, and tensors that are
    not dense. Returns what was so before.
    """

def lets_through() -> bool:
    """What `let_through` was told."""

class Block:
    """Puts this thread under a mode until `leave`. `bits` is for log64."""

    def __init__(self, mode: str, bits: int = 32) -> None: ...
    def leave(self) -> None: ...

class StockBlock:
    """Gives this thread torch's own arithmetic back until `leave`."""

    def leave(self) -> None: ...

class ForeignBlock:
    """What another thread's block started in this thread: until `leave`, what is not the same in
    every thread is refused.
    """

    def leave(self) -> None: ...
