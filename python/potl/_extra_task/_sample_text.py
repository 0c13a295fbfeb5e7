# SPDX-License-Identifier: Apache-2.0
"""Texts and tables in .csv and .tsv."""

from __future__ import annotations

import csv
import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._base._errors import MalformedError, UsageError
from ._sample_files import TEXT_INPUTS, TEXT_LABELS, require_new

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
        self._path = path
        self._delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
        rows, self._marked = _rows(path, self._delimiter)
        # Without a header columns are numbered from 1 on.
        given = {one for one in (inputs, labels) if one is not None and not one.isdigit()}
        self._header = rows.pop(0) if given & set(rows[0]) or _is_header(rows) else None
        if not rows:
            raise UsageError(f"{path} has no rows", "")
        self._rows = rows
        names = self._header or [str(number + 1) for number in range(len(rows[0]))]
        lower = [name.strip().lower() for name in names]
        self._label = None if unlabelled else _label_column(path, names, lower, labels)
        if self._label is not None:
            self._require_labels(names[self._label])
        others = [place for place in range(len(names)) if place != self._label]
        if not others:
            raise UsageError(f"{path} has no column beside its labels", "")
        self._require_no_ids(others, names)
        self._numeric = self._is_numeric(others, names, kind)
        self._columns = others
        if inputs is not None:
            if inputs not in names:
                raise UsageError(f"{path} has no column {inputs}, only {', '.join(names)}", "")
            # A table's columns are all of them.
            if not self._numeric and others != [names.index(inputs)]:
                raise UsageError(
                    f"{path} has columns beside its text and label", "remove them before mixing"
                )
        self._known: list[dict[float, str]] = []
        if self._numeric:
            self._known = [
                {float(row[place]): row[place] for row in rows} for place in self._columns
            ]

    def _require_labels(self, name: str) -> None:
        for number, row in enumerate(self._rows, 1):
            if not row[self._label or 0].strip():
                raise UsageError(
                    f"{self._path}: row {number} has no {name}", "give each row a label"
                )

    def _require_no_ids(self, others: Sequence[int], names: Sequence[str]) -> None:
        for place in others:
            named = self._header is not None and names[place].strip().lower() in _IDS
            if len(others) > 1 and (named or _counts([row[place] for row in self._rows])):
                raise UsageError(
                    f"{self._path}: the column {names[place]!r} numbers the rows, and extra rows "
                    "would repeat its numbers",
                    "remove it before mixing",
                )

    def _is_numeric(self, others: Sequence[int], names: Sequence[str], kind: str | None) -> bool:
        """Whether these are rows of numbers.

        Raises:
            UsageError: Some columns are and some are not, or not as `kind` says.
        """
        if kind in ("text", "language"):
            return False
        odd = {place: self._odd_cell(place) for place in others}
        if not any(odd.values()):
            return True
        # Numbers with some cells that are none.
        numbers = [place for place in others if self._share_of_numbers(place) >= 0.5]
        if not numbers and kind not in ("table", "autoencoder"):
            return False
        place = next(one for one in [*numbers, *others] if odd[one] is not None)
        number, cell = odd[place] or (0, "")
        some = f"{len(numbers)} of {len(others)} columns hold numbers, and " if numbers else ""
        raise UsageError(
            f"{self._path}: {some}row {number} has {cell!r} as {names[place]!r}, which is none"
            if some
            else f"{self._path}: row {number} has {cell!r} as {names[place]!r}: not a number",
            "for a table, fill what is missing and make numbers of categories; for texts, remove "
            "the columns of numbers, or pass --kind text where they are words of the text",
        )

    def _odd_cell(self, place: int) -> tuple[int, str] | None:
        """The first row with no number in this column, and what it has."""
        for number, row in enumerate(self._rows, 1):
            if not _is_number(row[place]):
                return number, row[place]
        return None

    def _share_of_numbers(self, place: int) -> float:
        return sum(_is_number(row[place]) for row in self._rows) / len(self._rows)

    @property
    def data(self) -> Any:
        if self._numeric:
            values = [np.array([float(row[place]) for place in self._columns])
                      for row in self._rows]  # fmt: skip
        else:
            values = [" ".join(row[p] for p in self._columns) for row in self._rows]  # type: ignore[misc]
        if self._label is None:
            return values
        return list(zip(values, (row[self._label] for row in self._rows), strict=True))

    def write(self, path: Path, extras: list[Any], order: Sequence[int]) -> None:
        require_new(path)
        real = len(self._rows)
        shares = self._shares()
        with path.open("w", encoding="utf-8", newline="") as file:
            file.write(_BOM if self._marked else "")
            writer = csv.writer(file, delimiter=self._delimiter, lineterminator="\n")
            if self._header is not None:
                writer.writerow(self._header)
            for index in order:
                writer.writerow(
                    self._rows[index] if index < real else self._row(extras[index - real], shares)
                )

    def _row(self, item: Any, shares: Sequence[float]) -> list[str]:
        row = [""] * (len(self._columns) + (self._label is not None))
        value = item if self._label is None else item[0]
        if self._label is not None:
            row[self._label] = item[1]
        if self._numeric:
            for place, known, number in zip(self._columns, self._known, value, strict=True):
                row[place] = known[float(number)]
            return row
        words = value.split()
        first = 0
        for place, share in zip(self._columns, shares, strict=True):
            last = round(len(words) * share)
            row[place] = " ".join(words[first:last])
            first = last
        return row

    def _shares(self) -> list[float]:
        """Up to which share of the words of a row each column goes."""
        if self._numeric:
            return []
        medians = [
            statistics.median(len(row[place].split()) for row in self._rows) or 1
            for place in self._columns
        ]
        return [sum(medians[: i + 1]) / sum(medians) for i in range(len(medians))]


def _rows(path: Path, delimiter: str) -> tuple[list[list[str]], bool]:
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
    if not others or any(_is_number(cell) for cell in first):
        return False
    columns = list(zip(*others, strict=True))
    if any(all(map(_is_number, column)) for column in columns):
        return True
    # Names over texts: a word or two each, none of which a text is.
    named = len(set(first)) == len(first) and all(_NAME.fullmatch(cell.strip()) for cell in first)
    longer = [statistics.median(len(cell.split()) for cell in column) > 3 for column in columns]
    used = [name in column for name, column in zip(first, columns, strict=True)]
    return named and any(longer) and not any(used)


def _counts(cells: Sequence[str]) -> bool:
    """Whether these are consecutive whole numbers."""
    if len(cells) < 3 or not cells[0].isdigit():
        return False
    start = int(cells[0])
    return start < 2 and list(cells) == [str(start + step) for step in range(len(cells))]


def _label_column(path: Path, names: Sequence[str], lower: Sequence[str], given: str | None) -> int:
    if given is not None:
        if given not in names:
            raise UsageError(f"{path} has no column {given}, only {', '.join(names)}", "")
        return names.index(given)
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
        "name the one of labels with --labels, or pass --unlabelled",
    )


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
