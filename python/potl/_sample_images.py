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

from ._errors import MalformedError, UnsupportedError, UsageError
from ._image_bytes import encoded, huffman_tables, plain_jpeg, plain_png
from ._sample_files import random_name, require_new

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff")
_LOOKED_AT = 2048


class ImageFolder:
    """`root/class/name.png`. Where sizes differ, extra samples are of the most common one, and
    written in the size of some real image of their class. Files lose what they carry beside their
    pixels; WebP and TIFF files keep it.
    """

    def __init__(self, root: Path) -> None:
        self.names = sorted(one.name for one in root.iterdir() if one.is_dir())
        self._files = [
            (path, name)
            for name in self.names
            for path in sorted((root / name).iterdir())
            if path.suffix.lower() in SUFFIXES
        ]
        if not self._files:
            raise UsageError(
                f"{root} has no images", "the layout is one folder per class, with images inside"
            )
        stride = -(-len(self._files) // _LOOKED_AT)
        seen = [_opened(path) for path, _ in self._files[::stride]]
        sizes = Counter(image.size for image in seen)
        self._sizes_differ = len(sizes) > 1
        self._size = sizes.most_common(1)[0][0]
        modes = {image.mode for image in seen}
        self._mode = modes.pop() if modes in ({"L"}, {"RGB"}, {"RGBA"}) else "RGB"

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
                target.write_bytes(_plain(source))
            else:
                image, name = extras[index - len(self._files)]
                model = secrets.choice(by_class[name])
                target = path / name / (random_name() + model.suffix)
                self._save(image, model, target)
            os.utime(target, (now, now))

    def _save(self, image: Any, model: Path, target: Path) -> None:
        """Saves an image as another one was saved."""
        like = _opened(model)
        if self._sizes_differ and like.size != image.size:
            image = image.resize(like.size)
        if like.mode != image.mode and like.mode in ("L", "RGB", "RGBA"):
            image = image.convert(like.mode)
        if like.format != "JPEG":
            target.write_bytes(encoded(image, like.format))
            return
        from PIL import JpegImagePlugin

        options = {
            "qtables": like.quantization,
            "subsampling": JpegImagePlugin.get_sampling(like),
            "progressive": bool(like.info.get("progressive")),
        }
        usual = encoded(image, "JPEG", **options)
        # Tables of its own, as of an encoder that optimises.
        if huffman_tables(model.read_bytes()) != huffman_tables(usual):
            usual = encoded(image, "JPEG", optimize=True, **options)
        target.write_bytes(plain_jpeg(usual))


def _plain(source: Path) -> bytes:
    """A real image's file without metadata, of which extra ones have none."""
    data = source.read_bytes()
    image = _opened(source)
    try:
        if image.format == "JPEG":
            return plain_jpeg(data)
        if image.format == "PNG":
            return plain_png(data, image)
    except ValueError as error:
        raise MalformedError(f"{source}: {error}", "remove or mend it") from error
    if image.format == "BMP" and image.mode in ("L", "RGB"):
        return encoded(image, "BMP")
    return data


def write_images(path: Path, images: Sequence[Any]) -> None:
    """Writes images as 00000.png, 00001.png, ..."""
    require_new(path)
    path.mkdir()
    for number, image in enumerate(images):
        image.save(path / f"{number:05d}.png")


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
        image = _opened(path).convert(self._mode)
        return (image if image.size == self._size else image.resize(self._size)), name


def _opened(path: Path) -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise UnsupportedError("Pillow is not installed", "pip install pillow") from error
    try:
        with Image.open(path) as image:
            image.load()
            return image
    except (OSError, ValueError, SyntaxError) as error:
        raise MalformedError(f"{path} is no image: {error}", "remove or mend it") from error
