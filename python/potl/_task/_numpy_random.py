# SPDX-License-Identifier: Apache-2.0
"""NumPy's global generator, exchanged instead of copied.

`np.random.get_state` and `set_state` take tens of microseconds each, which a loop with the user's
code between its steps would pay after every step. So potl puts a bit generator of its own under the
global functions and the user's back later: nobody touches the user's bits meanwhile. What the
exchange loses is the second half of a pair of normal numbers that legacy NumPy keeps beside them;
it is looked up, but for the usual case that nothing was drawn since it was known to be absent.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np
import numpy.random  # NumPy loads it late, and then seeds it itself
from numpy.random.mtrand import get_bit_generator, set_bit_generator

# Of the Mersenne Twister's state: 624 words and the position in them.
_STATE_BYTES = 625 * 4


class Kept(NamedTuple):
    """A generator that is set aside."""

    bits: Any
    gauss: float | None
    """The normal number that the next `np.random.normal` would return without drawing."""
    memory: bytes | None
    """A copy of the state, to see whether it has moved; None where that is unknown."""


def take(known: Kept | None = None) -> Kept:
    """What is in place now.

    Args:
        known: What was put in place when last it was known; makes the answer cheap if nothing has
            been drawn since.
    """
    bits = get_bit_generator()
    memory = _memory(bits)
    unmoved = known is not None and known.bits is bits and known.memory == memory is not None
    if known is not None and unmoved and known.gauss is None:
        return known
    state: Any = np.random.get_state(legacy=False)
    return Kept(bits, state["gauss"] if state["has_gauss"] else None, memory)


def put(kept: Kept) -> None:
    """Puts a generator in place as it was taken."""
    set_bit_generator(kept.bits)
    if kept.gauss is not None:
        state: Any = np.random.get_state(legacy=False)
        np.random.set_state({**state, "has_gauss": 1, "gauss": kept.gauss})


def put_own() -> Any:
    """Puts a generator of potl's in place, to be seeded, and returns it for `put_away`."""
    own = _spare.pop() if _spare else np.random.MT19937(0)
    set_bit_generator(own)
    return own


def put_away(own: Any) -> None:
    """Keeps a generator of potl's for the next `put_own`."""
    _spare.append(own)


# Making one takes as long as copying.
_spare: list[Any] = []


def _memory(bits: Any) -> bytes | None:
    if type(bits) is not np.random.MT19937:
        return None
    return ctypes.string_at(bits.ctypes.state_address, _STATE_BYTES)
