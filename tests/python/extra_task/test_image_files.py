# SPDX-License-Identifier: Apache-2.0
"""Image folders for the extra task: stored alike, or refused with what to do."""

from __future__ import annotations

import collections
import os
import re
import shlex
import signal
import struct
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import programs
import pytest

pytest.importorskip("torch")
image_module = pytest.importorskip("PIL.Image")
pytest.importorskip("sklearn")

from extra_task_cases import key_of  # noqa: E402

from potl import ExtraKey  # noqa: E402
from potl._cli import _cli  # noqa: E402

DRAW = np.random.default_rng(7)


def colours(channels: int = 3) -> Any:
    values = DRAW.integers(0, 256, (16, 16, channels), np.uint8)
    return image_module.fromarray(values)


def folder(root: Path, make: Callable[[], Any], ending: str, **options: Any) -> Path:
    for number in range(40):
        path = root / "ab"[number % 2] / f"{number}{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        make().save(path, **options)
    return root


def mix(tmp_path: Path, data: Path, upload: str = "upload", *words: str) -> int:
    return _cli.run(["extra-task", "mix", str(data), str(tmp_path / upload), "--key",
                     str(key_of(tmp_path / "k")), *words])  # fmt: skip


def told(path: Path) -> tuple[Any, ...]:
    """What a file tells beside its pixels and their number of bytes."""
    with image_module.open(path) as image:
        image.load()
        tags = tuple(sorted(getattr(image, "tag_v2", ())))
        return image.format, image.mode, image.size, tags, image.info.get("compression")


def deep() -> Any:
    return image_module.fromarray(DRAW.integers(0, 65536, (16, 16), dtype=np.uint16))


REFUSED: dict[str, tuple[Callable[[], Any], str, dict[str, Any], str]] = {
    "palette": (lambda: colours().quantize(64), ".png", {}, "mode P"),
    "palette bmp": (lambda: colours().quantize(64), ".bmp", {}, "mode P"),
    "grey and alpha": (lambda: colours().convert("LA"), ".png", {}, "mode LA"),
    "one bit": (lambda: colours().convert("1"), ".png", {}, "mode 1"),
    "16 bits": (deep, ".png", {}, "mode I;16"),
    "16 bits tiff": (deep, ".tif", {}, "mode I;16"),
    "four inks": (lambda: colours().convert("CMYK"), ".jpg", {}, "mode CMYK"),
    "floats": (lambda: colours().convert("F"), ".tif", {}, "mode F"),
    "jpeg in tiff": (colours, ".tif", {"compression": "jpeg"}, "jpeg inside"),
    "lossy webp": (colours, ".webp", {}, "lossy WebP"),
    "colours of a jpeg": (colours, ".jpg", {"keep_rgb": True}, "unusual"),
    "transparent colour": (colours, ".png", {"transparency": (1, 2, 3)}, "transparent"),
    "pages": (colours, ".tif", {"save_all": True, "append_images": [colours()]}, "2 images"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_images_that_extra_ones_cannot_be_are_refused_with_a_command_that_converts(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    make, ending, options, what = REFUSED[name]
    photos = folder(tmp_path / "photos", make, ending, **options)
    assert mix(tmp_path, photos) == 2
    message = capsys.readouterr().err
    assert what in message
    assert not (tmp_path / "upload").exists()
    assert not (tmp_path / "k.json").exists()
    if name == "floats":
        assert "scale the images" in message
        return
    command = re.search(r"python -c .*\]\"", message)
    assert command is not None, message
    monkeypatch.chdir(tmp_path)
    words = shlex.split(command[0])
    subprocess.run([programs.python(), *words[1:]], check=True)
    assert mix(tmp_path, tmp_path / "converted") == 0
    assert len({told(path) for path in (tmp_path / "upload").glob("*/*")}) == 1
    # Not all black or white: depth is scaled, not cut off.
    with image_module.open(next((tmp_path / "converted").glob("*/*"))) as image:
        assert len(np.unique(np.asarray(image))) > (1 if name == "one bit" else 40)


def png(bits: int, colour: int, channels: int) -> bytes:
    """A file that Pillow reads with 8 bits, and does not write."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    head = struct.pack(">IIBBBBB", 16, 16, bits, colour, 0, 0, 0)
    rows = b"".join(b"\0" + DRAW.bytes(16 * channels * bits // 8) for _ in range(16))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        chunk(name, data)
        for name, data in ((b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    )


@pytest.mark.parametrize(
    ("bits", "colour", "channels"), [(16, 2, 3), (16, 6, 4), (16, 4, 2), (4, 0, 1), (2, 0, 1)]
)
def test_a_png_file_of_another_depth_is_refused(
    tmp_path: Path, capsys: Any, bits: int, colour: int, channels: int
) -> None:
    photos = folder(tmp_path / "photos", colours, ".png")
    (photos / "a" / "odd.png").write_bytes(png(bits, colour, channels))
    assert mix(tmp_path, photos) == 2
    assert f"odd.png is an image of {bits} bits" in capsys.readouterr().err


STORED: list[tuple[str, str, dict[str, Any]]] = [
    (mode, ending, options)
    for mode in ("L", "RGB", "RGBA")
    for ending, options in [
        (".tif", {}),
        (".tif", {"compression": "tiff_lzw", "description": "a scan", "dpi": (300, 300)}),
        (".tiff", {"compression": "packbits"}),
        (".tif", {"compression": "tiff_adobe_deflate"}),
        (".webp", {"lossless": True, "exact": True}),
        (".bmp", {}),
    ]
    # Neither has these.
    if (mode, ending) not in (("L", ".webp"), ("RGBA", ".bmp"))
]


@pytest.mark.parametrize(("mode", "ending", "options"), STORED)
def test_extra_images_are_stored_as_real_ones_whose_pixels_stay(
    tmp_path: Path, mode: str, ending: str, options: dict[str, Any]
) -> None:
    photos = folder(tmp_path / "photos", lambda: colours(4).convert(mode), ending, **options)
    if ending == ".webp":
        assert b"VP8L" in next(photos.glob("*/*")).read_bytes()[:64]
    assert mix(tmp_path, photos) == 0
    uploaded = sorted((tmp_path / "upload").glob("*/*"))
    assert len(uploaded) == 240
    assert len({told(path) for path in uploaded}) == 1
    if ending == ".webp":
        assert {path.read_bytes()[12:16] for path in uploaded} == {b"VP8L"}
    kept = collections.Counter(pixels(path) for path in uploaded)
    assert {pixels(path) for path in photos.glob("*/*")} <= set(kept)
    assert told(uploaded[0])[1:3] == (mode, (16, 16))


def pixels(path: Path) -> bytes:
    with image_module.open(path) as image:
        return bytes(image.tobytes())


def test_a_photograph_with_a_second_picture_in_its_file_is_like_any_other(tmp_path: Path) -> None:
    photos = folder(tmp_path / "photos", colours, ".jpg", format="MPO", save_all=True,
                    append_images=[colours()])  # fmt: skip
    with image_module.open(next(photos.glob("*/*"))) as image:
        assert image.format == "MPO"
    assert mix(tmp_path, photos) == 0
    forms = {told(path) for path in (tmp_path / "upload").glob("*/*")}
    assert forms == {("JPEG", "RGB", (16, 16), (), None)}


@pytest.mark.parametrize("what", ["a/deep/1.png", "a/1.gif", "c/1.ppm", "a/readme.txt", "1.png"])
def test_files_that_would_not_be_uploaded_are_named(tmp_path: Path, capsys: Any, what: str) -> None:
    photos = folder(tmp_path / "photos", colours, ".png")
    (photos / what).parent.mkdir(parents=True, exist_ok=True)
    (photos / what).write_bytes(next(photos.glob("*/*.png")).read_bytes())
    assert mix(tmp_path, photos) == 2
    named = "a/deep" if "deep" in what else what
    assert f"holds {named}, which would not be in the upload" in capsys.readouterr().err
    assert not (tmp_path / "k.json").exists()


def test_what_systems_put_into_folders_is_no_sample(tmp_path: Path) -> None:
    photos = folder(tmp_path / "photos", colours, ".png")
    for litter in (".DS_Store", "a/.DS_Store", "b/Thumbs.db"):
        (photos / litter).write_bytes(b"x")
    (photos / ".cache").mkdir()
    assert mix(tmp_path, photos) == 0
    names = sorted(one.name for one in (tmp_path / "upload").iterdir())
    assert names == ["a", "b"]


@pytest.mark.parametrize("command", ["mix", "make"])
def test_an_upload_that_is_not_finished_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    photos = folder(tmp_path / "photos", colours, ".png")
    what = "plain" if command == "mix" else "like_file"
    monkeypatch.setattr(f"potl._extra_task._folders.{what}", lambda *_: 1 / 0)
    words = ["extra-task", command, str(photos), str(tmp_path / "upload"), "--key",
             str(key_of(tmp_path / "k"))]  # fmt: skip
    assert _cli.run(words) == 3
    assert not (tmp_path / "upload").exists()
    assert ExtraKey(tmp_path / "k")._known()["uses"] == []


def test_what_a_kill_left_of_an_upload_has_not_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos = folder(tmp_path / "photos", colours, ".png")
    words = ["extra-task", "mix", str(photos), str(tmp_path / "upload"), "--key",
             str(key_of(tmp_path / "k"))]  # fmt: skip
    child = os.fork()
    if not child:
        written = []

        def plain(source: Path) -> bytes:
            written.append(source)
            if len(written) == 5:
                os.kill(os.getpid(), signal.SIGKILL)
            return source.read_bytes()

        monkeypatch.setattr("potl._extra_task._folders.plain", plain)
        os._exit(_cli.run(words))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert not (tmp_path / "upload").exists()
    assert _cli.run(words) == 0  # and says that the key was used
