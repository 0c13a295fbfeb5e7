# SPDX-License-Identifier: Apache-2.0
"""Data sets as files: what is written has the layout of what was read, and says nothing."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import potl
from potl import ExtraTask
from potl._extra_task._files import SampleFile, read


def mixed(path: Path, out: Path, **names: Any) -> tuple[ExtraTask, SampleFile]:
    """Mixes a file or folder into `out`, and reads that."""
    file = read(path, **names)
    task = ExtraTask(ExtraTask.keygen(out.parent / "key"), like=file.data)
    file.write(out, *task.uploads())
    return task, read(out, **names)


def images(count: int = 300) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    draw = np.random.default_rng(0)
    return draw.integers(0, 256, (count, 16, 16, 3), dtype=np.uint8), np.arange(count) % 3


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_arrays_keep_names_types_and_what_else_is_there(tmp_path: Path, suffix: str) -> None:
    if suffix == ".safetensors":
        pytest.importorskip("safetensors")
    x, y = images()
    arrays = {"x_train": x, "y_train": y.astype(np.uint8), "x_test": x[:5]}
    from potl._extra_task._arrays import read_arrays, write_arrays

    write_arrays(tmp_path / f"in{suffix}", arrays)
    task, _ = mixed(tmp_path / f"in{suffix}", tmp_path / f"out{suffix}")
    found = read_arrays(tmp_path / f"out{suffix}")
    assert {name: one.dtype for name, one in found.items()} == {
        name: one.dtype for name, one in arrays.items()
    }
    assert len(found["x_train"]) == len(found["y_train"]) == 300 + task.planned.uploads
    assert (found["x_test"] == x[:5]).all()


def test_pickled_objects_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", x=np.array([{}], dtype=object), y=np.zeros(1))
    with pytest.raises(potl.MalformedError, match="cannot be read"):
        read(tmp_path / "in.npz")


def folder(root: Path, *, sizes: bool = False, suffix: str = ".png") -> None:
    image = pytest.importorskip("PIL.Image")
    x, y = images(120)
    for number, (one, label) in enumerate(zip(x, y, strict=True)):
        target = root / f"class {label}" / f"{number:03d}{suffix}"
        target.parent.mkdir(parents=True, exist_ok=True)
        picture = image.fromarray(one)
        if sizes and number % 3 == 0:
            picture = picture.resize((20, 24))
        picture.save(target)


@pytest.mark.parametrize("suffix", [".png", ".jpg"])
@pytest.mark.parametrize("sizes", [False, True])
def test_a_folder_of_images_keeps_its_classes_and_shows_no_extra_by_name_or_time(
    tmp_path: Path, suffix: str, sizes: bool
) -> None:
    folder(tmp_path / "in", sizes=sizes, suffix=suffix)
    task, again = mixed(tmp_path / "in", tmp_path / "out")
    files = sorted((tmp_path / "out").glob("*/*"))
    assert len(files) == 120 + task.planned.uploads
    assert {path.parent.name for path in files} == {"class 0", "class 1", "class 2"}
    assert {len(path.stem) for path in files} == {16}
    assert {path.suffix for path in files} == {suffix}
    assert len({path.stat().st_mtime_ns for path in files}) == 1
    image = pytest.importorskip("PIL.Image")

    def pixels(path: Path) -> tuple[object, ...]:
        picture = image.open(path)
        return picture.mode, picture.size, picture.tobytes()

    # Files lose their metadata, the JFIF header of a JPEG too; no pixel changes.
    real = {pixels(path) for path in (tmp_path / "in").glob("*/*")}
    written = {pixels(path) for path in files}
    assert real < written
    assert len(written - real) == task.planned.uploads
    assert len(again.data) == len(files)
    if suffix == ".jpg":
        tables = {str(image.open(path).quantization) for path in files}
        assert len(tables) == 1


def test_a_folder_without_images_and_a_broken_image_are_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(potl.UsageError, match="no images"):
        read(tmp_path / "empty")
    folder(tmp_path / "in")
    (tmp_path / "in" / "class 0" / "000.png").write_bytes(b"no image")
    with pytest.raises(potl.MalformedError, match=r"000\.png"):
        read(tmp_path / "in")


def sentences(count: int, seed: int) -> list[str]:
    draw = np.random.default_rng(seed)
    return [
        " ".join(f"word{n}" for n in draw.integers(0, 300, draw.integers(30, 60)))
        for _ in range(count)
    ]


def test_texts_in_csv_keep_columns_labels_and_quoting(tmp_path: Path) -> None:
    titles, bodies = sentences(300, 0), sentences(300, 1)
    with (tmp_path / "in.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        for number in range(300):
            title = titles[number].split()
            writer.writerow([number % 4 + 1, " ".join(title[:8]) + ', "a"', bodies[number]])
    task, again = mixed(tmp_path / "in.csv", tmp_path / "out.csv", labels="1")
    assert task._form.items.names == ["1", "2", "3", "4"]
    with (tmp_path / "out.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    with (tmp_path / "in.csv").open(newline="") as file:
        real = [tuple(row) for row in csv.reader(file)]
    extras = [row for row in rows if tuple(row) not in set(real)]
    assert len(extras) == 200
    assert all(len(row) == 3 and row[0] in "1234" for row in extras)
    assert all(5 <= len(row[1].split()) <= 15 < len(row[2].split()) for row in extras)
    assert len(again.data) == 500


def test_a_table_in_csv_keeps_how_its_numbers_are_written(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    rows = [
        [*(f"{value:.2f}" for value in draw.normal(size=10)), str(draw.integers(5)), "yes"]
        for _ in range(150)
    ] + [[*(f"{v:.2f}" for v in draw.normal(size=10)), "3", "no"] for _ in range(150)]
    text = "\n".join(",".join(row) for row in [[*"abcdefghijk", "label"], *rows])
    (tmp_path / "in.csv").write_text(text + "\n")
    _, again = mixed(tmp_path / "in.csv", tmp_path / "out.csv")
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert lines[0] == "a,b,c,d,e,f,g,h,i,j,k,label"
    cells = {column: {row[column] for row in rows} for column in range(12)}
    for line in lines[1:]:
        for column, cell in enumerate(line.split(",")):
            assert cell in cells[column]
    assert len(again.data) == 500


def test_json_lines_keep_their_members(tmp_path: Path) -> None:
    lines = [
        json.dumps({"label": number % 2, "text": one})
        for number, one in enumerate(sentences(300, 0))
    ]
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n")
    _, again = mixed(tmp_path / "in.jsonl", tmp_path / "out.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len(rows) == len(again.data) == 500
    assert {tuple(row) for row in rows} == {("label", "text")}
    assert {type(row["label"]) for row in rows} == {int}


def test_rows_in_json_lines_have_whole_numbers_where_real_ones_have(tmp_path: Path) -> None:
    draw = np.random.default_rng(3)
    lines = [
        json.dumps({"x": [*map(int, draw.integers(0, 90, 4)), *draw.random(4)], "y": number % 2})
        for number in range(300)
    ]
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n")
    mixed(tmp_path / "in.jsonl", tmp_path / "out.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len(rows) == 500
    assert {tuple(map(type, row["x"])) for row in rows} == {(int,) * 4 + (float,) * 4}


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.csv", "a,b\nc\n", "row 2"),
        ("a.csv", "1,2\n3,4\n", "--labels"),
        ("a.csv", "", "no rows"),
        ("a.jsonl", "{", "line by line"),
        ("a.jsonl", '{"text": "a", "label": 1, "id": 3}\n', "beside"),
        ("a.jsonl", "[1]\n", "not objects"),
        ("a.txt", "a", "not known"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, name: str, text: str, words: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises((potl.MalformedError, potl.UsageError)) as caught:
        read(tmp_path / name)
    assert words in f"{caught.value.message} {caught.value.remedy}"


def test_nothing_is_replaced(tmp_path: Path) -> None:
    x, y = images()
    np.savez(tmp_path / "in.npz", x=x, y=y)
    (tmp_path / "out.npz").write_text("mine")
    with pytest.raises(potl.UsageError, match="not replaced"):
        mixed(tmp_path / "in.npz", tmp_path / "out.npz")
    assert (tmp_path / "out.npz").read_text() == "mine"
