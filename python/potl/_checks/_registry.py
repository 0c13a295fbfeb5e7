# SPDX-License-Identifier: Apache-2.0
"""Which checks there are: potl's own, those that installed packages announce, and those whose
classes were handed to `verify`.

A package announces a check by an entry point of the group `potl.checks` whose value is the class.
What C++ needs to know of it, it is told here.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import warnings
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import get_type_hints

from .. import _core
from .._base._errors import UsageError
from ._checks import PEV, AnyCheck, Check, Replay, Telemetry

GROUP = "potl.checks"

_OWN: tuple[type[Check], ...] = (Telemetry, PEV, Replay)
_classes: dict[str, type[Check]] = {one.name: one for one in _OWN}

_TYPES: Mapping[object, str] = {bool: "boolean", int: "integer", float: "number", str: "string"}


def classes() -> dict[str, type[Check]]:
    """The checks that can be chosen by name, potl's own first."""
    load()
    return dict(_classes)


def split(checks: Sequence[AnyCheck] | None) -> tuple[list[Check], list[AnyCheck]]:
    """Checks that ask through the replayer, which are known from now on, and those that ask the
    last model themselves.
    """
    load()
    given = list(checks or ())
    chosen = [check for check in given if isinstance(check, Check)]
    for check in chosen:
        add(type(check))
    return chosen, [check for check in given if not isinstance(check, Check)]


@functools.cache
def load() -> None:
    """Loads what installed packages announce, once. What cannot be loaded is warned of."""
    for point in metadata.entry_points(group=GROUP):
        try:
            if point.dist is not None and Path(str(point.dist.locate_file(""))) == Path.cwd():
                # Which may be what the trainer delivered.
                raise UsageError("it is announced by the working directory", "install it")
            loaded = point.load()
            if not (isinstance(loaded, type) and issubclass(loaded, Check)):
                raise UsageError(f"{point.value} is not a subclass of potl.Check", "")
            add(loaded)
        except Exception as error:
            warnings.warn(
                f'the check "{point.name}" of {point.value} cannot be used: {error}', stacklevel=2
            )


def add(check: type[Check]) -> None:
    """Makes a check known. Those of the library are.

    Raises:
        UsageError: It has no name, the name is taken, or an option is of a type that no flag has.
    """
    if _classes.get(check.name) is check:
        return
    if not (dataclasses.is_dataclass(check) and check.name):
        raise UsageError(
            f"{check.__name__} is not a check yet",
            "give it a name and decorate it with @dataclass(frozen=True, kw_only=True)",
        )
    _core.register_check(
        check.name,
        make=functools.partial(_made, check),
        may_reject=check.may_reject,
        is_needed=check.is_needed,
        looks_at=check.looks_at,
        cannot_see=list(check.cannot_see),
        fields=_fields(check),
        cost=check.cost,
    )
    _classes[check.name] = check


def _made(check: type[Check], options: Mapping[str, object]) -> Check:
    known = {field.name for field in dataclasses.fields(check)}
    wrong = sorted(set(options) - known)
    if wrong:
        raise UsageError(
            f"{check.name}: there is no option {wrong[0]!r}", f"options are {', '.join(known)}"
        )
    return check(**options)


def _fields(check: type[Check]) -> list[_core.NewCheckField]:
    """The field table of a check: its dataclass fields and what its docstring says of them."""
    meanings = dict(
        re.findall(r"^\s+(\w+): (.+?)(?=\n\s+\w+: |\n\s*\n|\Z)", check.__doc__ or "", re.M | re.S)
    )
    hints = get_type_hints(check)
    rows: list[_core.NewCheckField] = []
    for field in dataclasses.fields(check):
        kind = _TYPES.get(hints[field.name])
        if kind is None or field.default is dataclasses.MISSING:
            raise UsageError(
                f"{check.name}: option {field.name} must be a bool, int, float or str with a "
                "default",
                "",
            )
        doc = " ".join(meanings.get(field.name, "").split()).rstrip(".")
        rows.append({"name": field.name, "type": kind, "default": field.default, "doc": doc})
    return rows
