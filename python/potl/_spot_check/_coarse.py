# SPDX-License-Identifier: Apache-2.0
"""Convolutions and recurrent nets as torch computes them on a GPU unless it is told otherwise: of
TF32 operands.

A worker with such a device is honest, and nothing that a processor does is as coarse. So who wants
to accuse looks at these as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .. import _core
from ._gradients import Gradients

if TYPE_CHECKING:
    from .._job._job import Job

aten = torch.ops.aten

_CONVOLUTIONS = (aten.convolution.default, aten.convolution_backward.default)
# What recurrent nets are made of on a processor. Which of them are theirs is not seen.
_RECURRENT = (
    aten.mm.default,
    aten.addmm.default,
    aten.mkldnn_rnn_layer.default,
    aten.mkldnn_rnn_layer_backward.default,
)
_CUDNN = "torch.backends.cudnn.{}.fp32_precision"


class CoarseGradients:
    """What a check asks: another's gradients, the last way to compute them with coarse operators
    where a worker of the job may have them.

    Args:
        plain: Computes them.
        job: Of which they are.
    """

    def __init__(self, plain: Gradients, job: Job) -> None:
        self._plain = plain
        self._coarse = coarse_operators(job, plain.session.task.model)
        self.steps = plain.steps
        self.tensors = plain.tensors
        self.weights_bytes = plain.weights_bytes

    def gradient(self, step: int, weights: memoryview, way: int, out: memoryview) -> float:
        """As `Gradients.gradient`."""
        if way != _core.SPOT_CHECK_WAYS or not self._coarse:
            return self._plain.gradient(step, weights, way, out)
        with _Rounding(self._coarse):
            return self._plain.gradient(step, weights, way, out)


def coarse_operators(job: Job, model: torch.nn.Module) -> tuple[Any, ...]:
    """What a worker of this job may compute so: its GPU has torch's own settings, which are TF32,
    where the job does not fix others.
    """
    agreed = job.core.fields()["task"].get("settings")
    of_gpu = agreed.get("cuda") if isinstance(agreed, Mapping) else None
    fixed = of_gpu if isinstance(of_gpu, Mapping) else {}
    has_cells = any(isinstance(one, torch.nn.RNNBase) for one in model.modules())
    found: tuple[Any, ...] = ()
    if fixed.get(_CUDNN.format("conv")) != "ieee":
        found += _CONVOLUTIONS
    if has_cells and fixed.get(_CUDNN.format("rnn")) != "ieee":
        found += _RECURRENT
    return found


class _Rounding(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, operators: tuple[Any, ...]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._operators = operators

    def __torch_dispatch__(
        self, func: Any, _: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func in self._operators:
            args = tuple(map(_rounded, args))
        return func(*args, **(kwargs or {}))


def _rounded(value: Any) -> Any:
    """A float32 tensor of 11 significant bits; other arguments as they are."""
    if not isinstance(value, torch.Tensor) or value.dtype is not torch.float32:
        return value
    bits = value.view(torch.int32)
    return bits.add(0x1000).bitwise_and(-0x2000).view(torch.float32)
