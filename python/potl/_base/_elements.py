# SPDX-License-Identifier: Apache-2.0
"""The bytes of a tensor's elements."""

from __future__ import annotations

import torch


def bytes_of_elements(tensor: torch.Tensor) -> torch.Tensor:
    """In row-major order, on the CPU, as uint8; no copy where they lie so."""
    plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    # One element may have any stride, and be contiguous, but only stride 1 is viewed as bytes.
    return plain.as_strided((plain.numel(),), (1,)).view(torch.uint8)
