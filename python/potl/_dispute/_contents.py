# SPDX-License-Identifier: Apache-2.0
"""Executes a step and keeps the bytes of a few tensors: what a party of a dispute has to show."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from .._base._elements import bytes_of_elements
from .._job._steps import as_number
from ._encoding import Reference, TensorOutline
from ._outline import StateOutline
from ._tracer import Look, Memory
from ._values import _ValueTracer, batch_tensors, state_tensors, traced_step

if TYPE_CHECKING:
    from .._arithmetic._rounded_steps import Rounding
    from .._job._session import Session


def contents_of(
    session: Session, step: int, wanted: Collection[str], *, rounding: Rounding | None = None
) -> dict[str, bytes]:
    """The bytes of tensors by their references, in logical (row-major) order.

    Args:
        session: Its state is the one before the step, and afterwards the one after it.
        step: 1-based.
        wanted: "operator/12/0", "state/...", "batch/0" or "constant/...".
        rounding: Follows the step's rounding log (log64).
    """
    batch = session._batches.on_device(step, session.sample_ids(step))
    before = StateOutline.of(session.capture())
    named = [*state_tensors(session, before), *batch_tensors(batch)]
    found = {path: _bytes(tensor) for path, tensor, _ in named if path in wanted}
    tracer = _Keeper(named, wanted)
    traced_step(session, step, batch, tracer, as_number, rounding)
    return found | tracer.kept


class _Keeper(_ValueTracer):  # type: ignore[no-untyped-call]
    def __init__(self, named: Any, wanted: Collection[str]) -> None:
        super().__init__(named)
        self._wanted = wanted
        self.kept: dict[str, bytes] = {}

    def _result(self, tensor: torch.Tensor, reference: Reference, *, unset: bool) -> TensorOutline:
        if reference.path in self._wanted:
            self.kept[reference.path] = _bytes(tensor)
        return super()._result(tensor, reference, unset=unset)

    def constant(self, tensor: torch.Tensor, look: Look, memory: Memory) -> bytes:
        root = super().constant(tensor, look, memory)
        if f"constant/{root.hex()}" in self._wanted:
            self.kept[f"constant/{root.hex()}"] = _bytes(tensor)
        return root


def _bytes(tensor: torch.Tensor) -> bytes:
    with _disable_current_modes():
        return bytes(bytes_of_elements(tensor).numpy())
