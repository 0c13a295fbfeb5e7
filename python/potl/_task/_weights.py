# SPDX-License-Identifier: Apache-2.0
"""Initial weights from a file: fine-tuning and adapters."""

from __future__ import annotations

import os

import torch
from torch import nn

from .. import _core
from .._base._errors import MalformedError, MismatchError, UsageError
from ._capture import modules_of
from ._values import DTYPE_OF, DTYPES, tensor_of

# Names of element types in a safetensors header.
_ELEMENTS = {_core.safetensors_dtype(name): dtype for name, dtype in DTYPE_OF.items()}


def load_weights(model: nn.Module, path: str | os.PathLike[str]) -> None:
    """Copies every tensor of a file into the model's parameter or buffer of that name.

    The file is a safetensors file with the names of `model.state_dict()`, or a checkpoint of a run,
    of which the model's part is taken. What it does not name keeps its own initial value
    (adapters). Nothing is cast.

    Raises:
        UsageError: The file names nothing of the model, or something that the model does not have.
        MismatchError: A dtype or shape differs.
        MalformedError: Not a safetensors file.
    """
    name = os.fspath(path)
    live = {}
    for prefix, module in modules_of(model):
        for short, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is not None:
                live[prefix + short] = tensor
    tensors = _read(name)
    unknown = sorted(set(tensors) - set(live))
    if unknown or not tensors:
        found = f"{unknown[0]!r}, which the model does not have" if unknown else "no tensors"
        raise UsageError(f"init={name!r} holds {found}", "name tensors as model.state_dict() does")
    with torch.no_grad():
        for key, tensor in tensors.items():
            own = live[key]
            if own.dtype != tensor.dtype or own.shape != tensor.shape:
                raise MismatchError(
                    f"init: {key} is {DTYPES[tensor.dtype]}{list(tensor.shape)} in the file, "
                    f"{DTYPES.get(own.dtype, own.dtype)}{list(own.shape)} in the model",
                    "leave it out of the file, so that it keeps its own initial value, or copy in "
                    "build() what fits, without init=",
                )
            own.copy_(tensor)


def _read(path: str) -> dict[str, torch.Tensor]:
    try:
        file = _core.SafetensorsFile.open(path)
    except MalformedError as error:
        raise MalformedError(
            f"init={path!r} is no file that can be read: {error.message}",
            "pass a safetensors file; for one of torch.save leave init= out, and in build() call "
            "model.load_state_dict(torch.load(path)) and model.train()",
        ) from error
    names = file.names()
    if "potl.state" not in names:
        return {name: _tensor(*file.tensor(name)) for name in names}
    part = _core.State.load_unverified(path).tree()["model"]
    return {
        name: tensor_of(view)
        for kind in ("parameters", "buffers")
        for name, view in part[kind].items()
        if isinstance(view, _core.TensorView)
    }


def _tensor(element: str, shape: tuple[int, ...], data: memoryview) -> torch.Tensor:
    dtype = _ELEMENTS[element]
    if len(data) == 0:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(data), dtype=dtype).view(shape)
