# SPDX-License-Identifier: Apache-2.0
"""How the user's data code is called, by whichever process: with randomness that is a function of
the job, and with one thread.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from . import _random


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Limits torch to one thread of this process; the others stay where they are."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def reading() -> Iterator[None]:
    """A scope of potl's randomness in which torch has one thread, as the workers of a DataLoader.

    Sums and products that are shared among several threads have other bits. Costs a microsecond.

    Raises:
        UsageError: Another thread is in a scope.
    """
    with _random.scope(), one_thread():
        yield
