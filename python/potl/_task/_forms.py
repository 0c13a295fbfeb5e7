# SPDX-License-Identifier: Apache-2.0
"""Forms of states as laws (checks/detail/schema.hpp): keys, types, dtypes and shapes, of what was
seen and of what may come.
"""

from __future__ import annotations

import functools
from typing import Any

from .. import _core

Law = tuple[Any, ...]

OPEN: Law = ("open",)

_KINDS: dict[type, str] = {bool: "bool", int: "int", float: "float", str: "str", bytes: "bytes"}


def form(value: object) -> Law:
    """The form of a value of `State.tree()`."""
    if value is None:
        return ("kind", "none")
    if isinstance(value, dict):
        return ("map", {key: form(item) for key, item in value.items()}, [])
    if isinstance(value, list):
        return ("items", [form(item) for item in value])
    if isinstance(value, tuple):
        return ("tuple", [form(item) for item in value])
    if isinstance(value, _core.TensorView):
        return ("tensor", value.dtype, list(value.shape))
    if isinstance(value, _core.Alias):
        return ("alias", value.path)
    return ("kind", _KINDS[type(value)])


def merged(*laws: Law) -> Law:
    """What fits any of several forms; keys that only some have may be absent."""
    return functools.reduce(_merge, laws)


def _merge(a: Law, b: Law) -> Law:
    if a in (b, OPEN):
        return a
    if b == OPEN:
        return b
    if a[0] == b[0] == "map":
        both = a[1].keys() & b[1].keys()
        laws = {**a[1], **b[1], **{key: _merge(a[1][key], b[1][key]) for key in both}}
        return ("map", laws, [key for key in laws if key not in both or key in a[2] or key in b[2]])
    if a[0] == b[0] == "tuple" and len(a[1]) == len(b[1]):
        return ("tuple", [_merge(x, y) for x, y in zip(a[1], b[1], strict=True)])
    if a[0] in ("items", "each") and b[0] in ("items", "each"):
        if a[0] == b[0] == "items" and len(a[1]) == len(b[1]):
            return ("items", [_merge(x, y) for x, y in zip(a[1], b[1], strict=True)])
        return _each([*_elements(a), *_elements(b)])
    if a[0] == b[0] == "tensor" and a[1] == b[1]:
        return ("tensor", a[1], None)
    options = [*(a[1] if a[0] == "any" else [a]), *(b[1] if b[0] == "any" else [b])]
    return ("any", [law for i, law in enumerate(options) if law not in options[:i]])


def _elements(law: Law) -> list[Law]:
    return list(law[1]) if law[0] == "items" else [law[1]]


def _each(laws: list[Law]) -> Law:
    return ("each", merged(*laws) if laws else OPEN)


def loosely(law: Law) -> Law:
    """The form of what code of the user's own may change: lists may grow, empty containers fill,
    None become a value, and a number be whole or not. Keys and tensors stay.
    """
    name = law[0]
    if name == "kind":
        if law[1] == "none":
            return OPEN
        return ("kind", "number") if law[1] in ("int", "float") else law
    if name == "map":
        return ("map", {k: loosely(v) for k, v in law[1].items()}, law[2]) if law[1] else OPEN
    if name == "items":
        return _each([loosely(each) for each in law[1]])
    if name in ("tuple", "any"):
        parts = [loosely(each) for each in law[1]]
        return OPEN if name == "any" and OPEN in parts else (name, parts)
    return ("each", loosely(law[1])) if name == "each" else law


def lazily(law: Law) -> Law:
    """A buffer that no step has made yet may come in any form."""
    return OPEN if law == ("kind", "none") else law


def any_shape(law: Law) -> Law:
    """The form of what is kept of any parameter: keys of another one's, which may be absent."""
    if law[0] == "tensor":
        return (law[0], law[1], None)
    if law[0] == "map":
        return (law[0], {key: any_shape(value) for key, value in law[1].items()}, list(law[1]))
    return (law[0], [any_shape(each) for each in law[1]]) if law[0] in ("any", "all") else law


def grown(law: Law, value: object) -> Law:
    """What code of the user's own may have made of a form: maps have more keys, tensors other
    shapes. What was there stays, and keeps its type.

    Args:
        law: The form.
        value: Of `State.tree()`: what may be new is looked for there.
    """
    name = law[0]
    if name == "map" and isinstance(value, dict):
        known = {k: grown(v, value[k]) if k in value else v for k, v in law[1].items()}
        return ("map", {**dict.fromkeys(value, OPEN), **known}, law[2])
    if name in ("items", "tuple") and isinstance(value, (list, tuple)):
        if len(value) == len(law[1]):
            return (name, [grown(v, item) for v, item in zip(law[1], value, strict=True)])
        return law
    if name == "each" and isinstance(value, list):
        return ("items", [grown(law[1], item) for item in value])
    if name in ("any", "all"):
        return (name, [grown(each, value) for each in law[1]])
    return ("tensor", law[1], None) if name == "tensor" else law
