# SPDX-License-Identifier: Apache-2.0
"""Flags of the checks, made from their field tables in C++: "samples" of replay is
--replay-samples."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from .._base._printable import number

if TYPE_CHECKING:
    from .._checks._checks import Check, Policy
    from .._core import CheckField

_POLICY = "policy"

_TYPES: dict[str, object] = {
    "boolean": bool | None,
    "integer": int | None,
    "number": float | None,
    "optional number": float | None,
    "string": str | None,
    "strings": list[str] | None,
}

# What help calls their values; those of other types are called after their option.
_VALUES = {"integer": "N", "number": "NUMBER", "optional number": "NUMBER", "strings": "TEXT"}


def parameters() -> list[inspect.Parameter]:
    """The option `check`, and one parameter per option of every check. All default to None, which
    means: not given.

    Empty where the C++ module does not load, so that other commands still work.
    """
    try:
        from .. import _core
        from .._base import _flags
        from .._checks import _registry
    except ImportError:
        return []
    names = list(_registry.classes())
    help_text = (
        f"A check: {', '.join(names)}. Repeatable; a flag of a check selects it too. Default: as "
        "the policy needs."
    )
    check = inspect.Parameter(
        "check",
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[list[str] | None, typer.Option(metavar="NAME", help=help_text)],
    )
    return [
        check,
        *(
            _parameter(name, field, _flags.flag(name, field["name"]))
            for name in (_POLICY, *names)
            for field in _core.check_fields(name)
        ),
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


def constant(name: str) -> Any:
    """A default that C++ knows; None where the module does not load."""
    try:
        from .. import _core
    except ImportError:
        return None
    return getattr(_core, name)


def _parameter(table: str, field: CheckField, flag: str) -> inspect.Parameter:
    names = f"{flag}/--no-{flag[2:]}" if field["type"] == "boolean" else flag
    value = _VALUES.get(field["type"])
    option = typer.Option(names, metavar=value, help=help_of(field) + _default_of(field))
    return inspect.Parameter(
        f"{table}_{field['name']}",
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[_TYPES[field["type"]], option],
    )


def help_of(field: CheckField) -> str:
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


def _default_of(field: CheckField) -> str:
    default = field["default"]
    if default is None or default in ("", []):
        return ""
    return f" Default: {str(default).lower() if isinstance(default, bool) else default}."


def chosen(given: Mapping[str, object]) -> list[Check]:
    """The checks that were named by `check` or have a flag.

    Raises:
        typer.BadParameter: A check that does not exist.
    """
    from .._checks import _registry

    classes = _registry.classes()
    wanted = cast("list[str]", given.get("check") or [])
    for name in wanted:
        if name not in classes:
            raise typer.BadParameter(
                f'there is no check "{name}", only {", ".join(classes)} '
                "(for several, give --check several times)"
            )
    options = {name: given_of(name, given) for name in classes}
    chosen = [name for name in classes if options[name] or name in wanted]
    return [classes[name](**options[name]) for name in chosen]


def policy_of(given: Mapping[str, object]) -> Policy | None:
    """The policy whose flags were given; None when there are none."""
    options = given_of(_POLICY, given)
    if not options:
        return None
    from .._checks import _checks

    return _checks.Policy(**options)


# Any: an option has the type of its flag, which the field table in C++ says.
def given_of(table: str, given: Mapping[str, object]) -> dict[str, Any]:
    """The options of a check among parsed parameters."""
    prefix = f"{table}_"
    return {
        key.removeprefix(prefix): value
        for key, value in given.items()
        if key.startswith(prefix) and value is not None and value != []
    }
