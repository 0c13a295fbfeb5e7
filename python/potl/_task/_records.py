# SPDX-License-Identifier: Apache-2.0
"""Samples and batches that are objects with named values: data classes, torch_geometric graphs."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import sys
import types
from collections.abc import Mapping
from functools import cached_property
from typing import Any

_OF_STORES = frozenset({"_mapping", "_parent", "_key"})


def fields_of(value: Any) -> dict[str, object] | None:
    """The values of a data class by their names, those beside its fields too; None of anything
    else. What a property keeps is not among them: it is computed from the others.
    """
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return None
    names = [field.name for field in dataclasses.fields(value)]
    names += [  # what __slots__ of other classes of its keep
        name
        for kind in type(value).__mro__
        for name, one in vars(kind).items()
        if isinstance(one, types.MemberDescriptorType) and name not in names
    ]
    names += [
        name
        for name in getattr(value, "__dict__", ())
        if name not in names
        and not isinstance(inspect.getattr_static(type(value), name, None), cached_property)
    ]
    return {name: getattr(value, name) for name in names if hasattr(value, name)}


def with_fields(value: Any, fields: Mapping[str, object]) -> Any:
    """A copy of a data class with other values of all that `fields_of` names, frozen or not."""
    other = copy.copy(value)
    for name in getattr(value, "__dict__", {}).keys() - fields.keys():
        object.__delattr__(other, name)  # a property computes it again
    for name, item in fields.items():
        object.__setattr__(other, name, item)
    return other


def contents_of(value: Any) -> Mapping[Any, Any] | None:
    """All that a map, a data class or a graph of torch_geometric holds; None of anything else."""
    if isinstance(value, Mapping):
        return value
    graphs = sys.modules.get("torch_geometric.data.data")
    if graphs is not None and isinstance(value, graphs.BaseData):
        held: dict[Any, Any] = dict(value.to_dict())
        # Attributes with an underscore lie beside a store's own items.
        for number, store in enumerate(value.stores):
            for name in vars(store).keys() - _OF_STORES:
                held[number, name] = vars(store)[name]
        return held
    return fields_of(value)
