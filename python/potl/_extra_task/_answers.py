# SPDX-License-Identifier: Apache-2.0
"""Files of answers, read as people and programs write them.

What cannot be read as an answer is an error that names the line: nothing is judged, and no
submission is spent on a file that was written wrongly. Numbers that a program handed in (JSON,
arrays) and that are not classes stay as they are, and are judged: they may be all that a model
says.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._base._errors import UsageError
from ._form import Form

_NUMBERED = re.compile(r"0*(\d{1,9})(\.png)?")
_SHOWN = 5


def lines_of(text: str, path: Path, form: Form, count: int) -> list[Any]:
    """Answers of a text file, a line each: names of classes, class numbers, rows of scores, or
    errors. A header and a column with the questions' numbers are understood.

    Names come first: where classes are called 1, 2 and 3, "1" is that class.

    Raises:
        UsageError: A line is not an answer.
    """
    names = _labels(form)
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    if len(lines) == count and names and set(lines) <= set(names):
        return lines  # also names with commas and quotes
    rows = _cells(text, path)
    header = rows.pop(0) if len(rows) == count + 1 and _is_header(rows[0], names) else None
    if len(rows) != count:
        raise wrong_count(len(rows), count)
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
                    f"{path}: answer {number} has a cell {cell!r} that is not a number",
                    "write a class, or a score for each class",
                )
    scores = [[float(cell) for cell in row] for row in rows]
    if names and header is not None and sorted(header) == sorted(names):
        places = [header.index(name) for name in names]
        scores = [[row[place] for place in places] for row in scores]
    return scores


def classes_of(values: Any, path: Path, form: Form) -> Any:
    """Answers with names of classes as their numbers; others as they are.

    Raises:
        UsageError: A name is none of a class, or numbers of classes begin elsewhere than at 0.
    """
    names = _labels(form)
    if isinstance(values, np.ndarray) and values.dtype.kind in "USO":
        values = values.tolist()
    known: dict[str, int] = dict(zip(names, _numbers(form), strict=True))
    if isinstance(values, list) and any(isinstance(one, str) for one in values):
        found = [known.get(one.strip()) if isinstance(one, str) else None for one in values]
        if None in found:
            wrong = found.index(None)
            raise _no_class(path, wrong + 1, values[wrong], form)
        return np.array(found, np.float64)
    numbers = _whole(values)
    if numbers is None or not form.classes or _in_range(numbers, form):
        return values
    if {str(one) for one in numbers} <= set(names):
        return np.array([known[str(one)] for one in numbers], np.float64)
    classes = set(_numbers(form))
    wrong = next(place for place, one in enumerate(numbers) if one not in classes)
    raise _no_class(path, wrong + 1, numbers[wrong], form)


def wrong_count(count: int | str, wanted: int) -> UsageError:
    """Answers that are too many, too few, or no list."""
    return UsageError(
        f"there are {count} answers to {wanted} questions", "answer each, in their order"
    )


def _labels(form: Form) -> list[str]:
    """The labels of classes, as cells hold them."""
    if not form.classes:
        return []
    plain = [str(label) for label in form.labels]
    stripped = [label.strip() for label in plain]
    return stripped if len(set(stripped)) == len(stripped) else plain


def _numbers(form: Form) -> Sequence[int]:
    """What stands for each class in numbers: the labels, where these are some."""
    return form.items.values or range(form.classes)


def _cells(text: str, path: Path) -> list[list[str]]:
    delimiter = "\t" if path.suffix == ".tsv" else ","
    try:
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        return [cells for row in rows if any(cells := [cell.strip() for cell in row])]
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
    names = _labels(form)
    if names and set(cells) <= set(names):
        return list(cells)
    numbers = [_number(cell) for cell in cells]
    known = frozenset(_numbers(form))
    # What is not finite says that a model had no answer; without classes all are errors.
    is_number = [
        one is not None and (not form.classes or not math.isfinite(one) or one in known)
        for one in numbers
    ]
    if not all(is_number):
        # What is neither name nor number, or else what is not of the first answer's kind.
        neither = [not ok and cell not in names for cell, ok in zip(cells, is_number, strict=True)]
        other = is_number.index(not is_number[0]) if any(is_number) else 0
        line = neither.index(True) if any(neither) else other
        raise _no_class(path, line + 1, cells[line], form)
    return numbers


def _no_class(path: Path, line: int, answer: Any, form: Form) -> UsageError:
    names = _labels(form)
    if not form.classes:
        return UsageError(
            f"{path}: answer {line} is {answer!r}, which is not a number",
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
    return UsageError(f"{path}: answer {line} is {answer!r}, which is not a class", known)


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


def _in_range(numbers: Sequence[int], form: Form) -> bool:
    return set(numbers) <= set(_numbers(form))
