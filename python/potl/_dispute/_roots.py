# SPDX-License-Identifier: Apache-2.0
"""Content roots of many tensors, one after another."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from .. import _core
from .._arithmetic import _library
from .._base._errors import UnsupportedError


@functools.cache
def _in_torch_s_threads() -> Callable[[Any], bytes]:
    # To start threads for a tensor takes longer than to hash it; torch's are there already.
    try:
        return _library.module().content_root  # type: ignore[no-any-return]
    except UnsupportedError:  # no operators for this torch: steps are traced in stock arithmetic
        return _core.content_root


def root_of(data: Any) -> bytes:
    """The content root of a buffer."""
    return _in_torch_s_threads()(data)


def root_of_tensor(tensor: torch.Tensor) -> bytes:
    """The content root of a tensor that has elements."""
    plain = tensor.detach()
    if plain.is_conj() or plain.is_neg():
        plain = plain.resolve_conj().resolve_neg()
    return root_of(plain.cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
