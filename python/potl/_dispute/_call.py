# SPDX-License-Identifier: Apache-2.0
"""Runs an operator of a trace on operands of one's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .._task._values import Tree
from ._encoding import Reference, mapped
from ._operators import Operator
from ._tracer import Tracer


def function_of(operator: Operator) -> Any:
    """torch's function of that name."""
    return function_called(operator.name)


def function_called(name: str) -> Any:
    """The same of the name alone."""
    packet, overload = name.removeprefix("aten.").split(".")
    return getattr(getattr(torch.ops.aten, packet), overload)


def call(operator: Operator, operands: Sequence[torch.Tensor], changed: Tree) -> list[Any]:
    """Runs an operator on other operands, in the order of `Operator.operands`, and with other
    arguments where `changed` says so; returns its results. References in a changed list pick the
    operands in their places.
    """
    function = function_of(operator)
    given = iter(operands)
    arguments = {
        name: mapped(value, lambda _, leaf: next(given) if isinstance(leaf, Reference) else leaf)
        for name, value in operator.arguments.items()
    }
    for name, value in changed.items():
        own = operator.arguments[name]
        if isinstance(value, list) and any(isinstance(one, Reference) for one in value):
            value = [arguments[name][own.index(one)] for one in value]
        arguments[name] = value
    form = Tracer.form(function)
    named = form.called(arguments)
    out = function(**named)
    return [*form.returned(out), *form.written_of(named)]
