# SPDX-License-Identifier: Apache-2.0
"""Numbers of Python whose powers have the same bits everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ._library import module


class Number(float):
    """A float that stays one of its kind in arithmetic, and whose powers are potl's.

    +, -, * and / are single IEEE operations; `**` of Python's floats is the platform's libm, which
    differs between processors (with and without fused multiply-add).
    """

    __slots__ = ()

    def __pow__(self, exponent: Any, modulus: None = None) -> Any:
        return _power(self, exponent)

    def __rpow__(self, base: Any, modulus: None = None) -> Any:
        return _power(base, self)


def _power(base: Any, exponent: Any) -> Any:
    if not isinstance(base, (int, float)) or not isinstance(exponent, (int, float)):
        return NotImplemented
    return Number(module().exact_pow(float(base), float(exponent)))


def _kept(name: str) -> Callable[..., Any]:
    plain = getattr(float, name)

    def operate(*operands: Any) -> Any:
        value = plain(*operands)
        return value if value is NotImplemented else Number(value)

    operate.__name__ = name
    return operate


for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "neg", "pos"):
    setattr(Number, f"__{_name}__", _kept(f"__{_name}__"))
