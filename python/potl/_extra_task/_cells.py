# SPDX-License-Identifier: Apache-2.0
"""Texts and tables in .csv and .tsv, through Python's `csv`."""

from __future__ import annotations

import csv
import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._base._errors import MalformedError, UsageError
from ._writing import require_new

SUFFIXES = (".csv", ".tsv")
# The usual names of columns, and of members in .jsonl.
TEXT_INPUTS = (
    "text", "review", "sentence", "content", "comment", "input", "title", "description",
)  # fmt: skip
TEXT_LABELS = ("label", "labels", "class", "class index", "target", "y", "sentiment", "category")
# Columns of these names number the samples: extra ones would repeat numbers of real ones.
_IDS = ("id", "idx", "index", "uuid", "guid", "row", "", "unnamed: 0")
_NAME = re.compile(r"[^\W\d]\w*([ _.-]\w+)?")
_BOM = "\ufeff"


class Table:
    """Rows of cells. Columns of numbers make a table, others texts: the words of all columns
    together are one input, and extra words are dealt out to the columns as real ones are.

    Where some columns hold numbers and others do not, nothing is guessed: a table with a cell that
    is missing must not become a text of numbers.
    """

    def __init__(
        self,
        path: Path,
        inputs: str | None,
        labels: str | None,
        unlabelled: bool,
        kind: str | None = None,
    ) -> None:
        self._delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
        rows, self._marked = _read(path, self._delimiter)
        # Without a header columns are numbered from 1 on.
        given = {one for one in (inputs, labels) if one is not None and not one.isdigit()}
        self._header = rows.pop(0) if given & set(rows[0]) or _is_header(rows) else None
        if not rows:
            raise UsageError(f"{path} has no rows", "")
        self._rows, cells = rows, list(zip(*rows, strict=True))
        names = self._header or [str(number + 1) for number in range(len(cells))]
        self._label = None if unlabelled else _label_column(path, names, labels)
        if self._label is not None:
            _require_labels(path, names[self._label], cells[self._label])
        self._columns = [place for place in range(len(names)) if place != self._label]
        if not self._columns:
            raise UsageError(f"{path} has no column beside its labels", "")
        columns = [(names[place], cells[place]) for place in self._columns]
        _require_no_ids(path, columns, named=self._header is not None)
        self._numeric = _is_numeric(path, columns, kind)
        if inputs is not None and inputs not in names:
            raise UsageError(f"{path} has no column {inputs}, only {', '.join(names)}", "")
        # A table's columns are all of them.
        if inputs is not None and not self._numeric and self._columns != [names.index(inputs)]:
            raise UsageError(
                f"{path} has columns beside its text and label", "remove them before mixing"
            )
        # How each number was written, so that extra ones are written alike.
        self._written = [
            {float(cell): cell for cell in column} if self._numeric else {} for _, column in columns
        ]

    @property
    def data(self) -> Any:
        values: list[Any] = [
            np.array([float(row[place]) for place in self._columns])
            if self._numeric
            else " ".join(row[place] for place in self._columns)
            for row in self._rows
        ]
        if self._label is None:
            return values
        return list(zip(values, (row[self._label] for row in self._rows), strict=True))

    def write(self, path: Path, extras: list[Any], order: Sequence[int]) -> None:
        require_new(path)
        real = len(self._rows)
        ends = self._ends()
        with path.open("w", encoding="utf-8", newline="") as file:
            file.write(_BOM if self._marked else "")
            writer = csv.writer(file, delimiter=self._delimiter, lineterminator="\n")
            if self._header is not None:
                writer.writerow(self._header)
            for index in order:
                writer.writerow(
                    self._rows[index] if index < real else self._row(extras[index - real], ends)
                )

    def _row(self, item: Any, ends: Sequence[float]) -> list[str]:
        row = [""] * len(self._rows[0])
        value = item
        if self._label is not None:
            value, row[self._label] = item
        words, first = [] if self._numeric else value.split(), 0
        for number, place in enumerate(self._columns):
            if self._numeric:
                row[place] = self._written[number][float(value[number])]
            else:
                last = round(len(words) * ends[number])
                row[place], first = " ".join(words[first:last]), last
        return row

    def _ends(self) -> list[float]:
        """Up to which share of the words of a row each column of a text goes."""
        if self._numeric:
            return []
        medians = [
            statistics.median(len(row[place].split()) for row in self._rows) or 1
            for place in self._columns
        ]
        return [sum(medians[: i + 1]) / sum(medians) for i in range(len(medians))]


def _read(path: Path, delimiter: str) -> tuple[list[list[str]], bool]:
    """All rows, and whether the file begins with a byte order mark."""
    csv.field_size_limit(1 << 24)
    try:
        with path.open(encoding="utf-8", newline="") as file:
            marked = file.read(1) == _BOM
            if not marked:
                file.seek(0)
            rows = [row for row in csv.reader(file, delimiter=delimiter, strict=True) if row]
    except UnicodeDecodeError as error:
        raise MalformedError(f"{path} is not UTF-8: {error}", "save it as UTF-8") from error
    except (ValueError, csv.Error) as error:
        raise MalformedError(f"{path} cannot be read: {error}", "") from error
    if not rows:
        raise UsageError(f"{path} has no rows", "")
    for number, row in enumerate(rows, 1):
        if len(row) != len(rows[0]):
            raise MalformedError(f"{path}: row {number} has {len(row)} cells", "")
    return rows, marked


def _is_header(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row names columns. It stays where it is, so that one row too many that is
    taken for a header is not lost.
    """
    first, others = rows[0], rows[1:]
    if {cell.strip().lower() for cell in first} & {*TEXT_INPUTS, *TEXT_LABELS}:
        return True
    if not others or any(map(_is_number, first)):
        return False
    columns = list(zip(*others, strict=True))
    if any(all(map(_is_number, column)) for column in columns):
        return True
    # Names over texts: a word or two each, none of which a text is.
    named = len(set(first)) == len(first) and all(_NAME.fullmatch(cell.strip()) for cell in first)
    longer = [statistics.median(len(cell.split()) for cell in column) > 3 for column in columns]
    used = [name in column for name, column in zip(first, columns, strict=True)]
    return named and any(longer) and not any(used)


def _label_column(path: Path, names: Sequence[str], given: str | None) -> int:
    if given is not None:
        if given not in names:
            raise UsageError(f"{path} has no column {given}, only {', '.join(names)}", "")
        return names.index(given)
    lower = [name.strip().lower() for name in names]
    for name in TEXT_LABELS:
        if name in lower:
            return lower.index(name)
    if len(names) == 1:
        raise UsageError(
            f"{path} has one column",
            "separate columns by commas in .csv and by tabs in .tsv, or pass --unlabelled",
        )
    raise UsageError(
        f"{path} has the columns {', '.join(names)}",
        "name the column of labels with --labels, or pass --unlabelled",
    )


def _require_labels(path: Path, name: str, labels: Sequence[str]) -> None:
    for number, label in enumerate(labels, 1):
        if not label.strip():
            raise UsageError(f"{path}: row {number} has no {name}", "give each row a label")


def _require_no_ids(path: Path, columns: Sequence[tuple[str, Sequence[str]]], named: bool) -> None:
    for name, cells in columns:
        is_id = named and name.strip().lower() in _IDS
        if len(columns) > 1 and (is_id or _counts(cells)):
            raise UsageError(
                f"{path}: the column {name!r} numbers the rows, and extra rows would repeat its "
                "numbers",
                "remove it before mixing",
            )


def _counts(cells: Sequence[str]) -> bool:
    """Whether these are consecutive whole numbers."""
    if len(cells) < 3 or cells[0] not in ("0", "1"):
        return False
    return list(cells) == [str(int(cells[0]) + step) for step in range(len(cells))]


def _is_numeric(path: Path, columns: Sequence[tuple[str, Sequence[str]]], kind: str | None) -> bool:
    """Whether these are rows of numbers.

    Raises:
        UsageError: Some columns are and some are not, or not as `kind` says.
    """
    if kind in ("text", "language"):
        return False
    known = [(name, cells, list(map(_is_number, cells))) for name, cells in columns]
    odd = [one for one in known if not all(one[2])]
    if not odd:
        return True
    # Numbers with some cells that are none.
    numbers = sum(2 * sum(is_number) >= len(is_number) for *_, is_number in known)
    if not numbers and kind not in ("table", "autoencoder"):
        return False
    # A column of numbers with a cell that is none comes before one of texts.
    name, cells, is_number = max(odd, key=lambda one: 2 * sum(one[2]) >= len(one[2]))
    place = is_number.index(False)
    what = f"row {place + 1} has {cells[place]!r} as {name!r}"
    raise UsageError(
        f"{path}: {numbers} of {len(columns)} columns hold numbers, and {what}, which is none"
        if numbers
        else f"{path}: {what}: not a number",
        "for a table, fill what is missing and make numbers of categories; for texts, remove the "
        "columns of numbers, or pass --kind text where they are words of the text",
    )


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
