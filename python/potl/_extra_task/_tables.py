# SPDX-License-Identifier: Apache-2.0
"""Rows of tables, of values that occur in the columns of the training data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from .. import _core
from .._base._errors import UsageError
from ._values import Array, as_array, carried, carrier_of, dtype_of

# A column with no more distinct whole numbers than this holds categories.
_CATEGORIES = 16
# Values that are kept of a column of numbers.
_KNOTS = 1024


@dataclass(frozen=True)
class Tables:
    """Rows of numbers.

    Attributes:
        columns: For each column values that occur in the training data, sorted.
        categories: Whether a column's values are categories.
        values: For each column as how many equally likely ones its values can tell rows apart.
    """

    kind: ClassVar[str] = "table"

    columns: Sequence[Sequence[float]]
    categories: Sequence[bool]
    carrier: str
    dtype: str
    values: Sequence[int] = ()

    @staticmethod
    def learn(inputs: Sequence[Any]) -> Tables:
        """The form of these rows."""
        rows = _rows(inputs)
        if not np.isfinite(rows).all():
            raise UsageError("rows hold numbers that are not finite", "fill what is missing")
        columns, categories, counts = [], [], []
        for values in rows.T:
            known = np.unique(values)
            is_category = 2 <= len(known) <= _CATEGORIES and bool((known == np.rint(known)).all())
            knots = np.sort(values)
            if len(knots) > _KNOTS:
                knots = knots[np.rint(np.linspace(0, len(knots) - 1, _KNOTS)).astype(int)]
            columns.append([float(one) for one in (known if is_category else knots)])
            categories.append(is_category)
            counts.append(_told_apart(known if is_category else knots))
        return Tables(columns, categories, carrier_of(inputs[0]), dtype_of(inputs[0]), counts)

    def hints(self) -> dict[str, object]:
        return {}

    def description(self) -> _core.ExtraContent:
        counts = [
            len(values) if is_category else 0
            for values, is_category in zip(self.columns, self.categories, strict=True)
        ]
        if not self.values:
            return {"family": "table", "categories": counts}
        return {"family": "table", "categories": counts, "values": list(self.values)}

    def empty(self, count: int) -> Array:
        return np.empty((count, len(self.columns)), np.float64)

    def inputs(self, raw: Array) -> Any:
        values = np.empty_like(raw)
        for index, (column, is_category) in enumerate(
            zip(self.columns, self.categories, strict=True)
        ):
            places = raw[:, index] if is_category else raw[:, index] * (len(column) - 1)
            values[:, index] = np.asarray(column)[np.rint(places).astype(int)]
        return carried(values, self.carrier, self.dtype)

    def plain(self) -> dict[str, object]:
        return {"kind": self.kind, **asdict(self)}


def _rows(inputs: Sequence[Any]) -> Array:
    try:
        rows = [as_array(one).reshape(-1) for one in inputs]
    except ValueError as error:
        raise UsageError(f"a row is not a list of numbers: {error}", "") from error
    lengths = sorted({len(one) for one in rows})
    odd = next((one for one in rows if one.dtype.kind not in "biuf"), None)
    if odd is not None:
        raise UsageError(
            f"a row holds something that is not a number: {odd.tolist()[0]!r:.40}",
            "number the categories",
        )
    if len(lengths) > 1:
        raise UsageError(
            f"rows have {lengths[0]} to {lengths[-1]} columns", "give all rows the same columns"
        )
    return np.stack(rows).astype(np.float64)


def _told_apart(knots: Array) -> int:
    """One over the probability that two places become the same value."""
    shares = np.unique(knots, return_counts=True)[1] / len(knots)
    return int(1 / np.square(shares).sum() + 1e-9)
