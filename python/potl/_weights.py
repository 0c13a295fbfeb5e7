# SPDX-License-Identifier: Apache-2.0
"""Initial weights from a file: fine-tuning and adapters."""

from __future__ import annotations

import os

import torch
from torch import nn

from ._capture import modules_of
from ._errors import MismatchError, UsageError
from ._values import DTYPES


def load_weights(model: nn.Module, path: str | os.PathLike[str]) -> None:
    """Copies every tensor of a safetensors file into the model's parameter or buffer of that name.

    What the file does not name keeps its own initial value (adapters). Nothing is cast.

    Raises:
        UsageError: The file names nothing of the model, or something that the model does not have.
        MismatchError: A dtype or shape differs.
    """
    from safetensors.torch import load_file

    live = {}
    for prefix, module in modules_of(model):
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is not None:
                live[prefix + name] = tensor
    tensors = load_file(os.fspath(path))
    unknown = sorted(set(tensors) - set(live))
    if unknown or not tensors:
        raise UsageError(
            f"init={os.fspath(path)!r} holds {unknown[0]!r}, which the model does not have"
            if unknown
            else f"init={os.fspath(path)!r} holds no tensors",
            "name tensors as model.state_dict() does",
        )
    with torch.no_grad():
        for name, tensor in tensors.items():
            own = live[name]
            if own.dtype != tensor.dtype or own.shape != tensor.shape:
                raise MismatchError(
                    f"init: {name} is {DTYPES.get(tensor.dtype)}{list(tensor.shape)} in the file, "
                    f"{DTYPES.get(own.dtype)}{list(own.shape)} in the model"
                )
            own.copy_(tensor)
