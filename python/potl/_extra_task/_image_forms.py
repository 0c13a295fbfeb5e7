# SPDX-License-Identifier: Apache-2.0
"""Which image files extra ones can look like, and writing files of that kind.

Extra images have one, three or four channels of bytes, and are stored as real ones are: PNG, BMP,
lossless WebP and losslessly packed TIFF files are written anew from their pixels, real and extra
ones by the same encoder; JPEG files keep their data (`_image_bytes`). Everything else, which extra
files would differ from, is refused.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from .._base._errors import MalformedError, UnsupportedError, UsageError
from ._image_bytes import encoded, huffman_tables, plain_jpeg, plain_png

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
        return _odd_jpeg(image)
    if form not in ("PNG", "BMP", "TIFF", "WEBP"):
        return f"a {form} file"
    if form == "PNG" and image.mode in ("LA", *_MODES):
        with path.open("rb") as file:
            bits = file.read(25)[24]
        if bits != 8:
            return f"an image of {bits} bits"
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


def _odd_jpeg(image: Any) -> str:
    from PIL import JpegImagePlugin

    if image.mode not in _MODES:
        return f"an image of mode {image.mode}"
    if image.mode == "RGB":
        plain = image.info.get("adobe_transform") == 0 or [one[0] for one in image.layer] == [
            *b"RGB"
        ]
        if plain or JpegImagePlugin.get_sampling(image) < 0:
            return "a JPEG file of an unusual kind"
    return ""


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
    try:
        if image.format in ("JPEG", "MPO"):
            return plain_jpeg(source.read_bytes())
        if image.format == "PNG":
            return plain_png(source.read_bytes(), image)
    except ValueError as error:
        raise MalformedError(f"{source}: {error}", "remove or repair it") from error
    return _written(image, image)


def like_file(image: Any, path: Path) -> bytes:
    """A file of this image, stored as that one is."""
    like = opened(path)
    if like.mode != image.mode:
        image = image.convert(like.mode)
    if like.format not in ("JPEG", "MPO"):
        return _written(image, like)
    from PIL import JpegImagePlugin

    options = {
        "qtables": like.quantization,
        "subsampling": JpegImagePlugin.get_sampling(like),
        "progressive": bool(like.info.get("progressive")),
    }
    usual = encoded(image, "JPEG", **options)
    # Tables of its own, as of an encoder that optimises.
    if huffman_tables(path.read_bytes()) != huffman_tables(usual):
        usual = encoded(image, "JPEG", optimize=True, **options)
    return plain_jpeg(usual)


def _written(image: Any, like: Any) -> bytes:
    if like.format == "WEBP":  # exact: colours also where nothing is opaque
        return encoded(image, "WEBP", lossless=True, exact=True)
    if like.format == "TIFF":
        return encoded(image, "TIFF", compression=like.info["compression"])
    return encoded(image, like.format)
