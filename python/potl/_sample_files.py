# SPDX-License-Identifier: Apache-2.0
"""Data sets as files, read and written without code of the user's: image folders, .npz,
.safetensors, .csv and .jsonl. Nothing is unpickled.

What is written has the layout of what was read, and random names: neither names nor times nor the
order show which samples were added.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ._errors import MalformedError, UnsupportedError, UsageError
from ._extra_data import View

_INPUTS = ("x_train", "x", "train_images", "images", "data", "inputs", "input_ids", "tokens")
_LABELS = ("y_train", "y", "train_labels", "labels", "targets", "label", "target")


class SampleFile(Protocol):
    """A data set that was read."""

    @property
    def data(self) -> Any:
        """What `ExtraTask(like=...)` takes: items of an input and a label."""

    def write(self, path: Path, extras: list[Any], order: Sequence[int]) -> None:
        """Writes real samples and `extras` (items), in this order.

        Raises:
            UsageError: The file exists.
        """


def read(
    path: Path, *, inputs: str | None = None, labels: str | None = None, unlabelled: bool = False
) -> SampleFile:
    """Reads a data set.

    Args:
        path: A folder with one folder of images per class, or a file.
        inputs: Name of the array or column of inputs; None: found by its usual names.
        labels: The same of labels.
        unlabelled: There are no labels.

    Raises:
        UsageError: There is no such file, or none of its names is usual.
        MalformedError: It cannot be read.
    """
    if path.is_dir():
        from ._sample_images import ImageFolder

        return ImageFolder(path)
    if not path.is_file():
        raise UsageError(f"there is no data set {path}", "")
    if path.suffix in (".npz", ".safetensors"):
        return Arrays(path, inputs, labels, unlabelled)
    if path.suffix in (".csv", ".tsv", ".jsonl"):
        from ._sample_text import read_text

        return read_text(path, inputs, labels, unlabelled)
    raise UsageError(
        f"{path} is of no known kind",
        "use a folder of images, .npz, .safetensors, .csv, .tsv or .jsonl",
    )


def require_new(path: Path) -> None:
    """Refuses to replace what exists."""
    if path.exists():
        raise UsageError(f"{path} exists and is not replaced", "choose another name")
    path.parent.mkdir(parents=True, exist_ok=True)


def random_name() -> str:
    """A file name that says nothing."""
    return secrets.token_hex(8)


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

    @property
    def data(self) -> Any:
        values = self._arrays[self._inputs]
        return values if self._labels is None else (values, self._arrays[self._labels])

    def write(self, path: Path, extras: list[Any], order: Sequence[int]) -> None:
        mixed = View(self.data).mixed(extras, order)
        columns = (mixed,) if self._labels is None else mixed
        beside = _beside(self._arrays, self._inputs, self._labels)
        if beside:
            raise UsageError(
                f"{', '.join(beside)} belong to the samples, and extra samples have none",
                "remove them before mixing",
            )
        names = [self._inputs] + ([] if self._labels is None else [self._labels])
        write_arrays(path, {**self._arrays, **dict(zip(names, columns, strict=True))})


def read_arrays(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """All arrays of a .npz or .safetensors file.

    Raises:
        MalformedError: It is damaged, or holds pickled objects.
    """
    try:
        if path.suffix == ".safetensors":
            return dict(_safetensors().load_file(path))
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (UnsupportedError, FileNotFoundError):
        raise
    except Exception as error:
        raise MalformedError(f"{path} cannot be read: {error}", "") from error


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Writes .npz or .safetensors, by the suffix."""
    require_new(path)
    if path.suffix == ".safetensors":
        _safetensors().save_file({k: np.ascontiguousarray(v) for k, v in arrays.items()}, path)
    elif path.suffix == ".npz":
        plain: dict[str, Any] = dict(arrays)
        np.savez_compressed(path, **plain)
    else:
        raise UsageError(f"{path} is no .npz or .safetensors file", "choose such a name")


def _safetensors() -> Any:
    try:
        import safetensors.numpy
    except ImportError as error:
        raise UnsupportedError(
            "the package safetensors is not installed", "pip install safetensors"
        ) from error
    return safetensors.numpy


def _beside(arrays: Mapping[str, Any], inputs: str, labels: str | None) -> list[str]:
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
    arrays: Mapping[str, Any], given: str | None, usual: Sequence[str], path: Path, what: str
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
