# SPDX-License-Identifier: Apache-2.0
"""Arguments that had another name in an earlier version."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from ._errors import UsageError

_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")


def renamed(**names: str) -> Callable[[Callable[_Given, _Made]], Callable[_Given, _Made]]:
    """Refuses arguments by their `old="new"` names, and says the new ones."""

    def decorate(function: Callable[_Given, _Made]) -> Callable[_Given, _Made]:
        @functools.wraps(function)
        def checked(*args: _Given.args, **given: _Given.kwargs) -> _Made:
            for old in names.keys() & given.keys():
                raise UsageError(f"the argument {old} has another name now", f"pass {names[old]}=")
            return function(*args, **given)

        return checked

    return decorate
