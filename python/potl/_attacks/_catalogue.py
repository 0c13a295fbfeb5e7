# SPDX-License-Identifier: Apache-2.0
"""All attacks: importing a module of theirs registers them."""

from __future__ import annotations

from . import (  # noqa: F401
    _artefact,
    _evidence,
    _history,
    _injection,
    _interpolation,
    _noise,
    _parking,
    _poison,
    _pool,
    _recipe,
    _rounding,
    _steering,
    _surgery,
)
from ._scene import Attack, registered


def catalogue() -> list[Attack]:
    """All attacks, in the order of their ids."""

    def order(item: Attack) -> tuple[int, str]:
        return int(item.id[1:]), item.name

    return sorted(registered.values(), key=order)
