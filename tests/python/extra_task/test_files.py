# SPDX-License-Identifier: Apache-2.0
"""Files that `potl extra-task mix` writes, looked at by a cloud that wants to find the extra ones:
by everything but what the samples show.
"""

from __future__ import annotations

import collections
import io
import itertools
import json
import os
import stat
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
image_module = pytest.importorskip("PIL.Image")
pytest.importorskip("sklearn")

from extra_task_cases import key_of  # noqa: E402

import potl  # noqa: E402
from potl._cli import _cli  # noqa: E402
from potl._extra_task import _jpeg_files  # noqa: E402

DRAW = np.random.default_rng(4)
CLASSES = ("cat", "dog")


def smooth() -> Any:
    """Something like a photograph."""
    small = DRAW.integers(0, 256, (6, 5, 3), dtype=np.uint8)
    return image_module.fromarray(small).resize((40, 48), image_module.Resampling.BICUBIC)


def photographs(root: Path, kind: str, **options: Any) -> None:
    """A folder of images with all that cameras and programs leave in them."""
    exif = image_module.Exif()
    exif[0x010F] = "A camera"
    for number in range(60):
        folder = root / CLASSES[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"IMG_{number:04d}.{kind}"
        if kind == "png":
            from PIL import PngImagePlugin

            text = PngImagePlugin.PngInfo()
            text.add_text("Software", "a program")
            smooth().save(path, pnginfo=text, dpi=(72, 72), compress_level=number % 9 + 1)
        else:
            smooth().save(path, exif=exif, comment=b"hello", dpi=(300, 300), **options)
        os.utime(path, (1e9 + number, 1e9 + number))


def mixed(tmp_path: Path, kind: str, **options: Any) -> tuple[Path, Path, set[bytes]]:
    """Original, upload, and the pixels of the extra samples as they are stored."""
    original, upload = tmp_path / "photos", tmp_path / "upload"
    photographs(original, kind, **options)
    key_of(tmp_path / "k")
    assert _cli.run(["extra-task", "mix", str(original), str(upload), "--key",
                     str(tmp_path / "k"), "--json"]) == 0  # fmt: skip
    real = {pixels(path) for path in original.glob("*/*")}
    extra = {pixels(path) for path in upload.glob("*/*")} - real
    return original, upload, extra


def pixels(path: Path) -> bytes:
    with image_module.open(path) as image:
        return bytes(image.tobytes())


def form_of(path: Path) -> str:
    """All that a file tells without its pixels."""
    data = path.read_bytes()
    state = path.stat()
    with image_module.open(path) as image:
        image.load()
        told = [image.mode, image.size, image.format, sorted(image.info), image.getexif() or None]
    if path.suffix == ".png":
        at = 8
        while at < len(data):
            size, name = struct.unpack(">I4s", data[at : at + 8])
            told.append(name if name != b"IDAT" else (name, data[at + 8 : at + 10]))
            at += 12 + size
    else:
        told += [
            (marker, len(segment) if marker != 0xDA and marker != 0xC4 else 0)
            for marker, segment in _jpeg_files.segments(data)
        ]
        told.append(data[-2:])
    name = path.name[:-4]
    assert len(name) == 16
    assert set(name) <= set("0123456789abcdef")
    told += [path.suffix, stat.S_IMODE(state.st_mode), state.st_mtime, len(name)]
    return str(told)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("png", {}),
        ("jpg", {"quality": 82}),
        ("jpg", {"quality": 91, "subsampling": 0, "progressive": True}),
        ("jpg", {"quality": 70, "optimize": True}),
    ],
)
def test_files_of_extra_images_are_like_those_of_real_ones(
    tmp_path: Path, kind: str, options: dict[str, Any]
) -> None:
    original, upload, extra = mixed(tmp_path, kind, **options)
    paths = sorted(upload.glob("*/*"))
    assert len(paths) == 260
    forms = {form_of(path) for path in paths}
    assert len(forms) == 1, forms
    for word in (b"camera", b"program", b"hello"):
        assert not any(word in path.read_bytes() for path in paths)
    assert len(extra) == 200
    by_class = collections.Counter(path.parent.name for path in paths)
    assert by_class == {"cat": 130, "dog": 130}
    # In no order of the folder do extra ones come together.
    for order in (sorted(paths), sorted(paths, key=lambda one: one.stat().st_ino),
                  sorted(paths, key=lambda one: one.stat().st_ctime_ns)):  # fmt: skip
        runs = 1 + sum((pixels(a) in extra) != (pixels(b) in extra)
                       for a, b in itertools.pairwise(order))  # fmt: skip
        assert runs > 60  # 92 +- 5 when they are shuffled
    assert {one.name for one in upload.iterdir()} == set(CLASSES)
    assert {path.stat().st_mtime for path in original.glob("*/*")} >= {1e9}


def test_a_jpeg_keeps_its_pixels_and_its_adobe_marker_where_it_counts(tmp_path: Path) -> None:
    file = io.BytesIO()
    smooth().convert("CMYK").save(file, "JPEG")
    plain = _jpeg_files.plain_jpeg(file.getvalue())
    assert b"Adobe" in plain
    with image_module.open(io.BytesIO(plain)) as image:
        wanted = image_module.open(io.BytesIO(file.getvalue()))
        assert image.tobytes() == wanted.tobytes()
    data = io.BytesIO()
    smooth().save(data, "JPEG", restart_marker_rows=1)
    whole = data.getvalue()
    kept = _jpeg_files.plain_jpeg(whole + b"and more")
    assert kept[-2:] == b"\xff\xd9"
    one, other = (image_module.open(io.BytesIO(each)) for each in (whole, kept))
    assert one.tobytes() == other.tobytes()
    for wrong in (b"", b"\xff\xd8", whole[:-2], whole[:300], b"\x00" + whole):
        with pytest.raises(ValueError, match="JPEG"):
            _jpeg_files.plain_jpeg(wrong)


def test_arrays_with_a_row_for_each_sample_are_refused(tmp_path: Path, capsys: Any) -> None:
    x, y = DRAW.random((300, 8, 8), dtype=np.float32), np.arange(300) % 2
    key_of(tmp_path / "k")
    np.savez(tmp_path / "a.npz", x=x, y=y, weight=np.ones(300))
    words = ["extra-task", "mix", str(tmp_path / "a.npz"), str(tmp_path / "b.npz"), "--key",
             str(tmp_path / "k")]  # fmt: skip
    assert _cli.run(words) == 2
    assert "weight" in capsys.readouterr().err
    np.savez(tmp_path / "a.npz", x=x, y=y, x_test=x, y_test=y, names=np.arange(2))
    assert _cli.run(words) == 0


def test_an_archive_has_the_names_order_and_times_of_any_other(tmp_path: Path) -> None:
    x, y = DRAW.random((300, 8, 8), dtype=np.float32), np.arange(300) % 2
    np.savez_compressed(tmp_path / "a.npz", labels=y, images=x)
    key_of(tmp_path / "k")
    assert _cli.run(["extra-task", "mix", str(tmp_path / "a.npz"), str(tmp_path / "b.npz"),
                     "--key", str(tmp_path / "k")]) == 0  # fmt: skip
    infos = []
    for name in ("a.npz", "b.npz"):
        with zipfile.ZipFile(tmp_path / name) as archive:
            infos.append([(one.filename, one.date_time, one.extra, one.comment)
                          for one in archive.infolist()])  # fmt: skip
    assert infos[0] == infos[1]
    with np.load(tmp_path / "b.npz") as file:
        real = {one.tobytes() for one in x}
        is_extra = np.array([one.tobytes() not in real for one in file["images"]])
        assert (is_extra.sum(), len(is_extra)) == (200, 500)
        # Labels of neighbours say nothing: as many equal ones as by chance, 250 +- 11.
        assert 190 < (np.diff(file["labels"]) == 0).sum() < 310
        assert 180 < (np.diff(is_extra.astype(int)) != 0).sum() < 300  # 240 +- 11


def test_lines_of_texts_are_written_one_way(tmp_path: Path) -> None:
    words = [f"w{number}" for number in range(300)]
    with (tmp_path / "a.jsonl").open("w") as file:
        for number in range(300):
            row = {"text": " ".join(DRAW.choice(words, 30)), "label": number % 2}
            spaces = (", ", ": ") if number % 3 else (",", ":")
            file.write(json.dumps(row, separators=spaces) + "\n")
    key_of(tmp_path / "k")
    assert _cli.run(["extra-task", "mix", str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl"),
                     "--key", str(tmp_path / "k")]) == 0  # fmt: skip
    lines = (tmp_path / "b.jsonl").read_text().splitlines()
    assert len(lines) == 500
    assert {line[:10] for line in lines} == {'{"text": "w'[:10]}
    assert {line[-13:] for line in lines} == {', "label": 0}', ', "label": 1}'}


def test_a_key_is_not_used_up_by_a_command_that_cannot_write(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=DRAW.random((300, 8, 8)), y=np.arange(300) % 2)
    key = key_of(tmp_path / "k")
    words = ["extra-task", "mix", str(tmp_path / "a.npz"), str(tmp_path / "a.npz"), "--key",
             str(key)]  # fmt: skip
    assert _cli.run(words) == 2
    assert potl.ExtraKey(key)._known()["uses"] == []


def test_a_search_among_large_images_looks_at_some_of_their_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from potl._extra_task import _search
    from potl._extra_task._images import Images

    monkeypatch.setattr(_search, "_LOOKED_AT", 128)
    draw = np.random.default_rng(0)
    smooth = np.repeat(np.repeat(draw.integers(0, 256, (400, 4, 4, 3), np.uint8), 28, 1), 28, 2)
    images = [*smooth, *draw.integers(0, 256, (3, 112, 112, 3), np.uint8)]
    # Of all 37,632 values the covariances would take 11 GB.
    found = _search.unusual(Images.learn(images), images, 3)
    assert sorted(found.tolist()) == [400, 401, 402]
