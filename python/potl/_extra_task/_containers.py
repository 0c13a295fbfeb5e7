# SPDX-License-Identifier: Apache-2.0
"""Which kind of data set it is, and what is none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .._base._errors import UsageError


def carrier_of_data(data: Any) -> str:
    """ "tensor" for a tensor, else ""."""
    return "tensor" if type(data).__module__.startswith("torch") and hasattr(data, "dim") else ""


def is_vision(data: Any) -> bool:
    stored: Any = getattr(data, "data", None)
    return (
        hasattr(data, "transform")
        and (hasattr(data, "targets") or hasattr(data, "labels"))
        and hasattr(stored, "shape")
        and len(stored.shape) in (3, 4)
        and str(stored.dtype).endswith("uint8")
        and len(stored) == len(data)
    )


def targets_of(data: Any) -> Any:
    return data.targets if hasattr(data, "targets") else data.labels


def is_columns(data: Any) -> bool:
    """(inputs, labels), each with a row for every item."""
    return isinstance(data, tuple) and len(data) == 2 and all(map(_is_column, data))


def _is_column(one: Any) -> bool:
    is_array = isinstance(one, np.ndarray) or carrier_of_data(one) == "tensor"
    return isinstance(one, list) or (is_array and one.ndim >= 1)


def refuse(data: Any) -> None:
    """What has a length and items by a number or name, and no training samples."""
    names = {base.__name__ for base in type(data).__mro__}
    if "IterableDataset" in names:
        raise UsageError(
            f"a {type(data).__name__} gives items in its own order",
            "pass a list of them: list(data)",
        )
    if isinstance(data, (str, bytes, Path)):
        raise UsageError(
            f"a {type(data).__name__} is not training data",
            "read the file first; potl extra-task mix reads files itself",
        )
    if isinstance(data, Mapping):
        raise UsageError(
            f"a {type(data).__name__} has no order of items",
            "pass (inputs, labels), or a list of dictionaries",
        )
    if "DataFrame" in names:
        raise UsageError("a DataFrame is read by columns", "pass arrays: (inputs, labels)")
    if isinstance(data, list) and len(data) == 2 and all(map(_is_column, data)):
        raise UsageError(
            "a list of two arrays could be two items", "pass a tuple: (inputs, labels)"
        )
