# SPDX-License-Identifier: Apache-2.0
"""Content roots of many tensors, one after another."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from .. import _core
from .._arithmetic import _library
from .._base._elements import bytes_of_elements
from .._base._errors import UnsupportedError


@functools.cache
def _of_tensor() -> Callable[[torch.Tensor], bytes]:
    # To start threads for a tensor takes longer than to hash it; torch's are there already.
    try:
        return _library.module().content_root  # type: ignore[no-any-return]
    except UnsupportedError:  # no operators for this torch: steps are traced in stock arithmetic
        return _of_copy


def _of_copy(tensor: torch.Tensor) -> bytes:
    return _core.content_root(bytes_of_elements(tensor).numpy())


def root_of_tensor(tensor: torch.Tensor) -> bytes:
    """The content root of a tensor's elements, in the order of their indices."""
    return _of_tensor()(tensor)
