# SPDX-License-Identifier: Apache-2.0
"""Data sets as files, read and written without code of the user's.

What is written has the layout of what was read. Neither names nor times nor the order show which
samples were added, and nor does the way in which a value is written: values stay as they were read,
and the same code writes real and extra ones.

Pillow reads images, NumPy and safetensors read arrays, and Python's `csv` and `json` read cells and
lines; pandas, pyarrow and `datasets` would guess types, fill short rows and skip files
(docs/decisions/0027). Our own code finds the columns of text and label, takes real JPEG files apart
without decoding them, and refuses data that would lose something.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from .._base._errors import UsageError
from . import _arrays, _cells, _lines
from ._arrays import Arrays
from ._cells import Table
from ._folders import ImageFolder
from ._lines import JsonLines
from ._writing import require_absent


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
    arrays = _arrays.SUFFIXES
    if data.is_dir():
        files = (*arrays, *_cells.SUFFIXES, _lines.SUFFIX, ".zip", ".tar", ".gz", ".tgz")
        if suffix in files:
            raise UsageError(f"{out} would be a folder of images", "choose a name without ending")
    elif suffix != own and not (suffix in arrays and own in arrays):
        raise UsageError(
            f"{out} would have the form of {data.name}",
            f"choose a name that ends with {' or '.join(arrays) if own in arrays else own}",
        )


def read(
    path: Path,
    *,
    inputs: str | None = None,
    labels: str | None = None,
    unlabelled: bool = False,
    kind: str | None = None,
) -> SampleFile:
    """Reads a data set.

    Args:
        path: A folder with one folder of images per class, or a file.
        inputs: Name of the array or column of inputs; None: found by its usual names.
        labels: The same of labels.
        unlabelled: There are no labels.
        kind: As for `ExtraTask`: what columns hold.

    Raises:
        UsageError: There is no such file, none of its names is usual, or it holds what would not
            be in the upload.
        MalformedError: It cannot be read.
    """
    if path.is_dir():
        if unlabelled or inputs is not None or labels is not None:
            raise UsageError(
                f"{path} is a folder of images, whose labels are the names of its folders",
                "leave out --inputs, --labels and --unlabelled; for images without labels, put "
                "them into one folder in it and pass --kind autoencoder",
            )
        return ImageFolder(path)
    if not path.is_file():
        raise UsageError(f"there is no data set {path}", "check the path")
    suffix = path.suffix.lower()
    if suffix in _arrays.SUFFIXES:
        return Arrays(path, inputs, labels, unlabelled)
    if suffix == _lines.SUFFIX:
        return JsonLines(path, inputs, labels, unlabelled)
    if suffix in _cells.SUFFIXES:
        return Table(path, inputs, labels, unlabelled, kind)
    raise UsageError(
        f"{path}: this kind of file is not known",
        "use a folder of images, .npz, .safetensors, .csv, .tsv or .jsonl",
    )
