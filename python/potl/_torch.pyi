# SPDX-License-Identifier: Apache-2.0
"""Reproducible operators for torch, in C++ (python/bindings_torch).

Load it by `_deterministic.module()`, which checks that it was built against the installed torch.
"""

def set_error_class(error: type[Exception]) -> None: ...
def operators() -> list[tuple[str, str, str]]:
    """Every operator of the table: name, how it runs (exact, kernel, composed or refused), note."""

def is_on() -> bool:
    """Whether this thread computes under a mode now."""

class Block:
    """Puts this thread under a mode until `leave`."""

    def __init__(self, mode: str) -> None: ...
    def leave(self) -> None: ...

class StockBlock:
    """Gives this thread torch's own arithmetic back until `leave`."""

    def __init__(self) -> None: ...
    def leave(self) -> None: ...
