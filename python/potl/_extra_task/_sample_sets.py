# SPDX-License-Identifier: Apache-2.0
"""Data sets of every kind of file, read by their names."""

from __future__ import annotations

from pathlib import Path

from .._base._errors import UsageError
from ._sample_files import ARRAYS, TEXTS, Arrays, SampleFile
from ._sample_images import ImageFolder
from ._sample_lines import JsonLines
from ._sample_text import Table


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
        raise UsageError(f"there is no data set {path}", "")
    suffix = path.suffix.lower()
    if suffix in ARRAYS:
        return Arrays(path, inputs, labels, unlabelled)
    if suffix == ".jsonl":
        return JsonLines(path, inputs, labels, unlabelled)
    if suffix in TEXTS:
        return Table(path, inputs, labels, unlabelled, kind)
    raise UsageError(
        f"{path}: this kind of file is not known",
        "use a folder of images, .npz, .safetensors, .csv, .tsv or .jsonl",
    )
