# SPDX-License-Identifier: Apache-2.0
"""Texts, token ids and rows of numbers in .jsonl."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._base._errors import MalformedError, UsageError
from ._sample_files import TEXT_INPUTS, TEXT_LABELS, require_new


class JsonLines:
    """One JSON object per line, with an input (a string, or a list of numbers) and a label."""

    def __init__(
        self, path: Path, inputs: str | None, labels: str | None, unlabelled: bool
    ) -> None:
        self._path = path
        self._rows, numbers = _objects(path)
        names = list(self._rows[0])
        usual = (*TEXT_INPUTS, "input_ids", "tokens", "x")
        found_input = next((name for name in usual if name in names), None)
        self._input = inputs or found_input or ""
        self._label: str | None = None
        if not unlabelled:
            self._label = labels or next((name for name in TEXT_LABELS if name in names), None)
        for what, name in (("inputs", self._input), ("labels", self._label)):
            if name == "" or (name is None and not unlabelled) or (name and name not in names):
                raise UsageError(f"{path} has {', '.join(names)}", f"name one with --{what}")
        self._names = [name for name in (self._input, self._label) if name is not None]
        for number, row in zip(numbers, self._rows, strict=True):
            if set(row) != set(self._names):
                beside = sorted(set(row) - set(self._names))
                raise UsageError(
                    f"{path}: line {number} has {', '.join(beside)} beside "
                    f"{' and '.join(self._names)}"
                    if beside
                    else f"{path}: line {number} has not {' and '.join(self._names)}",
                    "remove it before mixing" if beside else "give each line both, or leave it out",
                )
        self._require_alike(numbers)
        self._order = names

    def _require_alike(self, numbers: Sequence[int]) -> None:
        """Inputs and labels are of the types of the first ones."""
        first = self._rows[0]
        wanted = _kind(first[self._input])
        rows_of_numbers = wanted == "a list" and any(
            _shape(row[self._input]) is None or _has_floats(row[self._input]) for row in self._rows
        )
        for number, row in zip(numbers, self._rows, strict=True):
            value = row[self._input]
            where = f"{self._path}: the {self._input} of line {number}"
            if _kind(value) != wanted or wanted not in ("a string", "a list"):
                raise UsageError(
                    f"{where} is {_kind(value)}", "make all of them strings, or lists of numbers"
                )
            if wanted == "a list" and _shape(value) is None:
                raise UsageError(
                    f"{where} is not a list of numbers", "make all of them lists of numbers"
                )
            if rows_of_numbers and _shape(value) != _shape(first[self._input]):
                raise UsageError(
                    f"{where} has shape {_shape(value)}, that of the first one "
                    f"{_shape(first[self._input])}",
                    "rows of numbers are of one length",
                )
            if self._label is None:
                continue
            label, kind = row[self._label], _kind(first[self._label])
            if _kind(label) != kind or kind not in ("a string", "a whole number", "a list"):
                raise UsageError(
                    f"{self._path}: the {self._label} of line {number} is {_kind(label)}",
                    "make all of them strings, or class numbers from 0 on",
                )

    @property
    def data(self) -> Any:
        if self._label is None:
            return [row[self._input] for row in self._rows]
        return [(row[self._input], row[self._label]) for row in self._rows]

    def write(self, path: Path, extras: list[Any], order: Sequence[int]) -> None:
        require_new(path)
        real = len(self._rows)
        rows = []
        for index in order:
            if index < real:
                rows.append(self._rows[index])
            else:
                item = extras[index - real]
                parts = (item,) if self._label is None else item
                made = dict(zip(self._names, parts, strict=True))
                rows.append({name: made[name] for name in self._order})
        path.write_bytes(_encoded(rows))


def _objects(path: Path) -> tuple[list[dict[str, Any]], list[int]]:
    """All objects, and the numbers of their lines."""
    rows: list[dict[str, Any]] = []
    numbers: list[int] = []
    number = 0
    try:
        # JSON lines end with a line feed; strings may hold other separators.
        with path.open(encoding="utf-8-sig", newline="\n") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    rows.append(json.loads(line))
                    numbers.append(number)
    except (ValueError, RecursionError) as error:
        raise MalformedError(
            f"{path}: line {number or 1} is not JSON in UTF-8: {error}",
            "correct or remove it: the file is read line by line",
        ) from error
    for at, row in zip(numbers, rows, strict=True):
        if not isinstance(row, dict):
            raise MalformedError(
                f"{path}: line {at} is not an object",
                "write {...} in each line: lists are not objects",
            )
    if not rows:
        raise MalformedError(f"{path} has no lines", "")
    return rows, numbers


def _encoded(rows: Sequence[dict[str, Any]]) -> bytes:
    """All lines; escaped where a string has what UTF-8 has not, one way for all of them."""
    for escaped in (False, True):
        text = "".join(json.dumps(row, ensure_ascii=escaped) + "\n" for row in rows)
        try:
            return text.encode()
        except UnicodeEncodeError:
            continue
    raise AssertionError("ASCII is UTF-8")


def _kind(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {None: "null", True: "true", False: "false"}[value]
    names = {str: "a string", list: "a list", int: "a whole number", float: "a fraction"}
    return names.get(type(value), "an object")


def _shape(values: list[Any]) -> tuple[int, ...] | None:
    """The shape of a list of numbers; None: it is none."""
    try:
        array = np.asarray(values)
    except ValueError:
        return None
    return array.shape if array.dtype.kind in "iuf" and array.size else None


def _has_floats(values: list[Any]) -> bool:
    return np.asarray(values).dtype.kind == "f" or np.asarray(values).ndim > 1
