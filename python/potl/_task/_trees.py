# SPDX-License-Identifier: Apache-2.0
"""Comparing the trees of states, and the part of a state that training cannot change."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, TypedDict

from .. import _core
from ._values import Tree

# What a gradient scaler changes; the rest are its options.
_SCALER_CHANGES = frozenset(("scale", "_growth_tracker"))


class Varying(TypedDict):
    """Names of what schedulers change: options of each optimizer, values of each scheduler."""

    optimizers: list[list[str]]
    schedulers: list[list[str]]


def first_difference(a: Any, b: Any) -> str | None:
    """The path of the first value in which two trees of a state differ, bit for bit."""
    place = _difference(a, b)
    if place is None:
        return None
    return "/".join(map(str, reversed(place))) or "the root"


def _difference(a: Any, b: Any) -> list[Any] | None:
    """The keys that lead to the first difference, the innermost first: most trees have none, so
    that nobody pays for names.
    """
    if type(a) is not type(b):
        return []
    pairs: Iterable[tuple[Any, Any, Any]]
    if isinstance(a, dict):
        if a.keys() != b.keys():
            return [sorted(map(str, a.keys() ^ b.keys()))[0]]
        pairs = ((key, value, b[key]) for key, value in a.items())
    elif isinstance(a, (list, tuple)):
        if len(a) != len(b):
            return []
        pairs = ((i, x, y) for i, (x, y) in enumerate(zip(a, b, strict=True)))
    else:
        return None if _same_leaf(a, b) else []
    for key, x, y in pairs:
        found = _difference(x, y)
        if found is not None:
            found.append(key)
            return found
    return None


def _same_leaf(a: Any, b: Any) -> bool:
    if isinstance(a, _core.TensorView):
        form = (a.dtype, a.shape, a.memory_format) == (b.dtype, b.shape, b.memory_format)
        return form and a.data == b.data
    if isinstance(a, _core.Alias):
        return bool(a.path == b.path)
    return same_float(a, b) if isinstance(a, float) else bool(a == b)


def same_float(a: float, b: float) -> bool:
    """Whether two floats have the same bits, or are both NaN."""
    return a.hex() == b.hex() or (math.isnan(a) and math.isnan(b))


def fixed_part(tree: Tree, varying: Varying) -> Tree:
    """The values of a state that belong to the recipe: flags, options of optimizers, schedulers and
    scaler.

    A task with the default step never changes them, so they are the agreed ones in every honest
    state. Whoever could choose them in a checkpoint could change the recipe there and have every
    later segment replay to it.

    Args:
        tree: A state.
        varying: Names of what the schedulers change, from the job.
    """
    fixed: Tree = {
        "optimizers": [
            [
                {k: v for k, v in group.items() if k not in names and is_option(v)}
                for group in optimizer.get("param_groups", ())
            ]
            for optimizer, names in zip(tree["optimizers"], varying["optimizers"], strict=True)
        ],
        "schedulers": [
            {k: v for k, v in scheduler.items() if k not in names and is_option(v)}
            for scheduler, names in zip(tree["schedulers"], varying["schedulers"], strict=True)
        ],
    }
    if tree["scaler"] is not None:
        fixed["scaler"] = {k: v for k, v in tree["scaler"].items() if k not in _SCALER_CHANGES}
    return {**fixed, **flags_of(tree)}


def flags_of(tree: Tree) -> Tree:
    """Which modules train, and which parameters have a gradient."""
    modules = {name: tree[name] for name in ("model", "ema")}
    return {
        name: {flag: part[flag] for flag in ("training", "requires_grad")}
        for name, part in modules.items()
        if isinstance(part, dict) and "training" in part
    }


def is_option(value: Any) -> bool:
    """Whether a value of a state can be part of a recipe: no tensor, no map."""
    if isinstance(value, (list, tuple)):
        return all(map(is_option, value))
    return value is None or isinstance(value, (bool, int, float, str))
