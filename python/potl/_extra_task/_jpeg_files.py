# SPDX-License-Identifier: Apache-2.0
"""JPEG files, taken apart without decoding them: Pillow would code real ones again.

What they carry beside their pixels is left out, and their tables lie one in a segment and in one
order, whoever wrote them. An extra file has the tables, the sampling and the restarts of a real
one. Where another of its headers would differ, every extra file would show by it.
"""

from __future__ import annotations

import functools
import io
from typing import Any

_START, _END, _SCAN, _ADOBE, _COMMENT = b"\xff\xd8", 0xD9, 0xDA, 0xEE, 0xFE
_APPLICATION = range(0xE0, 0xF0)
_QUANTISATION, _HUFFMAN, _RESTART = 0xDB, 0xC4, 0xDD
_FRAMES = (0xC0, 0xC1, 0xC2)

# Marker and bytes with the marker; a scan with its data.
Segment = tuple[int, bytes]


def plain_jpeg(data: bytes) -> bytes:
    """The file without application data and comments, and without what follows its end. An Adobe
    marker stays where the colours need it.

    Raises:
        ValueError: These are not JPEG data.
    """
    return _START + b"".join(segment for _, segment in _plain(data))


def like_jpeg(image: Any, data: bytes) -> bytes:
    """A file of this image, stored as those data are, as far as Pillow can."""
    found = _plain(data)
    made = _encoded(image, data)
    # Tables of its own, as of an encoder that optimises.
    if _tables(found) != _tables(_plain(made)):
        made = _encoded(image, data, optimize=True)
    return plain_jpeg(made)


def is_like_no_other(mode: str, data: bytes) -> bool:
    """Whether no extra file could be stored as this one is.

    Raises:
        ValueError: These are not JPEG data.
    """
    found = _plain(data)
    head = [segment if kind != _SCAN else _scan_header(segment) for kind, segment in found]
    return not _can_be_made(mode, _START + b"".join(head))


@functools.lru_cache(maxsize=4096)
def _can_be_made(mode: str, head: bytes) -> bool:
    """Of a file without the data of its scans: those of one data set are few."""
    from PIL import Image

    # Nothing of the size of an image is compared, so that any will do.
    made = _plain(like_jpeg(Image.new(mode, (16, 16)), head))
    return _told(made) == _told(_plain(head))


def _told(found: list[Segment]) -> list[Segment]:
    """What segments tell beside size and pixels. Tables of an encoder that optimises differ."""
    out = []
    for kind, segment in found:
        told = segment
        if kind == _SCAN:
            told = _scan_header(segment)
        elif kind == _HUFFMAN:
            told = segment[4:5]
        elif kind in _FRAMES:
            told = segment[:5] + segment[9:]
        out.append((kind, told))
    return out


def _encoded(image: Any, data: bytes, **options: Any) -> bytes:
    from PIL import Image, JpegImagePlugin

    like = Image.open(io.BytesIO(data))
    restart = next((one for kind, one in segments(data) if kind == _RESTART), b"")
    file = io.BytesIO()
    image.save(
        file,
        "JPEG",
        qtables=like.quantization,  # type: ignore[attr-defined]
        subsampling=JpegImagePlugin.get_sampling(like),
        progressive=bool(like.info.get("progressive")),
        restart_marker_blocks=int.from_bytes(restart[4:6], "big"),
        **options,
    )
    return file.getvalue()


def _tables(found: list[Segment]) -> list[Segment]:
    return [one for one in found if one[0] == _HUFFMAN]


def _scan_header(segment: bytes) -> bytes:
    return segment[: 2 + int.from_bytes(segment[2:4], "big")]


def _plain(data: bytes) -> list[Segment]:
    """What stays of a file: before each scan and the end tables as Pillow's encoder orders them."""
    out: list[Segment] = []
    before: dict[tuple[int, int], Segment] = {}
    components = 0
    for kind, segment in segments(data):
        if kind in (_QUANTISATION, _HUFFMAN):
            for table in _split(kind, segment):
                place, number = divmod(table[4], 16)
                # The two Huffman tables of one number are beside each other.
                at = (kind == _HUFFMAN) * 64 + number * 2 + (place if kind == _HUFFMAN else 0)
                before[1, at] = (kind, table)
        elif kind in _FRAMES:
            components = segment[9]
            before[1, 32] = (kind, segment)
        elif kind == _RESTART:
            before[2, 0] = (kind, segment)
        elif kind in (_SCAN, _END):
            out += [before[place] for place in sorted(before)]
            out.append((kind, segment))
            before = {}
        # Without the Adobe marker three colours of the usual transform (1) are assumed.
        elif kind == _ADOBE and segment[15:16] != b"\x01":
            before[0, 0] = (kind, segment)
        elif kind not in _APPLICATION and kind != _COMMENT:
            before[3, len(before)] = (kind, segment)
    if components == 0:
        raise ValueError("no image in a JPEG file")
    return out


def _split(kind: int, segment: bytes) -> list[bytes]:
    """Segments of one table each."""
    out, at = [], 4
    while at < len(segment):
        if kind == _HUFFMAN:
            size = 17 + sum(segment[at + 1 : at + 17])
        else:
            size = 1 + (128 if segment[at] >> 4 else 64)
        if at + size > len(segment):
            raise ValueError("a JPEG file is cut or damaged")
        out.append(b"\xff%c" % kind + (2 + size).to_bytes(2, "big") + segment[at : at + size])
        at += size
    return out


def segments(data: bytes) -> list[Segment]:
    """All segments after the first one, scans with their data, up to and with the end of the image.

    Raises:
        ValueError: These are not JPEG data.
    """
    if data[:2] != _START:
        raise ValueError("no JPEG file")
    out: list[Segment] = []
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
