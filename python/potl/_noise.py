# SPDX-License-Identifier: Apache-2.0
"""Honest replays under other rounding: what the verifier's own noise is measured with."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from . import _core
from ._errors import UsageError
from ._task import batch_length, select_samples

KINDS = ("threads", "order", "jitter", "replay")

# Half a unit in the last place of float32, relative: what one rounding changes.
_ROUNDING = 2.0**-23


@dataclass(frozen=True, kw_only=True)
class Noise:
    """One variation of rounding."""

    index: int
    threads: int | None = None
    order: bool = False
    jitter: bool = False

    def reorder(self, batch: Any) -> Any:
        """The batch with its samples in another order."""
        count = batch_length(batch)
        if not self.order or count < 2:
            return batch
        which = np.frombuffer(_core.permutation(self._key("order", 0), count), dtype=np.int64)
        return select_samples(batch, torch.from_numpy(which.copy()), count)

    def disturb(self, tensors: Sequence[torch.Tensor], step: int) -> None:
        """Changes each tensor by normal noise of one rounding error of its root mean square."""
        if not self.jitter:
            return
        with torch.no_grad():
            for number, tensor in enumerate(tensors):
                values = tensor.coalesce().values() if tensor.is_sparse else tensor
                if values.numel() == 0 or not values.is_floating_point():
                    continue
                scale = _ROUNDING * float(values.double().norm()) / values.numel() ** 0.5
                if not 0.0 < scale < float("inf"):
                    continue
                noise = torch.empty(values.shape, dtype=torch.float64)
                key = self._key("jitter", step, number)
                _core.fill_normal(noise.numpy(), key, 0, 0.0, scale)
                values.add_(noise.to(values.device, values.dtype))

    def _key(self, purpose: str, *indices: int) -> bytes:
        return _core.derive_key(self.index, "noise." + purpose, *indices)


def make(kind: str, index: int, *, order_free: bool) -> Noise:
    """The variation `index` of a kind of noise."""
    if kind not in KINDS:
        raise UsageError(f"no noise of kind {kind!r}", f"use one of {', '.join(KINDS)}")
    if kind == "order" and not order_free:
        raise UsageError(
            "the order of samples has a meaning in this task, or no step has run yet",
            'use "threads" or "jitter": dropout and micro-batches go by position',
        )
    everything = kind == "replay"
    return Noise(
        index=index,
        # Permuted samples vary every sum. Other thread counts vary few, and cost much on a busy
        # machine, where threads wait for each other.
        threads=_other_threads(index)
        if kind == "threads" or (everything and not order_free)
        else None,
        order=kind == "order" or (everything and order_free),
        jitter=kind == "jitter" or everything,
    )


def _other_threads(index: int) -> int:
    most = max(2, min(os.cpu_count() or 1, 8))
    others = [n for n in range(1, most + 1) if n != torch.get_num_threads()]
    return others[index % len(others)]
