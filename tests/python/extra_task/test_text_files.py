# SPDX-License-Identifier: Apache-2.0
"""Texts and tables in files for the extra task: nothing is lost, spoilt or guessed on the way."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")

from extra_task_cases import key_of

from potl._cli import _cli

DRAW = np.random.default_rng(3)
WORDS = [f"w{number}" for number in range(300)]
NUMBERS = [[str(one) for one in row] for row in DRAW.normal(size=(300, 8)).round(3)]
COLUMNS = [f"f{number}" for number in range(8)]


def text() -> str:
    return " ".join(DRAW.choice(WORDS, 20))


def write(path: Path, rows: Sequence[Sequence[Any]], encoding: str = "utf-8") -> Path:
    with path.open("w", newline="", encoding=encoding) as file:
        csv.writer(file).writerows(rows)
    return path


def mix(tmp_path: Path, data: Path, *words: str, out: str = "") -> int:
    target = tmp_path / (out or "up" + data.suffix)
    return _cli.run(["extra-task", "mix", str(data), str(target), "--key",
                     str(key_of(tmp_path / "k")), *words])  # fmt: skip


def untouched(tmp_path: Path) -> bool:
    """Neither an upload nor a use of the key."""
    return not (tmp_path / "k.json").exists() and not list(tmp_path.glob("up*"))


def rows_of(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def table(tmp_path: Path, **changes: str) -> Path:
    """A table in which some cells are others: column=value."""
    rows = [[*row, str(number % 3)] for number, row in enumerate(NUMBERS)]
    for name, value in changes.items():
        rows[5][COLUMNS.index(name)] = value
    return write(tmp_path / "t.csv", [[*COLUMNS, "label"], *rows])


@pytest.mark.parametrize("kind", [(), ("--kind", "table")])
@pytest.mark.parametrize("cell", ["", "unknown"])
def test_a_table_with_a_cell_that_is_no_number_does_not_become_text(
    tmp_path: Path, capsys: Any, cell: str, kind: tuple[str, ...]
) -> None:
    assert mix(tmp_path, table(tmp_path, f2=cell), *kind) == 2
    message = capsys.readouterr().err
    assert f"row 6 has {cell!r} as 'f2'" in message
    assert "fill what is missing" in message
    assert untouched(tmp_path)


def test_a_table_with_a_column_of_categories_does_not_become_text(
    tmp_path: Path, capsys: Any
) -> None:
    rows = [[*row, ("red", "blue")[number % 2], number % 3] for number, row in enumerate(NUMBERS)]
    data = write(tmp_path / "t.csv", [[*COLUMNS, "colour", "label"], *rows])
    assert mix(tmp_path, data) == 2
    assert "8 of 9 columns hold numbers, and row 1 has 'red'" in capsys.readouterr().err
    assert mix(tmp_path, data, "--kind", "table") == 2
    assert untouched(tmp_path)
    assert mix(tmp_path, data, "--kind", "text") == 0


def test_the_names_of_columns_are_no_row(tmp_path: Path) -> None:
    assert mix(tmp_path, write(tmp_path / "t.csv", [COLUMNS, *NUMBERS]), "--unlabelled") == 0
    rows = rows_of(tmp_path / "up.csv")
    assert rows[0] == COLUMNS
    assert len(rows) == 501
    assert all(float(cell) is not None for row in rows[1:] for cell in row)
    texts = write(tmp_path / "u.csv", [["body"], *[[text()] for _ in range(300)]])
    assert mix(tmp_path, texts, "--unlabelled", out="up2.csv") == 0
    assert [row for row in rows_of(tmp_path / "up2.csv") if row == ["body"]] == [["body"]]
    assert rows_of(tmp_path / "up2.csv")[0] == ["body"]


@pytest.mark.parametrize("name", ["id", "", "number"])
def test_a_column_that_numbers_rows_is_refused(tmp_path: Path, capsys: Any, name: str) -> None:
    rows = [[number, text(), number % 2] for number in range(300)]
    assert mix(tmp_path, write(tmp_path / "t.csv", [[name, "text", "label"], *rows])) == 2
    assert f"the column {name!r} numbers the rows" in capsys.readouterr().err
    assert untouched(tmp_path)


def test_a_row_without_a_label_is_named(tmp_path: Path, capsys: Any) -> None:
    rows = [[text(), ("pos", "neg", "")[number % 3]] for number in range(300)]
    assert mix(tmp_path, write(tmp_path / "t.csv", [["text", "label"], *rows])) == 2
    assert "row 3 has no label" in capsys.readouterr().err
    assert untouched(tmp_path)


@pytest.mark.parametrize("out", ["up.jsonl", "up.npz", "up.tsv", "up", "up.zip"])
def test_an_ending_that_does_not_fit_is_refused(tmp_path: Path, capsys: Any, out: str) -> None:
    assert mix(tmp_path, table(tmp_path), out=out) == 2
    assert "ends with .csv" in capsys.readouterr().err
    assert untouched(tmp_path)


def test_arrays_change_between_their_two_kinds_of_files_alone(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    data = tmp_path / "a.npz"
    np.savez(data, x=DRAW.random((300, 8, 8)), y=np.arange(300) % 2)
    assert mix(tmp_path, data, out="up.csv") == 2
    assert untouched(tmp_path)
    assert mix(tmp_path, data, out="up.safetensors") == 0


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path: Path) -> None:
    rows = [[("pos", "neg")[number % 2], text()] for number in range(300)]
    data = write(tmp_path / "t.csv", [["label", "text"], *rows], "utf-8-sig")
    assert mix(tmp_path, data) == 0
    assert (tmp_path / "up.csv").read_bytes().startswith(data.read_bytes()[:13] + b"\n")
    assert len(rows_of(tmp_path / "up.csv")) == 501


def test_columns_that_something_else_separates_are_one(tmp_path: Path, capsys: Any) -> None:
    data = tmp_path / "t.csv"
    data.write_text("text;label\n" + "".join(f"{text()};{number % 2}\n" for number in range(300)))
    assert mix(tmp_path, data) == 2
    assert "has one column (separate columns by commas in .csv" in capsys.readouterr().err


def test_other_encodings_are_named(tmp_path: Path, capsys: Any) -> None:
    rows = [[text() + " \xe9", number % 2] for number in range(300)]
    assert mix(tmp_path, write(tmp_path / "t.csv", [["text", "label"], *rows], "latin-1")) == 4
    assert "save it as UTF-8" in capsys.readouterr().err


def lines(path: Path, rows: Sequence[Any]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows),
                    encoding="utf-8", errors="surrogatepass")  # fmt: skip
    return path


def test_separators_of_unicode_do_not_end_a_line_of_json(tmp_path: Path) -> None:
    rows = [{"text": text() + " a\u2028b \x85 c", "label": number % 2} for number in range(300)]
    assert mix(tmp_path, lines(tmp_path / "t.jsonl", rows)) == 0
    written = (tmp_path / "up.jsonl").read_text(encoding="utf-8").rstrip("\n").split("\n")
    assert len(written) == 500
    assert {row["text"] for row in rows} <= {json.loads(line)["text"] for line in written}


def test_what_json_can_say_and_utf_8_cannot_is_escaped_everywhere(tmp_path: Path) -> None:
    data = tmp_path / "t.jsonl"
    data.write_text("".join(
        json.dumps({"text": text() + " \ud800 \xe9", "label": number % 2}) + "\n"
        for number in range(300)))  # fmt: skip
    assert mix(tmp_path, data) == 0
    assert (tmp_path / "up.jsonl").read_bytes().isascii()


FLOATS = [0.5] * 12


@pytest.mark.parametrize(
    ("name", "odd", "what"),
    [
        ("text", None, "the text of line 8 is null"),
        ("text", 3, "the text of line 8 is a whole number"),
        ("x", [1, 2], "the x of line 8 has shape (2,), that of the first one (12,)"),
        ("x", ["a"] * 12, "the x of line 8 is not a list of numbers"),
        ("x", [[1], 2], "the x of line 8 is not a list of numbers"),
        ("label", None, "the label of line 8 is null"),
        ("label", True, "the label of line 8 is true"),
        ("label", "a", "the label of line 8 is a string"),
        ("label", 1.5, "the label of line 8 is a fraction"),
    ],
)
def test_a_line_that_is_unlike_the_others_is_named(
    tmp_path: Path, capsys: Any, name: str, odd: Any, what: str
) -> None:
    member = "x" if name == "x" else "text"
    rows: list[dict[str, Any]] = [
        {member: [float(one) for one in DRAW.normal(size=12)] if name == "x" else text(),
         "label": number % 3} for number in range(300)]  # fmt: skip
    rows[7][name] = odd
    assert mix(tmp_path, lines(tmp_path / "t.jsonl", rows)) == 2
    assert what in capsys.readouterr().err
    assert untouched(tmp_path)


def test_a_member_that_one_line_has_is_named(tmp_path: Path, capsys: Any) -> None:
    rows: list[dict[str, Any]] = [{"text": text(), "label": number % 3} for number in range(300)]
    rows[7]["weight"] = 1
    assert mix(tmp_path, lines(tmp_path / "t.jsonl", rows)) == 2
    assert "line 8 has weight beside text and label" in capsys.readouterr().err
    del rows[7]["weight"], rows[7]["label"]
    assert mix(tmp_path, lines(tmp_path / "t.jsonl", rows)) == 2
    assert "line 8 has not text and label" in capsys.readouterr().err
    assert untouched(tmp_path)


def test_texts_of_ids_may_differ_in_length(tmp_path: Path) -> None:
    rows = [{"input_ids": DRAW.integers(5, 900, 20 + number % 5).tolist(), "label": number % 3}
            for number in range(400)]  # fmt: skip
    assert mix(tmp_path, lines(tmp_path / "t.jsonl", rows)) == 0


def test_names_of_arrays_and_columns_are_no_options_of_a_folder(
    tmp_path: Path, capsys: Any
) -> None:
    (tmp_path / "photos" / "a").mkdir(parents=True)
    for words in (("--unlabelled",), ("--inputs", "x"), ("--labels", "y")):
        assert mix(tmp_path, tmp_path / "photos", *words, out="up") == 2
        assert "labels are the names of its folders" in capsys.readouterr().err
