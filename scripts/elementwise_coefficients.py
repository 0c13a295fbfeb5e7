#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the coefficients of src/numeric/elementwise/float_functions.hpp and its tables.

Each polynomial is a weighted minimax fit (Lawson's reweighted least squares; Lawson, "Contributions
to the theory of linear least maximum approximation", 1961). Coefficients are rounded to float32 one
by one, lowest power first, and those that are left are fitted again. Behind each stands the largest
error relative to the function. Last digits differ with the linear algebra library: what counts is
what the sources hold. Needs numpy and mpmath.
"""

import itertools
import re
from collections.abc import Callable, Sequence

import mpmath  # type: ignore[import-untyped]
import numpy as np
from mpmath import mpf
from numpy.typing import NDArray

mpmath.mp.prec = 120
Array = NDArray[np.float64]
Function = Callable[[mpf], mpf]

# Of the intervals of piece_of, for scale 1: those of a + 1 with the same two leading bits of the
# mantissa.
EDGES = (0, 0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 9, 11, 13, 15)
POINTS = 240
TANH_SCALE = 1.625
# The best d of exponential() in (0, 0.0217), among those whose results never go back.
POWERS_SHIFT = 0.00628018693679


def rounded(value: float) -> float:
    return float(np.float32(value))


def hexadecimal(value: float) -> str:
    if value == 0:
        return "0"
    return re.sub(r"\.?0+p", "p", rounded(value).hex())


def chebyshev(low: float, high: float) -> Array:
    angles = np.pi * (np.arange(POINTS) + 0.5) / POINTS
    return np.asarray((low + high) / 2 + (high - low) / 2 * np.cos(angles), dtype=np.float64)


def lawson(x: Array, wanted: Array, weight: Array, powers: Sequence[int]) -> Array:
    matrix = np.stack([x**power for power in powers], 1) * weight[:, None]
    scale = np.abs(matrix).max(0)
    matrix = matrix / scale
    right = wanted * weight
    share = np.ones(len(x)) / len(x)
    best, least = np.zeros(len(powers)), np.inf
    for _ in range(150):
        root = np.sqrt(share)
        found = np.linalg.lstsq(matrix * root[:, None], right * root, rcond=None)[0]
        error = np.abs(matrix @ found - right)
        if error.max() < least:
            best, least = found / scale, error.max()
        share = share * (error + 1e-3 * error.max())
        share /= share.sum()
    return best


def fit(x: Array, wanted: Array, weight: Array, powers: Sequence[int]) -> tuple[list[float], float]:
    """Float32 coefficients, and the largest weighted error."""
    free, rest, out = list(powers), wanted.copy(), []
    while free:
        value = rounded(lawson(x, rest, weight, free)[0])
        rest = rest - value * x ** free[0]
        out.append(value)
        free = free[1:]
    return out, float(np.abs(rest * weight).max())


def values(function: Function, x: Array) -> Array:
    return np.array([float(function(mpf(float(one)))) for one in x])


def series(
    name: str, wanted: Function, weight: Function, low: float, high: float, deg: int
) -> None:
    x = chebyshev(low, high)
    found, error = fit(x, values(wanted, x), values(weight, x), range(deg + 1))
    print(f"{name} (2^{np.log2(error):.1f}): {', '.join(hexadecimal(one) for one in found)}")


def centre(function: Function, low: float, high: float) -> float:
    """A point near the middle where the function is almost a float32."""
    candidate, best = np.float32((low + high) / 2), (np.inf, 0.0)
    for _ in range(64):
        exact = function(mpf(float(candidate)))
        best = min(best, (abs(float(exact - mpf(rounded(float(exact))))), float(candidate)))
        candidate = np.nextafter(candidate, np.float32(100))
    return best[1]


def table(
    name: str,
    function: Function,
    base: Function,
    limit: float,
    *,
    degree: int = 6,
    scale: float = 1.0,
    knee: float = 0.0,
) -> None:
    """Rows of piece_of: centres, then coefficients, of function - base.

    No interval reaches over the knee.
    """
    rows = [[0.0] * (degree + 2) for _ in range(16)]
    worst = 0.0
    for number, (low, high) in enumerate(itertools.pairwise(edge / scale for edge in EDGES)):
        if low >= limit:
            continue
        high = min(high, limit)
        middle = centre(lambda a: function(a) - base(a), low, high) if number else 0.0
        # Adding 1 rounds: an interval reaches a little over its ends.
        x = np.abs(chebyshev(low - 1e-6, high + 1e-6)) if number else chebyshev(low, high)
        x = np.maximum(x, knee) if low > knee - 1e-5 else np.minimum(x, knee or high + 1)
        off = values(lambda a: function(a) - base(a), x)
        powers = range(0 if number else 1, degree + 1)
        found, error = fit(x - middle, off, values(lambda a: 1 / function(a), x), powers)
        worst = max(worst, error)
        # The index of the first interval, by the bits of 1.0, is 12.
        rows[(12 + number) % 16] = [middle, *([] if number else [0.0]), *found]
    print(f"{name} (2^{np.log2(worst):.1f}):")
    for column in zip(*rows, strict=True):
        print("  {" + ", ".join(hexadecimal(one) for one in column) + "},")


def exponential() -> None:
    """q with exp(r) = (1 + d) (1 + q). A power of 2 is rounded, and with it the result; as d is
    free, 16 of them can be almost exact. With d > 0 the slope of q is below 1 for r < 0: there its
    rounding would make results go back.
    """
    d = mpf(POWERS_SHIFT)
    powers = [2 ** (mpf(k) / 16) * (1 + d) for k in range(16)]
    # Beside 1 there are results below 1, with half the unit.
    off = [
        abs(one - mpf(rounded(float(one)))) * 2 ** (23 if k else 24) for k, one in enumerate(powers)
    ]
    print(f"powers of 2 (within {float(max(off)):.2f} ulp):")
    print(", ".join(hexadecimal(float(one)) for one in powers))
    reach = float(mpmath.log(2)) / 32 * 1.001
    series(
        "exp",
        lambda r: (mpmath.exp(r) - 1 - d) / (1 + d),
        lambda r: (1 + d) / mpmath.exp(r),
        -reach,
        reach,
        3,
    )


def first_above(edge: float) -> float:
    """The least a for which the float32 a TANH_SCALE + 1 is not below the edge."""
    a = np.float32((edge - 1) / TANH_SCALE)
    while np.float32(float(a) * TANH_SCALE + 1) >= edge:
        a = np.nextafter(a, np.float32(0))
    return float(np.nextafter(a, np.float32(1)))


def logarithm() -> None:
    ln2_high = float.fromhex("0x1.62e4p-1")
    factors, high, low = [], [], []
    for number in range(16):
        left, right = 1 + number / 16, 1 + (number + 1) / 16
        # Exactly 1 and 1/2 beside the zero of the logarithm.
        choices = {0: [32], 15: [16]}.get(number, range(16, 33))
        factor = min(choices, key=lambda c: max(abs(left * c / 32 - 1), abs(right * c / 32 - 1)))
        exact = -mpmath.log(mpf(factor) / 32)
        head = ln2_high if number == 15 else float(mpmath.nint(exact * 2**16) / 2**16)
        factors.append(factor / 32)
        high.append(head)
        low.append(float(exact - mpf(head)))
    for name, row in (("factor", factors), ("high", high), ("low", low)):
        print(f"log {name}: {', '.join(hexadecimal(one) for one in row)}")
    least = min((1 + n / 16) * c - 1 for n, c in enumerate(factors))
    most = max((1 + (n + 1) / 16) * c - 1 for n, c in enumerate(factors))
    series(
        "log",
        lambda r: (mpmath.log(1 + r) - r) / r**2,
        lambda r: abs(r**2 / mpmath.log(1 + r)),
        least,
        most,
        3,
    )


def silu(x: mpf) -> mpf:
    return x / (1 + mpmath.exp(-x))


def normal_tail(u: mpf) -> mpf:
    return mpmath.erfc(u / mpmath.sqrt(2)) / 2


def tail(u: mpf) -> mpf:
    """Of the normal distribution, over its density without the constant."""
    return mpmath.exp(u * u / 2) * normal_tail(u)


def normal() -> None:
    """Columns for gelu near 0: q, Q(c) for c = k / 8, then the polynomial in t of u (Q(u) - q),
    u = c + t. Q is the tail of the normal distribution.
    """
    columns, worst = [], 0.0
    for k in range(32):
        c = k / 8
        x = chebyshev(c - 0.0625 if k else 0.0, min(c + 0.0625, 3.90625))
        # Beside the extremum, with 0, there is one rounding but for small terms: neighbours there
        # differ by less than another one.
        middle = rounded(float(normal_tail(mpf(c)))) if k != 6 else 0.0
        wanted = values(lambda u, middle=middle: u * (normal_tail(u) - middle), x)  # type: ignore[misc]
        powers = range(0 if k else 2, 6)
        found, error = fit(x - c, wanted, values(lambda u: 1 / (u * normal_tail(u)), x), powers)
        worst = max(worst, error)
        columns.append([middle, *([] if k else [0.0, 0.0]), *found])
    print(f"normal (2^{np.log2(worst):.1f}):")
    for row in zip(*columns, strict=True):
        print("  {" + ", ".join(hexadecimal(one) for one in row) + "},")


def valley_of_silu() -> None:
    """x sigmoid(x) by powers of the distance from a point beside its minimum, -1.278, where it is
    almost a float32.
    """
    found = (np.inf, 0.0)
    for place in -1.278 - np.arange(8192) * 2.0**-23:
        exact = silu(mpf(rounded(place)))
        found = min(found, (abs(float(exact - mpf(rounded(float(exact))))), rounded(place)))
    place = mpf(found[1])
    start = rounded(float(silu(place)))
    d = chebyshev(-0.5, 0.5)
    wanted = values(lambda d: silu(place + d) - start, d)
    weight = values(lambda d: 1 / silu(place + d), d)
    slope, error = fit(d, wanted, weight, range(1, 9))
    print(f"silu at {hexadecimal(float(place))}: {hexadecimal(start)} (2^{np.log2(error):.1f})")
    print(", ".join(hexadecimal(one) for one in slope))


def main() -> None:
    exponential()
    series(
        "exp - 1",
        lambda r: (mpmath.exp(r) - 1 - r) / r**2,
        lambda r: r**2 / mpmath.exp(r),
        -0.3468,
        0.3468,
        4,
    )
    logarithm()
    knee = first_above(2.5)
    print(f"knee of tanh: {hexadecimal(knee)}")
    table(
        "tanh",
        mpmath.tanh,
        lambda a: min(a, mpf(knee)),
        9.02,
        degree=5,
        scale=TANH_SCALE,
        knee=knee,
    )
    table("erf", mpmath.erf, lambda a: min(a, mpf(1)), 4.0)
    normal()
    valley_of_silu()
    table("gelu", lambda u: u * tail(u), lambda u: min(u / 2, mpf(1) / 4), 14.5)
    series(
        "ratio of the derivative of gelu",
        lambda v: tail(v / (1 - v / 4)) / (1 - v / 4),
        lambda v: (1 - v / 4) / tail(v / (1 - v / 4)),
        0.0,
        14.6 / (1 + 14.6 / 4),
        9,
    )


if __name__ == "__main__":
    main()
