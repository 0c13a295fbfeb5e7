# SPDX-License-Identifier: Apache-2.0
"""Images in folders, one folder per class, through Pillow."""

from __future__ import annotations

import os
import secrets
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .._base._errors import UsageError
from ._image_files import SUFFIXES, header, like_file, opened, plain
from ._writing import random_name, require_new

# What systems put into folders, and no sample.
_LITTER = ("thumbs.db", "desktop.ini")


class ImageFolder:
    """`root/class/name.png`. Where sizes differ, extra samples are of the most common one, and
    written in the size of some real image of their class. Files lose what they carry beside their
    pixels. Nothing else may lie in the folders: it would not be in the upload.
    """

    def __init__(self, root: Path) -> None:
        self.names, self._files = _found(root)
        headers = [header(path, root) for path, _ in self._files]
        sizes = Counter(size for _, size in headers)
        self._sizes_differ = len(sizes) > 1
        self._size = sizes.most_common(1)[0][0]
        modes = {mode for mode, _ in headers}
        self._mode = modes.pop() if len(modes) == 1 else "RGB"

    @property
    def data(self) -> Any:
        names = sorted({name for _, name in self._files})
        return _Items(self._files, names, self._size, self._mode)

    def write(self, path: Path, extras: list[Any], order: Sequence[int]) -> None:
        require_new(path)
        for name in self.names:
            (path / name).mkdir(parents=True)
        by_class: dict[str, list[Path]] = {}
        for file, name in self._files:
            by_class.setdefault(name, []).append(file)
        now = time.time()
        for index in order:
            if index < len(self._files):
                source, name = self._files[index]
                target = path / name / (random_name() + source.suffix)
                target.write_bytes(plain(source))
            else:
                image, name = extras[index - len(self._files)]
                model = secrets.choice(by_class[name])
                if self._sizes_differ:
                    image = image.resize(opened(model).size)
                target = path / name / (random_name() + model.suffix)
                target.write_bytes(like_file(image, model))
            os.utime(target, (now, now))


def _found(root: Path) -> tuple[list[str], list[tuple[Path, str]]]:
    """Names of classes, and the images with theirs.

    Raises:
        UsageError: There is something else, or no image.
    """
    names: list[str] = []
    files: list[tuple[Path, str]] = []
    others: list[Path] = []
    for folder in _listed(root):
        if not folder.is_dir():
            others.append(folder)
            continue
        names.append(folder.name)
        for path in _listed(folder):
            if path.is_file() and path.suffix.lower() in SUFFIXES:
                files.append((path, folder.name))
            else:
                others.append(path)
    if others:
        some = ", ".join(str(one.relative_to(root)) for one in others[:3])
        more = f" and {len(others) - 3} more" if len(others) > 3 else ""
        raise UsageError(
            f"{root} holds {some}{more}, which would not be in the upload",
            "the layout is one folder per class, with images inside and nothing else "
            f"({', '.join(SUFFIXES)}): move, convert or remove them",
        )
    if not files:
        raise UsageError(
            f"{root} has no images", "the layout is one folder per class, with images inside"
        )
    return names, files


def _listed(folder: Path) -> list[Path]:
    return sorted(
        one
        for one in folder.iterdir()
        if not one.name.startswith(".") and one.name.lower() not in _LITTER
    )


class _Items(Sequence[Any]):
    def __init__(
        self,
        files: Sequence[tuple[Path, str]],
        names: Sequence[str],
        size: tuple[int, int],
        mode: str,
    ) -> None:
        self._files, self._size, self._mode = files, size, mode
        self.label_names = names

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: Any) -> Any:
        path, name = self._files[index]
        image = opened(path).convert(self._mode)
        return (image if image.size == self._size else image.resize(self._size)), name
