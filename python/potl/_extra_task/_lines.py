# SPDX-License-Identifier: Apache-2.0
"""Texts, token ids and rows of numbers in .jsonl, through Python's `json`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._base._errors import MalformedError, UsageError
from ._cells import TEXT_INPUTS, TEXT_LABELS
from ._writing import require_new

SUFFIX = ".jsonl"
_INPUTS = (*TEXT_INPUTS, "input_ids", "tokens", "x")


class JsonLines:
    """One JSON object per line, with an input (a string, or a list of numbers) and a label."""

    def __init__(
        self, path: Path, inputs: str | None, labels: str | None, unlabelled: bool
    ) -> None:
        numbered = list(_objects(path))
        if not numbered:
            raise MalformedError(f"{path} has no lines", "")
        self._rows = [row for _, row in numbered]
        self._order = list(self._rows[0])
        self._names = [_chosen(path, self._order, inputs, _INPUTS, "inputs")]
        if not unlabelled:
            self._names.append(_chosen(path, self._order, labels, TEXT_LABELS, "labels"))
        for number, row in numbered:
            if set(row) != set(self._names):
                both, beside = " and ".join(self._names), ", ".join(sorted({*row} - {*self._names}))
                raise UsageError(
                    f"{path}: line {number} has {beside} beside {both}"
                    if beside
                    else f"{path}: line {number} has not {both}",
                    "remove it before mixing" if beside else "give each line both, or leave it out",
                )
        _require_alike_inputs(path, self._names[0], numbered)
        for name in self._names[1:]:
            kind = _kind(self._rows[0][name])
            for number, row in numbered:
                if _kind(row[name]) != kind or kind not in ("a string", "a whole number", "a list"):
                    raise UsageError(
                        f"{path}: the {name} of line {number} is {_kind(row[name])}",
                        "make all of them strings, or class numbers from 0 on",
                    )

    @property
    def data(self) -> Any:
        if len(self._names) == 1:
            return [row[self._names[0]] for row in self._rows]
        return [tuple(row[name] for name in self._names) for row in self._rows]

    def write(self, path: Path, extras: list[Any], order: Sequence[int]) -> None:
        require_new(path)
        real = len(self._rows)
        rows = []
        for index in order:
            if index < real:
                rows.append(self._rows[index])
                continue
            item = extras[index - real]
            made = dict(zip(self._names, item if len(self._names) > 1 else [item], strict=True))
            rows.append({name: made[name] for name in self._order})
        path.write_bytes(_encoded(rows))


def _chosen(
    path: Path, names: Sequence[str], given: str | None, usual: Sequence[str], what: str
) -> str:
    name = given or next((one for one in usual if one in names), None)
    if name is None or name not in names:
        raise UsageError(f"{path} has {', '.join(names)}", f"name one with --{what}")
    return name


def _require_alike_inputs(
    path: Path, name: str, numbered: Sequence[tuple[int, dict[str, object]]]
) -> None:
    """Refuses inputs that are not of the type of the first one."""
    first = numbered[0][1][name]
    wanted, shape = _kind(first), _shape(first)
    # Texts of ids differ in length, rows of numbers do not.
    one_shape = wanted == "a list" and any(
        _shape(row[name]) is None or _has_floats(row[name]) for _, row in numbered
    )
    for number, row in numbered:
        value = row[name]
        where = f"{path}: the {name} of line {number}"
        if _kind(value) != wanted or wanted not in ("a string", "a list"):
            raise UsageError(
                f"{where} is {_kind(value)}", "make all of them strings, or lists of numbers"
            )
        if wanted == "a list" and _shape(value) is None:
            raise UsageError(
                f"{where} is not a list of numbers", "make all of them lists of numbers"
            )
        if one_shape and _shape(value) != shape:
            raise UsageError(
                f"{where} has shape {_shape(value)}, that of the first one {shape}",
                "rows of numbers are of one length",
            )


def _objects(path: Path) -> Iterator[tuple[int, dict[str, object]]]:
    """The objects of all lines, with the numbers of these."""
    number = 0
    try:
        # JSON lines end with a line feed; strings may hold other separators.
        with path.open(encoding="utf-8-sig", newline="\n") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                row = json.loads(line)
                if not isinstance(row, dict):
                    raise MalformedError(
                        f"{path}: line {number} is not an object",
                        "write {...} in each line: lists are not objects",
                    )
                yield number, row
    except (ValueError, RecursionError) as error:
        raise MalformedError(
            f"{path}: line {number or 1} is not JSON in UTF-8: {error}",
            "correct or remove it: the file is read line by line",
        ) from error


def _encoded(rows: Sequence[dict[str, object]]) -> bytes:
    """All lines; escaped where a string has what UTF-8 has not, one way for all of them."""
    for escaped in (False, True):
        text = "".join(json.dumps(row, ensure_ascii=escaped) + "\n" for row in rows)
        try:
            return text.encode()
        except UnicodeEncodeError:
            continue
    raise AssertionError("ASCII is UTF-8")


def _kind(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {None: "null", True: "true", False: "false"}[value]
    names = {str: "a string", list: "a list", int: "a whole number", float: "a fraction"}
    return names.get(type(value), "an object")


def _shape(values: object) -> tuple[int, ...] | None:
    """The shape of a list of numbers; None: it is none."""
    try:
        array = np.asarray(values)
    except ValueError:
        return None
    return array.shape if array.dtype.kind in "iuf" and array.size else None


def _has_floats(values: object) -> bool:
    return np.asarray(values).dtype.kind == "f" or np.asarray(values).ndim > 1
