# SPDX-License-Identifier: Apache-2.0
"""What can become of one node of a state tree. A change is a name and an argument, so that a lie
can be written down.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

from . import nodes
from .worlds import World

FACTORS = (-1.0, 0.0, 0.5, 2.0, 1.001, 1e3, 1e-30)
SHIFTS = (1e-6, 1e-3, 0.1, 1.0, 1e9, -1e9, 1e20)
FILLS = (0.0, 1.0, -1.0, 1e-30, 1e30, 3e38, math.inf, -math.inf, math.nan, 1e308)
INTEGERS = (0, 1, -1, 2, 2**31, 10**9, 2**53, 2**62, 2**63 - 1, -(2**63))
STRANGE = ("x", b"x", None, True, 1, 1.5, [], {}, (1,), [1.0] * 3)
NAMES = ("extra", "#", "", "a/b", "momentum_buffer", "running_var", "params", "~")

Change = tuple[str, Any]


def draw_for(node: Any, rng: Random) -> Change:
    """A change that fits a node."""
    if isinstance(node, nodes.Leaf):
        name = rng.choices(
            ["scale", "shift", "fill", "one", "swap", "shuffle", "transplant", "flip", "dtype",
             "shape", "strange", "integer"],
            [4, 4, 4, 3, 2, 1, 4, 2, 1, 1, 1, 1],
        )[0]  # fmt: skip
        argument: Any = {"scale": FACTORS, "shift": SHIFTS, "fill": FILLS, "one": FILLS}.get(name)
        if name in ("swap", "flip", "shuffle"):
            return name, rng.randrange(2**31)
        if name == "strange":
            return name, rng.randrange(len(STRANGE))
        if name == "dtype":
            return name, rng.choice(["F64", "F16", "I64"])
        if name == "integer":
            return name, rng.choice(INTEGERS)
        return name, rng.choice(argument) if argument else None
    if isinstance(node, dict):
        name = rng.choice(["add", "add", "remove", "rename", "strange"])
        if name == "add":
            what = rng.choice(["huge", "small", "number", "text", "map", "deep"])
            return name, [rng.choice([*NAMES, 0, 10**6]), what]
        return name, rng.randrange(2**31) if name != "strange" else rng.randrange(len(STRANGE))
    if isinstance(node, list | tuple):
        return rng.choice(["append", "drop", "reverse"]), None
    if isinstance(node, bool):
        return rng.choice(["not", "strange"]), rng.randrange(len(STRANGE))
    if isinstance(node, int):
        name = rng.choice(["integer", "add_to", "float", "strange"])
        return name, rng.choice(INTEGERS) if name == "integer" else rng.randrange(len(STRANGE))
    if isinstance(node, float):
        name = rng.choices(
            ["fill", "scale", "shift", "next", "integer", "strange"], [6, 4, 3, 1, 1, 1]
        )[0]
        if name in ("fill", "scale", "shift"):
            return name, rng.choice({"fill": FILLS, "scale": FACTORS, "shift": SHIFTS}[name])
        return name, rng.choice(INTEGERS) if name == "integer" else rng.randrange(len(STRANGE))
    return "strange", rng.randrange(len(STRANGE))


def applied(world: World, node: Any, change: Change, place: nodes.Path, step: int) -> Any:
    """The node after a change; as it was where the change does not fit."""
    name, argument = change
    if isinstance(node, nodes.Leaf):
        return _tensor(world, node, name, argument, place, step)
    if name == "strange":
        return STRANGE[argument]
    if isinstance(node, dict):
        return _map(node, name, argument)
    if isinstance(node, list | tuple):
        items = list(node)
        if name == "append":
            items.append(items[-1] if items else 0)
        elif name == "drop":
            items = items[:-1]
        else:
            items.reverse()
        return type(node)(items)
    if name == "not":
        return not node
    if name == "integer":
        return argument
    if name == "add_to":
        return node + (argument % 5) - 2 if isinstance(node, int) else node
    if name == "float":
        return float(node) if isinstance(node, int) else node
    if isinstance(node, float):
        numbers: dict[str, Callable[[], float]] = {
            "fill": lambda: argument,
            "scale": lambda: node * argument,
            "shift": lambda: node + argument,
            "next": lambda: float(np.nextafter(node, math.inf)),
        }
        return numbers.get(name, lambda: node)()
    return node


def _tensor(
    world: World, leaf: nodes.Leaf, name: str, argument: Any, place: nodes.Path, step: int
) -> Any:
    if name == "strange":
        return STRANGE[argument]
    if name == "dtype":
        with np.errstate(all="ignore"):
            wanted = {"F64": "<f8", "F16": "<f2", "I64": "<i8"}[argument]
            return nodes.Leaf.of(leaf.array().astype(wanted), leaf.memory_format)
    if name == "shape":
        return nodes.Leaf.of(leaf.array().reshape(-1, 1))
    if name == "transplant":
        try:
            found = nodes.at(world.other.trees[step], place)
        except KeyError:
            return leaf
        return found
    array = leaf.array()
    flat = array.reshape(-1)
    if not flat.size:
        return leaf
    with np.errstate(all="ignore"):
        if name == "scale":
            array = (array * argument).astype(array.dtype)
        elif name == "shift":
            array = (array + argument).astype(array.dtype)
        elif name in ("fill", "integer"):
            flat[:] = np.float64(argument).astype(array.dtype)
        elif name == "one":
            flat[0] = np.float64(argument).astype(array.dtype)
        elif name in ("swap", "shuffle"):
            order = np.random.default_rng(argument).permutation(flat.size)
            if name == "swap":
                a, b = order[0], order[-1]
                order = np.arange(flat.size)
                order[a], order[b] = b, a
            array = flat[order].reshape(array.shape)
        elif name == "flip":
            raw = flat.view(np.uint8)
            raw[argument % raw.size] ^= 1 << (argument // raw.size % 8)
    return nodes.Leaf.of(array, leaf.memory_format)


def _map(node: dict[Any, Any], name: str, argument: Any) -> Any:
    out = dict(node)
    keys = sorted(out, key=str)
    if name == "add":
        key, what = argument
        if all(isinstance(known, int) for known in keys) and keys and isinstance(key, str):
            key = {"extra": 10**6}.get(key, key)
        out[key] = _new(what)
    elif name in ("remove", "rename") and keys:
        key = keys[argument % len(keys)]
        value = out.pop(key)
        if name == "rename":
            out[f"{key}_"] = value
    return out


def _new(what: str) -> Any:
    if what == "huge":
        return nodes.Leaf.of(np.full(4, 1e20, np.float32))
    if what == "small":
        return nodes.Leaf.of(np.ones(4, np.float32))
    if what == "map":
        return {"step": 1, "exp_avg": nodes.Leaf.of(np.full(4, 1e20, np.float32))}
    if what == "deep":
        tree: Any = 0
        for _ in range(50):
            tree = [tree]
        return tree
    return {"number": 1e20, "text": "x" * 1000}[what]
