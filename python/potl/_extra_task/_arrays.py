# SPDX-License-Identifier: Apache-2.0
"""Arrays in .npz and .safetensors, through NumPy and safetensors. Nothing is unpickled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._base._errors import MalformedError, UnsupportedError, UsageError
from ._data import View
from ._values import Array
from ._writing import require_new

SUFFIXES = (".npz", ".safetensors")
# What safetensors calls NumPy's types.
_NUMPYS = (
    *("F64", "F32", "F16", "C64", "BOOL"),
    *(f"{kind}{8 << n}" for kind in "IU" for n in range(4)),
)
_INPUTS = ("x_train", "x", "train_images", "images", "data", "inputs", "input_ids", "tokens")
_LABELS = ("y_train", "y", "train_labels", "labels", "targets", "label", "target")


class Arrays:
    """Arrays of inputs and labels in .npz or .safetensors."""

    def __init__(
        self, path: Path, inputs: str | None, labels: str | None, unlabelled: bool
    ) -> None:
        self._arrays = read_arrays(path)
        self._inputs = _chosen(self._arrays, inputs, _INPUTS, path, "inputs")
        self._labels = None
        if not unlabelled:
            self._labels = _chosen(self._arrays, labels, _LABELS, path, "labels")
        names = (self._inputs, *([] if self._labels is None else [self._labels]))
        if any(self._arrays[name].ndim == 0 for name in names):
            raise UsageError(f"{path}: {' and '.join(names)} hold no rows", "")
        beside = _beside(self._arrays, self._inputs, self._labels)
        if beside:
            raise UsageError(
                f"{path}: {', '.join(beside)} belong to the samples, and extra samples have none",
                "remove them before mixing",
            )

    @property
    def data(self) -> Any:
        values = self._arrays[self._inputs]
        return values if self._labels is None else (values, self._arrays[self._labels])

    def write(self, path: Path, extras: list[Any], order: Sequence[int]) -> None:
        mixed = View(self.data).mixed(extras, order)
        columns = (mixed,) if self._labels is None else mixed
        names = [self._inputs] + ([] if self._labels is None else [self._labels])
        write_arrays(path, {**self._arrays, **dict(zip(names, columns, strict=True))})


def read_arrays(path: Path) -> dict[str, Array]:
    """All arrays of a .npz or .safetensors file.

    Raises:
        MalformedError: It is damaged, or holds pickled objects.
        UsageError: It holds numbers of a type that NumPy does not have.
    """
    try:
        if path.suffix.lower() == ".safetensors":
            with _safetensors().safe_open(path, framework="np") as tensors:
                for name in tensors.keys():  # noqa: SIM118  no dict: it cannot be iterated
                    _require_numpys(path, name, tensors.get_slice(name).get_dtype())
                return {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (UnsupportedError, UsageError, FileNotFoundError):
        raise
    except Exception as error:
        raise MalformedError(f"{path} cannot be read: {error}", "") from error


def _require_numpys(path: Path, name: str, dtype: str) -> None:
    if dtype not in _NUMPYS:
        raise UsageError(
            f"{path}: {name} holds numbers of type {dtype}, which NumPy cannot read",
            "save it as float32 (tensor.float()), or class numbers as int64",
        )


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Writes .npz or .safetensors, by the suffix."""
    require_new(path)
    suffix = path.suffix.lower()
    if suffix == ".safetensors":
        _safetensors().save_file({k: np.ascontiguousarray(v) for k, v in arrays.items()}, path)
    elif suffix == ".npz":
        # Any: NumPy's options have names too, which is all that a type checker sees.
        plain: dict[str, Any] = dict(arrays)
        with path.open("xb") as file:  # by its name NumPy would add to it
            np.savez_compressed(file, **plain)
    else:
        raise UsageError(f"{path} is not a .npz or .safetensors file", "choose such a name")


def _safetensors() -> Any:
    try:
        import safetensors.numpy
    except ImportError as error:
        raise UnsupportedError(
            "the package safetensors is not installed", "pip install safetensors"
        ) from error
    return safetensors.numpy


def _beside(arrays: Mapping[str, Array], inputs: str, labels: str | None) -> list[str]:
    """Arrays with a row for each sample. Those of other splits may be as long by chance."""
    rows = len(arrays[inputs])
    return [
        name
        for name, values in arrays.items()
        if name not in (inputs, labels)
        and values.ndim > 0
        and len(values) == rows
        and not any(split in name.lower() for split in ("test", "val", "dev", "eval"))
    ]


def _chosen(
    arrays: Mapping[str, Array], given: str | None, usual: Sequence[str], path: Path, what: str
) -> str:
    if given is not None:
        if given not in arrays:
            raise UsageError(f"{path} has no {given}, only {', '.join(arrays)}", "")
        return given
    for name in usual:
        if name in arrays:
            return name
    raise UsageError(
        f"{path} holds {', '.join(arrays) or 'nothing'}, and none is the usual name of {what}",
        f"name it with --{what}",
    )
