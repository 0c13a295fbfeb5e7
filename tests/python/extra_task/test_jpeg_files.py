# SPDX-License-Identifier: Apache-2.0
"""JPEG files of other encoders than Pillow's: extra ones are put together alike, or refused."""

from __future__ import annotations

import io
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import programs
import pytest

pytest.importorskip("torch")
image_module = pytest.importorskip("PIL.Image")

from extra_task_cases import key_of  # noqa: E402

from potl._cli import _cli  # noqa: E402

DRAW = np.random.default_rng(11)
QUANTISATION, HUFFMAN, SCAN = 0xDB, 0xC4, 0xDA


def jpeg(**options: Any) -> bytes:
    colours = image_module.fromarray(DRAW.integers(0, 256, (4, 4, 3), np.uint8))
    file = io.BytesIO()
    colours.resize((48, 40), image_module.Resampling.BICUBIC).save(file, "JPEG", **options)
    return file.getvalue()


def parts(data: bytes) -> list[tuple[int, bytes]]:
    """(marker, content) up to the data of the first scan, which are the last one's."""
    found, at = [], 2
    while True:
        marker, end = data[at + 1], at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        if marker == SCAN:
            return [*found, (marker, data[at + 4 :])]
        found.append((marker, data[at + 4 : end]))
        at = end


def put_together(found: list[tuple[int, bytes]]) -> bytes:
    out = b"\xff\xd8"
    for marker, content in found:
        size = 2 + (content[0] * 2 + 4 if marker == SCAN else len(content))
        out += bytes([0xFF, marker]) + size.to_bytes(2, "big") + content
    return out


def grouped(marker: int) -> bytes:
    """All tables of a kind in one segment, as cameras write them."""
    found = parts(jpeg())
    first = next(place for place, (kind, _) in enumerate(found) if kind == marker)
    tables = b"".join(content for kind, content in found if kind == marker)
    found = [one for one in found if one[0] != marker]
    return put_together([*found[:first], (marker, tables), *found[first:]])


def frame_last() -> bytes:
    found = parts(jpeg())
    frame = next(one for one in found if one[0] == 0xC0)
    found.remove(frame)
    return put_together([*found[:-1], frame, found[-1]])


def other_numbers() -> bytes:
    """Colours that are numbered from 0 on."""
    found = parts(jpeg())
    for place, (marker, content) in enumerate(found):
        changed = bytearray(content)
        first, step = {0xC0: (6, 3), SCAN: (1, 2)}.get(marker, (0, 0))
        for colour in range(3 if step else 0):
            changed[first + step * colour] -= 1
        found[place] = (marker, bytes(changed))
    return put_together(found)


def other_frame() -> bytes:
    return put_together([(0xC1 if kind == 0xC0 else kind, one) for kind, one in parts(jpeg())])


def folder(root: Path, make: Callable[[], bytes]) -> Path:
    for number in range(40):
        path = root / "ab"[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(make())
    return root


def mix(tmp_path: Path, data: Path) -> int:
    return _cli.run(["extra-task", "mix", str(data), str(tmp_path / "upload"), "--key",
                     str(key_of(tmp_path / "k")), "--control", "1"])  # fmt: skip


def pixels(path: Path) -> bytes:
    with image_module.open(path) as image:
        return bytes(image.tobytes())


def shape(path: Path) -> tuple[Any, ...]:
    """What a file tells beside its pixels: its segments, without what optimised tables hold."""
    found = parts(path.read_bytes())
    return tuple(
        (kind, (one[:10] if kind == SCAN else one[0] if kind == HUFFMAN else one))
        for kind, one in found
    )


LIKE: dict[str, Callable[[], bytes]] = {
    "plain": jpeg,
    "optimised": lambda: jpeg(optimize=True),
    "progressive": lambda: jpeg(progressive=True),
    "half of the colours": lambda: jpeg(subsampling=1, quality=93),
    "restarts": lambda: jpeg(restart_marker_blocks=2),
    "restarts of rows": lambda: jpeg(restart_marker_rows=1, optimize=True),
    "one segment of Huffman tables": lambda: grouped(HUFFMAN),
    "one segment of other tables": lambda: grouped(QUANTISATION),
    "the frame behind its tables": frame_last,
}


@pytest.mark.parametrize("name", LIKE)
def test_extra_files_are_put_together_as_real_ones(tmp_path: Path, name: str) -> None:
    photos = folder(tmp_path / "photos", LIKE[name])
    assert mix(tmp_path, photos) == 0
    uploaded = sorted((tmp_path / "upload").glob("*/*"))
    assert len(uploaded) == 240
    assert {pixels(path) for path in photos.glob("*/*")} <= {pixels(path) for path in uploaded}
    assert len({shape(path) for path in uploaded}) == 1


@pytest.mark.parametrize("make", [other_numbers, other_frame])
def test_files_that_no_extra_one_can_be_like_are_refused_with_a_command_that_converts(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch, make: Callable[[], bytes]
) -> None:
    assert mix(tmp_path, folder(tmp_path / "photos", make)) == 2
    message = capsys.readouterr().err
    assert "a JPEG file of an unusual kind, which extra images cannot be" in message
    command = re.search(r"python -c .*\]\"", message)
    assert command is not None
    monkeypatch.chdir(tmp_path)
    subprocess.run([programs.python(), *shlex.split(command[0])[1:]], check=True)
    assert mix(tmp_path, tmp_path / "converted") == 0
