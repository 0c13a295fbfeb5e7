# SPDX-License-Identifier: Apache-2.0
"""Data sets as files, read and written without code of the user's: image folders, .npz,
.safetensors, .csv and .jsonl. Nothing is unpickled.

What is written has the layout of what was read, and random names: neither names nor times nor the
order show which samples were added.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from .._base._errors import MalformedError, UnsupportedError, UsageError
from ._data import View

_INPUTS = ("x_train", "x", "train_images", "images", "data", "inputs", "input_ids", "tokens")
_LABELS = ("y_train", "y", "train_labels", "labels", "targets", "label", "target")


# The same of columns and members of text files.
TEXT_INPUTS = (
    "text", "review", "sentence", "content", "comment", "input", "title", "description",
)  # fmt: skip
TEXT_LABELS = ("label", "labels", "class", "class index", "target", "y", "sentiment", "category")
ARRAYS, TEXTS = (".npz", ".safetensors"), (".csv", ".tsv", ".jsonl")


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


def require_fitting(out: Path, data: Path) -> None:
    """Refuses a name whose ending says something else than what is written there.

    Raises:
        UsageError: The ending does not fit, or there is something already.
    """
    require_absent(out)
    suffix, own = out.suffix.lower(), data.suffix.lower()
    if data.is_dir():
        if suffix in (*ARRAYS, *TEXTS, ".zip", ".tar", ".gz", ".tgz"):
            raise UsageError(f"{out} would be a folder of images", "choose a name without ending")
    elif suffix != own and not (suffix in ARRAYS and own in ARRAYS):
        raise UsageError(
            f"{out} would have the form of {data.name}",
            f"choose a name that ends with {' or '.join(ARRAYS) if own in ARRAYS else own}",
        )


def require_absent(path: Path) -> None:
    """Refuses to replace what exists."""
    if path.exists():
        raise UsageError(f"{path} exists and is not replaced", "choose another name")


def require_new(path: Path) -> None:
    """Refuses to replace what exists, and makes the folder of what does not."""
    require_absent(path)
    path.parent.mkdir(parents=True, exist_ok=True)


@contextlib.contextmanager
def whole(path: Path) -> Iterator[None]:
    """What was not written to its end is removed: half of an upload looks like one."""
    require_absent(path)
    try:
        yield
    except BaseException:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
        raise


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


def read_arrays(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """All arrays of a .npz or .safetensors file.

    Raises:
        MalformedError: It is damaged, or holds pickled objects.
    """
    try:
        if path.suffix.lower() == ".safetensors":
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
    suffix = path.suffix.lower()
    if suffix == ".safetensors":
        _safetensors().save_file({k: np.ascontiguousarray(v) for k, v in arrays.items()}, path)
    elif suffix == ".npz":
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
