# SPDX-License-Identifier: Apache-2.0
"""Which image files extra ones can look like, and writing files of that kind.

Extra images have one, three or four channels of bytes, and are stored as real ones are. Pillow
reads all files, and writes PNG, BMP, lossless WebP and losslessly packed TIFF files anew from their
pixels, real and extra ones by the same encoder. Everything else, which extra files would differ
from, is refused.

JPEG files are taken apart (`_jpeg_files`), because Pillow would code real ones again.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from .._base._errors import MalformedError, UnsupportedError, UsageError
from ._jpeg_files import is_like_no_other, like_jpeg, plain_jpeg

T = TypeVar("T")

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff")
_MODES = ("L", "RGB", "RGBA")
# Of TIFF files: nothing of the pixels is lost in these.
_LOSSLESS = ("raw", "packbits", "tiff_lzw", "tiff_deflate", "tiff_adobe_deflate")
# What an image of another mode becomes by Pillow without losing more than depth.
_BETTER = {"LA": "RGBA", "1": "L", "I": "L", "I;16": "L", "I;16B": "L", "I;16L": "L"}


def opened(path: Path) -> Any:
    """The image of a file.

    Raises:
        MalformedError: It is not an image.
    """
    return _read(path, _loaded)


def header(path: Path, root: Path) -> tuple[str, tuple[int, int]]:
    """Mode and size of an image that extra ones can look like, without reading its pixels.

    Raises:
        UsageError: They cannot; a command that converts the images in `root` is named.
        MalformedError: It is not an image.
    """

    def look(image: Any) -> tuple[str, tuple[int, int]]:
        what = _odd(path, image)
        if what:
            raise UsageError(
                f"{path} is {what}, which extra images cannot be", _remedy(root, image)
            )
        return image.mode, image.size

    return _read(path, look)


def _read(path: Path, use: Callable[[Any], T]) -> T:
    try:
        from PIL import Image
    except ImportError as error:
        raise UnsupportedError("Pillow is not installed", "pip install pillow") from error
    try:
        with Image.open(path) as image:
            return use(image)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise MalformedError(f"{path} is not an image: {error}", "remove or repair it") from error


def _loaded(image: Any) -> Any:
    image.load()
    return image


def _odd(path: Path, image: Any) -> str:
    """What extra images cannot be, or nothing."""
    form = image.format
    if form in ("JPEG", "MPO"):  # of an MPO file the first image is kept
        return _odd_jpeg(path, image)
    if form not in ("PNG", "BMP", "TIFF", "WEBP"):
        return f"a {form} file"
    if form == "PNG" and image.mode in ("LA", *_MODES):
        stored = image.tile[0][3]  # "RGB", or "RGB;16B" of 16 bits
        if stored != image.mode:
            return f"an image of {stored.partition(';')[2].rstrip('B')} bits"
    if image.mode not in _MODES or (form == "BMP" and image.mode == "RGBA"):
        return f"an image of mode {image.mode}"
    if form == "PNG" and "transparency" in image.info:
        return "an image with a transparent colour"
    if form == "TIFF" and image.info.get("compression") not in _LOSSLESS:
        return f"a TIFF file with {image.info.get('compression')} inside"
    if form == "WEBP" and _lossy(path):
        return "a lossy WebP file"
    if getattr(image, "n_frames", 1) > 1:
        return f"a file of {image.n_frames} images"
    return ""


def _odd_jpeg(path: Path, image: Any) -> str:
    from PIL import JpegImagePlugin

    if image.mode not in _MODES:
        return f"an image of mode {image.mode}"
    if image.mode == "RGB":
        plain = image.info.get("adobe_transform") == 0 or [one[0] for one in image.layer] == [
            *b"RGB"
        ]
        if plain or JpegImagePlugin.get_sampling(image) < 0:
            return "a JPEG file of an unusual kind"
    return (
        "a JPEG file of an unusual kind" if is_like_no_other(image.mode, path.read_bytes()) else ""
    )


def _lossy(path: Path) -> bool:
    data = path.read_bytes()
    at = 12
    while at + 8 <= len(data):
        name, size = data[at : at + 4], struct.unpack("<I", data[at + 4 : at + 8])[0]
        if name in (b"VP8 ", b"VP8L"):
            return name == b"VP8 "
        at += 8 + size + size % 2
    return True


def _remedy(root: Path, image: Any) -> str:
    if image.mode == "F":
        return "scale the images to bytes from 0 to 255 and store them as PNG files"
    mode = image.mode if image.mode in _MODES else _BETTER.get(image.mode, "RGB")
    if "transparency" in image.info:
        mode = "RGBA"
    halved = ".point(lambda v: v / 256)" if image.mode.startswith("I") else ""
    return (
        'convert them first, for example into a folder "converted": python -c "import os, '
        "pathlib as p, PIL.Image as i; [(os.makedirs(d := 'converted/' + f.parent.name, "
        f"exist_ok=True), i.open(f){halved}.convert('{mode}').save(f'{{d}}/{{f.name}}.png')) "
        f"for f in p.Path('{root}').glob('*/*')]\""
    )


def plain(source: Path) -> bytes:
    """A real image's file without metadata, of which extra ones have none."""
    image = opened(source)
    if image.format not in ("JPEG", "MPO"):
        return _written(image, image)
    try:
        return plain_jpeg(source.read_bytes())
    except ValueError as error:
        raise MalformedError(f"{source}: {error}", "remove or repair it") from error


def like_file(image: Any, path: Path) -> bytes:
    """A file of this image, stored as that one is."""
    like = opened(path)
    if like.mode != image.mode:
        image = image.convert(like.mode)
    if like.format not in ("JPEG", "MPO"):
        return _written(image, like)
    try:
        return like_jpeg(image, path.read_bytes())
    except ValueError as error:
        raise MalformedError(f"{path}: {error}", "remove or repair it") from error


def _written(image: Any, like: Any) -> bytes:
    if like.format == "WEBP":  # exact: colours also where nothing is opaque
        return _encoded(image, "WEBP", lossless=True, exact=True)
    if like.format == "TIFF":
        return _encoded(image, "TIFF", compression=like.info["compression"])
    return _encoded(image, like.format)


def _encoded(image: Any, form: str, **options: Any) -> bytes:
    """A file of these pixels, by Pillow, without metadata."""
    from PIL import Image

    file = io.BytesIO()
    if image.mode in _MODES:
        image = Image.frombytes(image.mode, image.size, image.tobytes())
    image.save(file, format=form, **options)
    return file.getvalue()
