# SPDX-License-Identifier: Apache-2.0
"""Files of questions to a model that answers elsewhere, and of its answers, as people and programs
write them.

What cannot be read as an answer is an error that names the line: nothing is judged, and no
submission is spent on a file that was written wrongly. Numbers that a program handed in (JSON,
arrays) and that are not classes stay as they are, and are judged: they may be all that a model
says.
"""

from __future__ import annotations

import csv
import functools
import io
import itertools
import json
import math
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._base._errors import LimitError, MalformedError, UsageError
from ._arrays import read_arrays, write_arrays
from ._extra_task import ExtraTask
from ._form import Form
from ._questions import asked
from ._values import Floats, carrier_of
from ._writing import require_new, whole

_BATCH = 1024
_STRUCTURED = (".npz", ".safetensors", ".json")
# Who answers may be the cheat: no more bytes than this are read or unpacked. Where there are
# classes, the client's questions say what answers to them take, also of a model of many outputs.
_MOST_TEXT, _MOST_ARRAY = 1 << 26, 1 << 31
_MOST_OF_ONE, _MOST_OF_A_SCORE = 1 << 14, 64
_OF_NUMBERS = ("array", "tensor", "list", "tuple")
_NUMBERED = re.compile(r"0*(\d{1,9})(\.png)?")
_SHOWN, _SHOWN_OF_ONE = 5, 60


def write_questions(task: ExtraTask, path: Path) -> int:
    """Writes all inputs, in the secret order in which answers are expected; returns their number.

    A folder gets images 00000.png, ...; .npz and .safetensors an array "x"; .jsonl and .csv a line
    each.
    """
    questions = task.questions()
    inputs: list[Any] = []
    for first in range(0, len(questions), _BATCH):
        inputs += task.inputs(questions[first : first + _BATCH])
    if task._form.pairs:
        inputs = [one[:-1] for one in inputs]
    carrier = carrier_of(inputs[0])
    with whole(path) as made:
        if path.suffix in (".npz", ".safetensors") and carrier in _OF_NUMBERS:
            write_arrays(made, {"x": np.stack([np.asarray(one) for one in inputs])})
        elif path.suffix in (".jsonl", ".csv") and carrier != "pil":
            require_new(made)
            plain = [one if carrier == "str" else np.asarray(one).tolist() for one in inputs]
            with made.open("w", encoding="utf-8", newline="") as file:
                if path.suffix == ".jsonl":
                    file.writelines(json.dumps({"input": one}) + "\n" for one in plain)
                else:
                    rows = [[one] if carrier == "str" else one for one in plain]
                    csv.writer(file, lineterminator="\n").writerows(rows)
        elif not path.suffix and carrier == "pil":
            made.mkdir(parents=True)
            for number, image in enumerate(inputs):
                image.save(made / f"{number:05d}.png")
        else:
            raise UsageError(
                f"inputs of this data set cannot be written to {path}",
                "images go to a folder, arrays to .npz or .safetensors, texts to .jsonl or .csv",
            )
    return len(inputs)


def read_answers(task: ExtraTask, path: Path) -> tuple[Floats, Floats]:
    """Answers in the order of the questions: an array in .npz or .safetensors, a list in .json, or
    a line each: names of classes, class numbers, rows of scores, or errors.

    Raises:
        MalformedError: They cannot be read.
        UsageError: They are too many or too few, have the wrong form, or one is not an answer.
    """
    if not path.is_file():
        raise UsageError(f"there are no answers {path}", "check the path")
    values: Any
    questions, classes = task.questions(), task._form.classes
    is_array = path.suffix in (".npz", ".safetensors")
    most = _MOST_ARRAY if is_array else _MOST_TEXT
    if classes:
        most = min(most, len(questions) * (_MOST_OF_ONE + classes * _MOST_OF_A_SCORE))
    _require_at_most(path, most)
    if is_array:
        arrays = read_arrays(path)
        if len(arrays) != 1:
            raise UsageError(f"{path} holds {len(arrays)} arrays", "leave the one of answers")
        [values] = arrays.values()
    else:
        try:
            text = path.read_text(encoding="utf-8-sig")
            values = json.loads(text) if path.suffix == ".json" else None
        except (ValueError, RecursionError) as error:
            raise MalformedError(f"{path} cannot be read: {error}", "") from error
    if path.suffix not in _STRUCTURED:
        values = _lines(text, path, task._form, len(questions))
    is_list = isinstance(values, list) or (isinstance(values, np.ndarray) and values.ndim > 0)
    if not is_list or len(values) != len(questions):
        raise _wrong_count(len(values) if is_list else "no", len(questions))
    values = _classes(values, path, task._form)
    out = []
    for first in range(0, len(questions), _BATCH):
        inputs = task.inputs(questions[first : first + _BATCH])
        given = values[first : first + _BATCH]
        out.append(asked(functools.partial(_given, given), inputs, task._form))
    return task._sorted(np.concatenate(out))


def _require_at_most(path: Path, most: int) -> None:
    size = path.stat().st_size
    if path.suffix == ".npz":
        try:
            with zipfile.ZipFile(path) as packed:
                size = sum(one.file_size for one in packed.infolist())
        except zipfile.BadZipFile as error:
            raise MalformedError(f"{path} cannot be read: {error}", "") from error
    if size > most:
        raise LimitError(
            f"{path} holds {size} bytes, more than the {most} that answers may take",
            "answer with class numbers, one error per question, or a .npz of float32",
        )


def _given(answers: Any, inputs: list[Any]) -> Any:
    return answers


def _lines(text: str, path: Path, form: Form, count: int) -> list[Any]:
    """Answers of a text file, a line each: names of classes, class numbers, rows of scores, or
    errors. A header and a column with the questions' numbers are understood.

    Names come first: where classes are called 1, 2 and 3, "1" is that class.

    Raises:
        UsageError: A line is not an answer.
    """
    names = list(_named(form))
    lines = [line.strip() for line in text.split("\n") if line.strip()] if names else []
    if names and len(lines) == count and set(lines) <= set(names):
        return lines  # also names with commas and quotes
    rows = _cells(text, path, count + 1)
    header = rows.pop(0) if len(rows) == count + 1 and _is_header(rows[0], names) else None
    if len(rows) != count:
        raise _wrong_count(len(rows) if len(rows) <= count else f"more than {count}", count)
    rows, header = _in_order(rows, header)
    width = len(rows[0])
    for number, row in enumerate(rows, 1):
        if len(row) != width:
            raise UsageError(
                f"{path}: answer {number} has {len(row)} cells, the first one {width}",
                "write one answer per line",
            )
    if width == 1:
        return _single([row[0] for row in rows], path, form)
    for number, row in enumerate(rows, 1):
        for cell in row:
            if _number(cell) is None:
                raise UsageError(
                    f"{path}: answer {number} has a cell {_short(cell)} that is not a number",
                    "write a class, or a score for each class",
                )
    scores = [[float(cell) for cell in row] for row in rows]
    if names and header is not None and sorted(header) == sorted(names):
        places = [header.index(name) for name in names]
        scores = [[row[place] for place in places] for row in scores]
    return scores


def _classes(values: Any, path: Path, form: Form) -> Any:
    """Answers with names of classes as their numbers; others as they are.

    Raises:
        UsageError: A name is none of a class, or numbers of classes begin elsewhere than at 0.
    """
    if isinstance(values, np.ndarray) and values.dtype.kind in "USO" and values.ndim == 1:
        values = values.tolist()
    known = _named(form)
    if isinstance(values, list) and any(isinstance(one, str) for one in values):
        found = [known.get(one.strip()) if isinstance(one, str) else None for one in values]
        if None in found:
            wrong = found.index(None)
            raise _no_class(path, wrong + 1, values[wrong], form)
        return np.array(found, np.float64)
    numbers = _whole(values)
    if numbers is None or not known or {*numbers} <= {*known.values()}:
        return values
    if {str(one) for one in numbers} <= {*known}:
        return np.array([known[str(one)] for one in numbers], np.float64)
    wrong = next(place for place, one in enumerate(numbers) if one not in known.values())
    raise _no_class(path, wrong + 1, numbers[wrong], form)


def _wrong_count(count: int | str, wanted: int) -> UsageError:
    """Answers that are too many, too few, or no list."""
    return UsageError(
        f"there are {count} answers to {wanted} questions", "answer each, in their order"
    )


def _named(form: Form) -> dict[str, int]:
    """By the name of each class, as cells hold it, what stands for it in numbers: its label, where
    labels are numbers. Empty without classes.
    """
    if not form.classes:
        return {}
    plain = [str(label) for label in form.labels]
    stripped = [label.strip() for label in plain]
    names = stripped if len(set(stripped)) == len(stripped) else plain
    return dict(zip(names, form.items.values or range(form.classes), strict=True))


def _cells(text: str, path: Path, most: int) -> list[list[str]]:
    """The cells of each line that is not empty; of more than `most` lines no more than tell so."""
    delimiter = "\t" if path.suffix == ".tsv" else ","
    try:
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        found = (cells for row in rows if any(cells := [cell.strip() for cell in row]))
        return list(itertools.islice(found, most + 1))
    except csv.Error as error:
        raise UsageError(f"{path} cannot be read: {error}", "write one answer per line") from error


def _is_header(row: Sequence[str], names: Sequence[str]) -> bool:
    """Whether a line more than there are questions names columns."""
    if names and sorted(names) in (sorted(row), sorted(row[1:])):
        return True  # scores, a column for each class
    return row[-1] not in names and all(_number(cell) is None for cell in row)


def _in_order(
    rows: list[list[str]], header: list[str] | None
) -> tuple[list[list[str]], list[str] | None]:
    """The rows without the column of the questions' numbers, in the order of these."""
    if len(rows[0]) < 2:
        return rows, header
    found = [_NUMBERED.fullmatch(row[0]) for row in rows]
    numbers = [int(one[1]) for one in found if one]
    first = min(numbers, default=0)
    if first > 1 or sorted(numbers) != list(range(first, first + len(rows))):
        return rows, header
    ordered: list[list[str]] = [[]] * len(rows)
    for number, row in zip(numbers, rows, strict=True):
        ordered[number - first] = row[1:]
    return ordered, None if header is None else header[1:]


def _single(cells: Sequence[str], path: Path, form: Form) -> list[Any]:
    names = _named(form)
    if names and set(cells) <= set(names):
        return list(cells)
    numbers = [_number(cell) for cell in cells]
    known = frozenset(names.values())
    # What is not finite says that a model had no answer; without classes all are errors.
    is_number = [
        one is not None and (not known or not math.isfinite(one) or one in known) for one in numbers
    ]
    if not all(is_number):
        # What is neither name nor number, or else what is not of the first answer's kind.
        neither = [not ok and cell not in names for cell, ok in zip(cells, is_number, strict=True)]
        other = is_number.index(not is_number[0]) if any(is_number) else 0
        line = neither.index(True) if any(neither) else other
        raise _no_class(path, line + 1, cells[line], form)
    return numbers


def _no_class(path: Path, line: int, answer: Any, form: Form) -> UsageError:
    names = list(_named(form))
    if not names:
        return UsageError(
            f"{path}: answer {line} is {_short(answer)}, which is not a number",
            "write one error per question",
        )
    if len(names) > _SHOWN:
        names = [*names[:_SHOWN], f"{len(names) - _SHOWN} more"]
    known = f"names are {', '.join(names)}; or " if form.items.names else ""
    known += (
        f"labels are {', '.join(names)}"
        if form.items.values
        else f"class numbers are 0 to {form.classes - 1}"
    )
    return UsageError(f"{path}: answer {line} is {_short(answer)}, which is not a class", known)


def _short(answer: Any) -> str:
    """An answer in a message, however long who answered made it."""
    text = repr(answer)
    return text if len(text) <= _SHOWN_OF_ONE else text[:_SHOWN_OF_ONE] + "..."


def _number(cell: str) -> float | None:
    try:
        return float(cell) if "_" not in cell else None
    except ValueError:
        return None


def _whole(values: Any) -> list[int] | None:
    """The whole numbers that these are; None: they are something else."""
    if isinstance(values, np.ndarray):
        if values.ndim != 1 or values.dtype.kind not in "iuf":
            return None
        values = values.tolist()
    out = []
    for one in values:
        if isinstance(one, bool) or not isinstance(one, (int, float)):
            return None
        if isinstance(one, float) and not one.is_integer():  # also what is not finite
            return None
        out.append(int(one))
    return out
