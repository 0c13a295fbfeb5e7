# SPDX-License-Identifier: Apache-2.0
"""Flags of the checks, made from their field tables in C++: "samples" of replay is
--replay-samples."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._base._printable import number

if TYPE_CHECKING:
    from .._checks._checks import Check, Policy

CHECKS = ("telemetry", "pev", "replay")
_POLICY = "policy"

_TYPES: dict[str, Any] = {
    "boolean": bool | None,
    "integer": int | None,
    "number": float | None,
    "optional number": float | None,
    "string": str | None,
    "strings": list[str] | None,
}


def parameters() -> list[inspect.Parameter]:
    """One parameter per option of every check. All default to None, which means: not given.

    Empty where the C++ module does not load, so that other commands still work.
    """
    try:
        from .. import _core
        from .._base import _flags
    except ImportError:
        return []
    return [
        _parameter(name, field, _flags.flag(name, field["name"]))
        for name in (_POLICY, *CHECKS)
        for field in _core.check_fields(name)
    ]


def parameters_of(table: str) -> list[inspect.Parameter]:
    """The options of one check as flags without its name, for a command that is about it alone."""
    try:
        from .. import _core
    except ImportError:
        return []
    return [
        _parameter(table, field, "--" + field["name"].replace("_", "-"))
        for field in _core.check_fields(table)
    ]


def _parameter(table: str, field: Mapping[str, Any], flag: str) -> inspect.Parameter:
    names = f"{flag}/--no-{flag[2:]}" if field["type"] == "boolean" else flag
    option = typer.Option(names, help=help_of(field), show_default=_default_of(field))
    return inspect.Parameter(
        f"{table}_{field['name']}",
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[_TYPES[field["type"]], option],
    )


def help_of(field: Mapping[str, Any]) -> str:
    """What an option means and which values it takes."""
    text = str(field["doc"])
    text = text[:1].upper() + text[1:] + "."
    if field.get("choices"):
        text += f" One of {', '.join(field['choices'])}."
    low, high = field.get("low"), field.get("high")
    if low is not None and high is not None:
        text += f" From {number(low)} to {number(high)}."
    elif low is not None:
        text += f" At least {number(low)}."
    return text


def _default_of(field: Mapping[str, Any]) -> str | bool:
    default = field["default"]
    if default is None or default in ("", []):
        return False
    return str(default).lower() if isinstance(default, bool) else str(default)


def chosen(names: Sequence[str], given: Mapping[str, Any]) -> list[Check] | None:
    """The checks that were named or have a flag; None when there are none.

    Raises:
        typer.BadParameter: A check that does not exist.
    """
    options = {name: given_of(name, given) for name in (*names, *CHECKS)}
    options = {name: values for name, values in options.items() if values or name in names}
    for name in options:
        if name not in CHECKS:
            raise typer.BadParameter(f'there is no check "{name}", only {", ".join(CHECKS)}')
    if not options:
        return None
    from .._checks import _checks

    classes = {"telemetry": _checks.Telemetry, "pev": _checks.PEV, "replay": _checks.Replay}
    return [classes[name](**options[name]) for name in CHECKS if name in options]


def policy_of(given: Mapping[str, Any]) -> Policy | None:
    """The policy whose flags were given; None when there are none."""
    options = given_of(_POLICY, given)
    if not options:
        return None
    from .._checks import _checks

    return _checks.Policy(**options)


def given_of(table: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a check among parsed parameters."""
    prefix = f"{table}_"
    return {
        key.removeprefix(prefix): value
        for key, value in given.items()
        if key.startswith(prefix) and value is not None and value != []
    }
