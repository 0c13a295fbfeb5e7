# SPDX-License-Identifier: Apache-2.0
"""Texts and tables in .csv, .tsv and .jsonl."""

from __future__ import annotations

import csv
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ._errors import MalformedError, UsageError
from ._sample_files import SampleFile, require_new

_INPUTS = ("text", "review", "sentence", "content", "comment", "input", "title", "description")
_LABELS = ("label", "labels", "class", "class index", "target", "y", "sentiment", "category")


def read_text(path: Path, inputs: str | None, labels: str | None, unlabelled: bool) -> SampleFile:
    """Reads a file by its suffix."""
    if path.suffix == ".jsonl":
        return JsonLines(path, inputs, labels, unlabelled)
    return Table(path, inputs, labels, unlabelled)


class Table:
    """Rows of cells. Columns of numbers make a table, others texts: the words of all columns
    together are one input, and extra words are dealt out to the columns as real ones are.
    """

    def __init__(
        self, path: Path, inputs: str | None, labels: str | None, unlabelled: bool
    ) -> None:
        self._delimiter = "\t" if path.suffix == ".tsv" else ","
        rows = _rows(path, self._delimiter)
        # Without a header columns are numbered from 1 on.
        given = {one for one in (inputs, labels) if one is not None and not one.isdigit()}
        usual = {cell.strip().lower() for cell in rows[0]} & {*_INPUTS, *_LABELS}
        self._header = rows.pop(0) if usual or given & set(rows[0]) else None
        if not rows:
            raise UsageError(f"{path} has no rows", "")
        self._rows = rows
        names = self._header or [str(number + 1) for number in range(len(rows[0]))]
        lower = [name.strip().lower() for name in names]
        self._label = None if unlabelled else _label_column(path, names, lower, labels)
        others = [place for place in range(len(names)) if place != self._label]
        numeric = all(_is_number(row[place]) for row in rows for place in others)
        if inputs is not None:
            if inputs not in names:
                raise UsageError(f"{path} has no column {inputs}, only {', '.join(names)}", "")
            # A table's columns are all of them.
            self._columns = others if numeric else [names.index(inputs)]
        else:
            self._columns = others
        self._numeric = numeric
        if not numeric and len(self._columns) != len(others):
            raise UsageError(
                f"{path} has columns beside its text and label", "remove them before mixing"
            )
        self._known: list[dict[float, str]] = []
        if numeric:
            self._known = [
                {float(row[place]): row[place] for row in rows} for place in self._columns
            ]

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


class JsonLines:
    """One JSON object per line, with an input (a string, or a list of numbers) and a label."""

    def __init__(
        self, path: Path, inputs: str | None, labels: str | None, unlabelled: bool
    ) -> None:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
            self._rows = [json.loads(line) for line in lines if line.strip()]
        except ValueError as error:
            raise MalformedError(f"{path} is no JSON, line by line: {error}", "") from error
        if not self._rows or not all(isinstance(row, dict) for row in self._rows):
            raise MalformedError(f"{path} has lines that are no objects, or none", "")
        names = list(self._rows[0])
        usual = (*_INPUTS, "input_ids", "tokens", "x")
        found_input = next((name for name in usual if name in names), None)
        self._input = inputs or found_input or ""
        self._label: str | None = None
        if not unlabelled:
            self._label = labels or next((name for name in _LABELS if name in names), None)
        for what, name in (("inputs", self._input), ("labels", self._label)):
            if name == "" or (name is None and not unlabelled) or (name and name not in names):
                raise UsageError(f"{path} has {', '.join(names)}", f"name one with --{what}")
        self._names = [name for name in (self._input, self._label) if name is not None]
        if any(set(row) != set(self._names) for row in self._rows):
            raise UsageError(
                f"{path} has members beside {' and '.join(self._names)}",
                "remove them before mixing",
            )
        self._order = names

    @property
    def data(self) -> Any:
        if self._label is None:
            return [row[self._input] for row in self._rows]
        return [(row[self._input], row[self._label]) for row in self._rows]

    def write(self, path: Path, extras: list[Any], order: Sequence[int]) -> None:
        require_new(path)
        real = len(self._rows)
        with path.open("w", encoding="utf-8") as file:
            for index in order:
                if index < real:
                    row = self._rows[index]
                else:
                    item = extras[index - real]
                    parts = (item,) if self._label is None else item
                    made = dict(zip(self._names, parts, strict=True))
                    row = {name: made[name] for name in self._order}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")


def _rows(path: Path, delimiter: str) -> list[list[str]]:
    csv.field_size_limit(1 << 24)
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = [row for row in csv.reader(file, delimiter=delimiter, strict=True) if row]
    except (ValueError, csv.Error) as error:
        raise MalformedError(f"{path} cannot be read: {error}", "") from error
    if not rows:
        raise UsageError(f"{path} has no rows", "")
    for number, row in enumerate(rows, 1):
        if len(row) != len(rows[0]):
            raise MalformedError(f"{path}: row {number} has {len(row)} cells", "")
    return rows


def _label_column(path: Path, names: Sequence[str], lower: Sequence[str], given: str | None) -> int:
    if given is not None:
        if given not in names:
            raise UsageError(f"{path} has no column {given}, only {', '.join(names)}", "")
        return names.index(given)
    for name in _LABELS:
        if name in lower:
            return lower.index(name)
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
