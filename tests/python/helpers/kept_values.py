# SPDX-License-Identifier: Apache-2.0
"""A traced step with the values of all that it read and made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import traced_nets

import potl
from potl._dispute import _values
from potl._dispute._encoding import TensorOutline
from potl._dispute._operators import ValueTrace

Values = dict[str, bytes]


def content(tensor: torch.Tensor) -> bytes:
    flat = tensor.detach().contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).numpy()) if flat.numel() else b""


class Keeping(_values._ValueTracer):
    """Keeps all values, where a party keeps roots alone and executes again."""

    values: Values

    def present(self, tensor: torch.Tensor, operator: str) -> Any:
        found = super().present(tensor, operator)
        path = found.reference.path
        if path not in self.values and not path.startswith("operator/"):
            self.values[path] = content(tensor)
        return found

    def _result(self, tensor: torch.Tensor, reference: Any, *, unset: bool) -> TensorOutline:
        self.values[reference.path] = content(tensor)
        return super()._result(tensor, reference, unset=unset)


def executed(
    build: Callable[[], potl.Task], step: int, arithmetic: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[ValueTrace, Values]:
    Keeping.values = {}
    monkeypatch.setattr(_values, "_ValueTracer", Keeping)
    return traced_nets.traced(build, step, arithmetic), Keeping.values
