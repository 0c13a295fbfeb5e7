# SPDX-License-Identifier: Apache-2.0
"""Samples and batches that are objects with named values: data classes, torch_geometric graphs."""

from __future__ import annotations

import copy
import dataclasses
import sys
from collections.abc import Mapping
from typing import Any


def fields_of(value: Any) -> dict[str, object] | None:
    """The values of a data class by their names; None of anything else."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return None
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def with_fields(value: Any, fields: Mapping[str, object]) -> Any:
    """A copy of a data class with other values, frozen or not."""
    other = copy.copy(value)
    for name, item in fields.items():
        object.__setattr__(other, name, item)
    return other


def contents_of(value: Any) -> Mapping[Any, Any] | None:
    """All that a map, a data class or a graph of torch_geometric holds; None of anything else."""
    if isinstance(value, Mapping):
        return value
    graphs = sys.modules.get("torch_geometric.data.data")
    if graphs is not None and isinstance(value, graphs.BaseData):
        held: Mapping[Any, Any] = value.to_dict()
        return held
    return fields_of(value)
