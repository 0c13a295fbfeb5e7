# SPDX-License-Identifier: Apache-2.0
"""Names of the flags that options of checks and of the policy have on the command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .. import _core

_POLICY = "policy"


def flag(table: str, field: str) -> str:
    """ "--replay-samples"; what the policy demands is not an option of one check, so it has no
    prefix.
    """
    prefix = "" if table == _POLICY else f"{table}-"
    return f"--{prefix}{field}".replace("_", "-")


def words(
    checks: Iterable[tuple[str, Mapping[str, object]]], policy: Mapping[str, object]
) -> list[str]:
    """The words of a command line that ask for these checks under this policy."""
    out: list[str] = []
    for check, options in checks:
        out += ["--check", check, *_given(check, options)]
    return out + _given(_POLICY, policy)


def _given(table: str, options: Mapping[str, object]) -> list[str]:
    out: list[str] = []
    for field in _core.check_fields(table):
        value = options.get(field["name"], field["default"])
        name = flag(table, field["name"])
        if value == field["default"] or value is None:
            continue
        if isinstance(value, bool):
            out.append(name if value else f"--no-{name[2:]}")
        else:
            for one in value if isinstance(value, (list, tuple)) else [value]:
                out += [name, str(one)]
    return out
