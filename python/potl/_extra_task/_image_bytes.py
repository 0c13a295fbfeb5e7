# SPDX-License-Identifier: Apache-2.0
"""Image files without what they carry beside their pixels: comments, cameras, dates, thumbnails.

Pixels stay as they are, bit for bit: JPEG data are not coded again.
"""

from __future__ import annotations

import io
import struct
from typing import Any

_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_PIXELS = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND")
_START, _END, _SCAN, _ADOBE, _COMMENT = 0xD8, 0xD9, 0xDA, 0xEE, 0xFE
_APPLICATION = range(0xE0, 0xF0)
_HUFFMAN = 0xC4
_FRAMES = (0xC0, 0xC1, 0xC2)


def plain_jpeg(data: bytes) -> bytes:
    """The file without application data and comments, and without what follows its end. An Adobe
    marker stays where the colours need it.

    Raises:
        ValueError: These are not JPEG data.
    """
    out = [b"\xff\xd8"]
    components = 0
    for marker, segment in _segments(data):
        if marker in _FRAMES:
            components = segment[9]
        # Without the marker three colours of the usual transform (1) are assumed.
        needed = marker == _ADOBE and segment[15:16] != b"\x01"
        if needed or (marker not in _APPLICATION and marker != _COMMENT):
            out.append(segment)
    if components == 0:
        raise ValueError("no image in a JPEG file")
    return b"".join(out)


def huffman_tables(data: bytes) -> bytes:
    """All Huffman tables of a JPEG file."""
    return b"".join(segment for marker, segment in _segments(data) if marker == _HUFFMAN)


def _segments(data: bytes) -> list[tuple[int, bytes]]:
    """(marker, bytes with the marker) of all segments after the first one, scans with their data,
    up to and with the end of the image.
    """
    if data[:2] != b"\xff\xd8":
        raise ValueError("no JPEG file")
    out: list[tuple[int, bytes]] = []
    at = 2
    while True:
        while data[at : at + 2] == b"\xff\xff":  # fill bytes
            at += 1
        if len(data) < at + 2 or data[at] != 0xFF:
            raise ValueError("a JPEG file is cut or damaged")
        marker = data[at + 1]
        if marker == _END:
            return [*out, (marker, data[at : at + 2])]
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        if marker == _SCAN:
            end = _end_of_scan(data, end)
        if end < at + 4 or end > len(data):
            raise ValueError("a JPEG file is cut or damaged")
        out.append((marker, data[at:end]))
        at = end


def _end_of_scan(data: bytes, at: int) -> int:
    while True:
        at = data.find(b"\xff", at)
        if at < 0 or at + 1 >= len(data):
            raise ValueError("a JPEG file is cut or damaged")
        if data[at + 1] != 0 and not 0xD0 <= data[at + 1] <= 0xD7 and data[at + 1] != 0xFF:
            return at
        at += 1 if data[at + 1] == 0xFF else 2


def plain_png(data: bytes, image: Any) -> bytes:
    """The file with its pixels alone; coded again where Pillow can write the same pixels, so that
    all files come from one encoder.

    Raises:
        ValueError: These are not PNG data.
    """
    bits = data[24:25]
    if image.mode in ("L", "RGB", "RGBA") and bits == b"\x08" and "transparency" not in image.info:
        return encoded(image, "PNG")
    if data[:8] != _PNG:
        raise ValueError("no PNG file")
    out, at = [_PNG], 8
    while at < len(data):
        (size,) = struct.unpack(">I", data[at : at + 4].rjust(4, b"\0"))
        name, end = data[at + 4 : at + 8], at + 12 + size
        if end > len(data):
            raise ValueError("a PNG file is cut")
        if name in _PNG_PIXELS:
            out.append(data[at:end])
        at = end
        if name == b"IEND":
            break
    return b"".join(out)


def encoded(image: Any, form: str, **options: Any) -> bytes:
    """A file of these pixels, by Pillow, without metadata."""
    from PIL import Image

    file = io.BytesIO()
    if image.mode in ("L", "RGB", "RGBA"):
        image = Image.frombytes(image.mode, image.size, image.tobytes())
    image.save(file, format=form, **options)
    return file.getvalue()
