# SPDX-License-Identifier: Apache-2.0
"""Samples as docs/format/randomness.md defines them: written from the page, with potl's exp, log1p
and lgamma and its normal numbers.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

pytest.importorskip("potl._torch", reason="potl was built without torch")

from pure_format import philox

import potl
from potl import _core

KEY = _core.derive_key(7, "page")
WORD, STREAM = struct.unpack("<QQ", KEY[:16])
START, COUNT = 3, 600


def values(block: int, attempt: int = 0) -> tuple[int, int]:
    low, stream = 2**32 - 1, (STREAM + attempt) % 2**64
    w = philox((block & low, block >> 32, stream & low, stream >> 32), (WORD & low, WORD >> 32))
    return w[1] << 32 | w[0], w[3] << 32 | w[2]


def u(v: int) -> float:
    return ((v >> 12) + 0.5) * 2.0**-52


def h(v: int) -> float:
    return (v >> 11) * 2.0**-53


def log(x: float) -> float:
    m, e = math.frexp(x)
    m, e = 2 * m, e - 1
    if m > 1.4142135623730951:
        m, e = m / 2, e + 1
    f = m - 1
    s = f / (2 + f)
    z, half, r = s * s, 0.5 * f * f, 2 / 21
    for n in range(19, 1, -2):
        r = 2 / n + z * r
    high, low = float.fromhex("0x1.62e42feep-1"), float.fromhex("0x1.a39ef35793c76p-33")
    return e * high - ((half - (s * (half + z * r) + e * low)) - f)


def normal(block: int, attempt: int) -> float:
    """Q(u(v1))."""
    out = np.empty(1)
    key = struct.pack("<QQ", WORD, (STREAM + attempt) % 2**64)
    _core.fill_normal(out, key, 2 * block, 0.0, 1.0)
    return float(out[0])


def function(of: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[float], float]:
    return lambda x: float(of(torch.tensor(x, dtype=torch.float64)))


@pytest.fixture(autouse=True)
def block() -> Iterator[None]:
    with potl.deterministic():
        yield


exp, log1p, lgamma = function(torch.exp), function(torch.log1p), function(torch.lgamma)


def gamma(a: float, i: int) -> tuple[float, float]:
    """The sample before exp(E), and E."""
    exponent = log(u(values(i)[0])) / a if a < 1 else 0.0
    d = (a + 1 if a < 1 else a) - 1 / 3
    for t in range(1, 65):
        z = normal(i, t) * (1 / (3 * math.sqrt(d)))
        if z <= -1:
            continue
        if log(u(values(i, t)[1])) < 3 * d * ((log1p(z) - z) + z * z * (0.5 - z / 3)):
            return d * ((1 + z) * (1 + z) * (1 + z)), exponent
    return d, exponent


def log_poisson(k: float, r: float) -> float:
    if k < 10:
        return (k * log(r) - r) - lgamma(k + 1)
    e, z = (k - r) / r, 1 / (k * k)
    rest = (1 / 12 - (1 / 360 - (1 / 1260 - z / 1680) * z) * z) / k
    return (-r * ((1 + e) * log1p(e) - e) - 0.5 * log(2 * math.pi * k)) - rest


def transformed(
    a: float,
    b: float,
    centre: float,
    squeeze: float,
    scale: float,
    log_probability: Callable[[float], float],
    most: float,
    i: int,
) -> float:
    for t in range(64):
        v1, v2 = values(i, t)
        x = u(v1) - 0.5
        c = 0.5 - abs(x)
        k = float(math.floor((2 * a / c + b) * x + centre))
        if c >= 0.07 and u(v2) <= squeeze:
            return k
        if 0 <= k <= most and (log(u(v2)) + scale) - log(a / (c * c) + b) <= log_probability(k):
            return k
    return math.floor(centre)


def small_mean(probability: float, quotient: Callable[[int], float], most: float, i: int) -> float:
    k, left = 0, h(values(i)[0]) - probability
    while left >= 0 and k < most and probability > 0:
        k += 1
        probability *= quotient(k)
        left -= probability
    return k


def poisson(r: float, i: int) -> float:
    if r < 10:
        return small_mean(exp(-r), lambda k: r / k, math.inf, i)
    b = 0.931 + 2.53 * math.sqrt(r)
    a, scale = 0.02483 * b - 0.059, log(1.1239 + 1.1328 / (b - 3.4))
    squeeze = 0.9277 - 3.6224 / (b - 2)
    return transformed(a, b, r + 0.43, squeeze, scale, lambda k: log_poisson(k, r), math.inf, i)


def binomial(n: float, p: float, i: int) -> float:
    if p > 0.5:
        return n - binomial(n, 1 - p, i)
    if n * p < 10:
        odds = p / (1 - p)
        return small_mean(exp(n * log1p(-p)), lambda k: odds * ((n - k + 1) / k), n, i)

    def g(k: float) -> float:
        return (log_poisson(k, n * p) + log_poisson(n - k, n * (1 - p))) - log_poisson(n, n)

    deviation = math.sqrt(n * p * (1 - p))
    b = 1.15 + 2.53 * deviation
    scale = log((2.83 + 5.1 / b) * deviation) + g(float(math.floor((n + 1) * p)))
    a = 0.0248 * b - 0.0873 + 0.01 * p
    return transformed(a, b, n * p + 0.5, 0.92 - 4.2 / b, scale, g, n, i)


def parameters(most: float) -> np.ndarray:
    out = np.random.default_rng(5).uniform(0.01, most, COUNT)
    out[::7] *= 1000
    return out


def test_gamma_and_dirichlet_samples_follow_the_page() -> None:
    shapes, drawn, shares = parameters(4), np.empty(COUNT), np.empty(COUNT)
    _core.fill_gamma(drawn, KEY, START, shapes)
    _core.fill_dirichlet(shares, KEY, START, shapes, 5)
    parts = [gamma(a, START + i) for i, a in enumerate(shapes.tolist())]
    assert drawn.tolist() == [factor * exp(exponent) for factor, exponent in parts]
    for row in range(0, COUNT, 5):
        logs = [log(factor) + exponent for factor, exponent in parts[row : row + 5]]
        powers, total = [exp(one - max(logs)) for one in logs], 0.0
        for power in powers:
            total += power
        assert shares[row : row + 5].tolist() == [power / total for power in powers]


def test_poisson_and_binomial_samples_follow_the_page() -> None:
    rates, trials, drawn = parameters(60), np.floor(parameters(300)), np.empty(COUNT)
    chances = np.random.default_rng(6).uniform(0, 1, COUNT)
    _core.fill_poisson(drawn, KEY, START, rates)
    assert drawn.tolist() == [poisson(r, START + i) for i, r in enumerate(rates.tolist())]
    _core.fill_binomial(drawn, KEY, START, trials, chances)
    pairs = zip(trials.tolist(), chances.tolist(), strict=True)
    assert drawn.tolist() == [binomial(n, p, START + i) for i, (n, p) in enumerate(pairs)]


def test_categories_follow_the_page() -> None:
    weights = [0.0, 0.3, 0.0, 0.1, 2.5, 1e-9, 0.7, 0.0]
    sums, drawn = np.cumsum(weights).tolist(), np.empty(COUNT, dtype=np.int64)
    row = 5
    _core.fill_categories(drawn, KEY, row * COUNT, np.array(weights))
    for i, place in enumerate(drawn.tolist()):
        block, half = divmod(row * COUNT + i, 2)
        sought = h(values(block)[half]) * sums[-1]
        assert place == min(k for k, at in enumerate(sums) if sought < at)
