# SPDX-License-Identifier: Apache-2.0
"""A NaN at one place of states: its bits are the processor's, so that whoever does not come to a
state again on another machine has not lied.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch

from .. import _core
from .._base._errors import MalformedError
from .._task._values import DTYPE_OF, tensor_of
from ._answers import record_from_json, record_to_json, state_from_json, state_to_json
from ._encoding import TensorOutline, leaves
from ._outline import StateOutline
from ._recompute import CHUNK, nan_of, nbytes_of


def shown_nan(states: Sequence[_core.State]) -> dict[str, object] | None:
    """A place at which each of these states holds a NaN, opened; None where there is none."""
    held = [
        {path: one for path, one in leaves(state.tree()) if isinstance(one, _core.TensorView)}
        for state in states
    ]
    for path, first in held[0].items():
        views = [one[path] for one in held if path in one]
        if len(views) < len(states) or any(one.shape != first.shape for one in views):
            continue
        nan = reduce(torch.logical_and, [nan_of(tensor_of(one).reshape(-1)) for one in views])
        if bool(nan.any()):
            chunk = int(nan.int().argmax()) // (CHUNK // DTYPE_OF[first.dtype].itemsize)
            shown = zip(states, views, strict=True)
            return {"path": path, "states": [_opened(*one, chunk) for one in shown]}
    return None


def _opened(state: _core.State, view: _core.TensorView, chunk: int) -> dict[str, object]:
    content = bytes(view.data)
    data = content[chunk * CHUNK : (chunk + 1) * CHUNK]
    opened = record_to_json(data, chunk, _core.open_chunk(content, chunk))
    return {**state_to_json(StateOutline.of(state)), **opened}


def shows_nan(given: Any, digests: Sequence[bytes]) -> bool:
    """Whether an answer shows that the states with these digests hold a NaN at one place.

    Raises:
        MalformedError: It is no such answer.
        MismatchError: It is about other states, or something else stands there.
    """
    try:
        shown = zip(given["states"], digests, strict=True)
        (first, one), *others = (_nan_in(state, given["path"], digest) for state, digest in shown)
        same = [nan for chunk, nan in others if chunk == first and nan.shape == one.shape]
        return len(same) == len(others) and bool(reduce(torch.logical_and, same, one).any())
    except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
        raise MalformedError("an answer shows no NaN") from error


def _nan_in(given: dict[str, object], path: str, digest: bytes) -> tuple[int, torch.Tensor]:
    """A chunk of a tensor of the state with this digest, and which of its elements are NaN."""
    form = state_from_json(given, digest).tensors()[path]
    if not isinstance(form, TensorOutline) or form.root is None:
        raise MalformedError("an answer shows a tensor without elements of its own")
    content, chunk, proof = record_from_json(given)
    _core.verify_chunk(form.root, nbytes_of(form), chunk, content, proof)
    return chunk, nan_of(torch.frombuffer(bytearray(content), dtype=DTYPE_OF[form.dtype]))
