# SPDX-License-Identifier: Apache-2.0
"""Convolutions as torch computes them on a GPU unless it is told otherwise: of TF32 operands.

A worker with such a device is honest, and nothing that a processor does is as coarse. So who wants
to accuse looks at these as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ._gradients import Gradients

if TYPE_CHECKING:
    from .._job._job import Job

aten = torch.ops.aten

_CONVOLUTIONS = (aten.convolution.default, aten.convolution_backward.default)
_SETTING = "torch.backends.cudnn.conv.fp32_precision"
_LAST_WAY = 3  # of those that a check tries before it accuses


class CoarseGradients:
    """What a check asks: another's gradients, the last way to compute them with coarse
    convolutions.

    Args:
        plain: Computes them.
    """

    def __init__(self, plain: Gradients) -> None:
        self._plain = plain
        self.steps = plain.steps
        self.tensors = plain.tensors
        self.weights_bytes = plain.weights_bytes

    def gradient(self, step: int, weights: memoryview, way: int, out: memoryview) -> float:
        """As `Gradients.gradient`."""
        if way != _LAST_WAY:
            return self._plain.gradient(step, weights, way, out)
        with _Convolutions():  # type: ignore[no-untyped-call]
            return self._plain.gradient(step, weights, way, out)


def may_be_coarse(job: Job) -> bool:
    """Whether a worker of this job may compute so: its GPU has torch's own setting, which is TF32,
    where the job does not fix another.
    """
    agreed = job.core.fields()["task"].get("settings")
    of_gpu = agreed.get("cuda") if isinstance(agreed, Mapping) else None
    return not isinstance(of_gpu, Mapping) or of_gpu.get(_SETTING) != "ieee"


class _Convolutions(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __torch_dispatch__(
        self, func: Any, _: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func in _CONVOLUTIONS:
            args = tuple(map(_rounded, args))
        return func(*args, **(kwargs or {}))


def _rounded(value: Any) -> Any:
    """A float32 tensor of 11 significant bits; other arguments as they are."""
    if not isinstance(value, torch.Tensor) or value.dtype is not torch.float32:
        return value
    bits = value.view(torch.int32)
    return bits.add(0x1000).bitwise_and(-0x2000).view(torch.float32)
