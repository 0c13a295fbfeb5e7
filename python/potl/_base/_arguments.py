# SPDX-License-Identifier: Apache-2.0
"""The command line of the task's module: what follows "--" on potl's."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence

# Empty unless a command line of potl is being run: a script's arguments are its own affair.
module_arguments: tuple[str, ...] = ()


def split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Potl's words, and the module's."""
    at = list(words).index("--") if "--" in words else len(words)
    return list(words[:at]), list(words[at + 1 :])


@contextlib.contextmanager
def in_place_of_ours(words: Sequence[str]) -> Iterator[None]:
    """A module that reads `sys.argv` when it is imported, here or in a worker, finds its own."""
    global module_arguments
    before = sys.argv, module_arguments
    sys.argv, module_arguments = [sys.argv[0], *words], tuple(words)
    try:
        yield
    finally:
        sys.argv, module_arguments = before
