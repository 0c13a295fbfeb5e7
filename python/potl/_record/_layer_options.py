# SPDX-License-Identifier: Apache-2.0
"""Options of layers, such as the `p` of a dropout, that a step leaves changed."""

from __future__ import annotations

import logging

from torch import nn

from .._job._recipe import layers_of

_log = logging.getLogger("potl")


class LayerOptions:
    """Warns once of what no state holds, so that a replay begins with what `build` makes.

    Args:
        model: As built.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._built = layers_of(model)
        self._told = False

    def see(self, step: int) -> None:
        """Looks at the model behind a step from whose state a replay may begin."""
        if self._told:
            return
        now = layers_of(self._model)
        changed = [name for name, values in self._built.items() if now.get(name) != values]
        if not changed:
            return
        self._told = True
        _log.warning(
            "%s of the model is another after step %d than build() makes it, and no state holds "
            "it: a replay that begins there has that of build(), and rejects the run unless every "
            "step sets it anew, as by a count in a buffer",
            changed[0],
            step,
        )
