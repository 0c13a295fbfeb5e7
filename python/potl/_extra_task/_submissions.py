# SPDX-License-Identifier: Apache-2.0
"""Whether a model was handed in before: by its state, and by what it answered then.

A state alone names no model: modules may hold what they answer from outside it, as wrappers of
other libraries do. So a known state counts as the same submission only with the same answers, but
for near ties and last bits, which differ between machines and sizes of batches; then the answers of
the first time are judged, so that nobody gains by trying again.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ._key import Submission
from ._values import Floats

_DEEPEST, _MOST_PARTS = 16, 1 << 20
# More answers, or submissions, than this are only known by their hash: other ones are then another
# submission, even if they differ by last bits alone.
_MOST_ANSWERS, _MOST_KEPT = 50_000, 100
# Answers that may differ: classes as a share, errors relatively.
_CLASSES, _ERRORS = 0.01, 1e-3


def digest_of(model: Any) -> str | None:
    """Names a model by its parameters, buffers and other state; None: that does not tell it from
    others, because there is none, or objects that cannot be read without running them.
    """
    hasher = _Hasher()
    try:
        state = sorted(model.state_dict().items())
        if state and all(hasher.entry(name, value) for name, value in state):
            return hasher.digest()
    except (AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError):
        pass
    return None


class _Hasher:
    """Hashes values of known types, without evaluating anything."""

    def __init__(self) -> None:
        self._hash, self._parts = hashlib.sha256(), 0

    def digest(self) -> str:
        return self._hash.hexdigest()

    def entry(self, name: str, value: Any) -> bool:
        """Whether the value of this name could be hashed."""
        import torch

        if isinstance(value, torch.Tensor) and not value.is_quantized:
            self._tensor(name, value)
            return True
        self._text(f"{name} {type(value).__name__}")
        return self._other(value, 0)

    def _text(self, text: str) -> None:
        self._hash.update(text.encode() + b"\0")

    def _tensor(self, name: str, value: Any) -> None:
        from .._base._elements import bytes_of_elements

        self._text(f"{name} {value.dtype} {tuple(value.shape)}")
        self._hash.update(bytes_of_elements(value).numpy().data)

    def _other(self, value: Any, depth: int) -> bool:
        import torch

        self._parts += 1
        if depth > _DEEPEST or self._parts > _MOST_PARTS:
            return False
        if isinstance(value, torch.Tensor):
            if not value.is_quantized:
                self._tensor("", value)
                return True
            self._text(f"{value.dtype} {value.qscheme()}")
            self._tensor("", value.int_repr())
            per_channel = "channel" in str(value.qscheme())
            for one in (
                (value.q_per_channel_scales(), value.q_per_channel_zero_points())
                if per_channel
                else (torch.tensor([value.q_scale(), value.q_zero_point()]),)
            ):
                self._tensor("", one)
            return True
        if isinstance(value, np.ndarray) and value.dtype.kind in "biufcSU":
            self._text(f"{value.dtype} {value.shape}")
            self._hash.update(np.ascontiguousarray(value).tobytes())
            return True
        if isinstance(value, (bytes, bytearray)):
            self._text(f"bytes {len(value)}")
            self._hash.update(value)
            return True
        if value is None or isinstance(
            value, (bool, int, float, str, torch.dtype, torch.device, torch.qscheme)
        ):
            text = f"{value:x}" if isinstance(value, int) else str(value)
            self._text(f"{type(value).__name__} {len(text)} {text}")
            return True
        if isinstance(value, Mapping):
            self._text(f"map {len(value)}")
            return all(self._other([key, one], depth + 1) for key, one in value.items())
        if isinstance(value, (list, tuple)):
            self._text(f"list {len(value)}")
            return all(self._other(one, depth + 1) for one in value)
        return False


def kept(answers: Floats, before: int) -> str | None:
    """Answers of a model as the file beside the key keeps them; None: they are too many."""
    if len(answers) > _MOST_ANSWERS or before >= _MOST_KEPT:
        return None
    packed = zlib.compress(np.ascontiguousarray(answers, "<f8").tobytes(), 1)
    return base64.b64encode(packed).decode()


def place_of(
    submitted: Sequence[Submission], model: str, answers: Floats, classes: int
) -> tuple[int, Floats] | None:
    """Where this model is among earlier submissions, and what it answered then; None: it is none
    of them, answers otherwise now, or what it answered was not kept.
    """
    for place, one in enumerate(submitted):
        if one.get("model") != model or not one.get("values"):
            continue
        known = np.frombuffer(zlib.decompress(base64.b64decode(one["values"])), "<f8")
        if _alike(known, answers, classes):
            return place, known
    return None


def _alike(one: Floats, other: Floats, classes: int) -> bool:
    if one.shape != other.shape:
        return False
    if classes:
        differing = int(((one != other) & ~(np.isnan(one) & np.isnan(other))).sum())
        return differing <= max(1, int(len(one) * _CLASSES))
    return np.allclose(one, other, rtol=_ERRORS, atol=1e-12, equal_nan=True)
