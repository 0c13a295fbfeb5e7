# SPDX-License-Identifier: Apache-2.0
"""A NaN that a step makes, and that is still there at the end: its bits are the processor's, so
that whoever does not come to a state again on another machine has not lied.
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


def shown_nan(before: _core.State, states: Sequence[_core.State]) -> dict[str, object] | None:
    """A place at which each of these states holds a NaN, and the first one not that of the state
    before it, opened; None where there is none.
    """
    was, *held = [
        {path: one for path, one in leaves(state.tree()) if isinstance(one, _core.TensorView)}
        for state in (before, *states)
    ]
    for path, first in held[0].items():
        views = [one[path] for one in held if path in one]
        if len(views) < len(states) or any(one.shape != first.shape for one in views):
            continue
        nan = reduce(torch.logical_and, [nan_of(tensor_of(one).reshape(-1)) for one in views])
        old = was.get(path)
        if old is not None and (old.dtype, old.shape) == (first.dtype, first.shape):
            nan &= _changed(tensor_of(old), tensor_of(first))
        else:
            old = None
        if bool(nan.any()):
            chunk = int(nan.int().argmax()) // (CHUNK // DTYPE_OF[first.dtype].itemsize)
            shown = zip(states, views, strict=True)
            return {
                "path": path,
                "before": None if old is None else _opened(old, chunk),
                "states": [
                    {**state_to_json(StateOutline.of(state)), **_opened(view, chunk)}
                    for state, view in shown
                ],
            }
    return None


def _opened(view: _core.TensorView, chunk: int) -> dict[str, object]:
    content = bytes(view.data)
    data = content[chunk * CHUNK : (chunk + 1) * CHUNK]
    return record_to_json(data, chunk, _core.open_chunk(content, chunk))


def _changed(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Which elements have other bits."""
    bits = [tensor.reshape(-1).view(torch.uint8) for tensor in (one, other)]
    return (bits[0] != bits[1]).reshape(-1, one.itemsize).any(1)


def shows_nan(given: Any, before: StateOutline, digests: Sequence[bytes]) -> bool:
    """Whether an answer shows that the states with these digests hold a NaN at one place, the first
    one not that of the state before it.

    Raises:
        MalformedError: It is no such answer.
        MismatchError: It is about other states, or something else stands there.
    """
    try:
        path = given["path"]
        forms = [
            state_from_json(state, digest).tensors()[path]
            for state, digest in zip(given["states"], digests, strict=True)
        ]
        shown = [_chunk_of(*one) for one in zip(forms, given["states"], strict=True)]
        (place, end), old = shown[0], before.tensors().get(path)
        if any(chunk != place or one.shape != end.shape for chunk, one in shown):
            return False
        nan = reduce(torch.logical_and, [nan_of(one) for _, one in shown])
        if _form(old) == _form(forms[0]):  # else the tensor is new
            chunk, was = _chunk_of(old, given["before"])
            if chunk != place:
                return False
            nan &= _changed(was, end)
        return bool(nan.any())
    except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
        raise MalformedError("an answer shows no NaN") from error


def _form(one: object) -> tuple[object, ...] | None:
    return (one.dtype, one.shape) if isinstance(one, TensorOutline) else None


def _chunk_of(form: object, given: object) -> tuple[int, torch.Tensor]:
    """A chunk of a tensor of this form, and its elements."""
    if not isinstance(form, TensorOutline) or form.root is None:
        raise MalformedError("an answer shows a tensor without elements of its own")
    content, chunk, proof = record_from_json(given)
    _core.verify_chunk(form.root, nbytes_of(form), chunk, content, proof)
    return chunk, torch.frombuffer(bytearray(content), dtype=DTYPE_OF[form.dtype])
