# SPDX-License-Identifier: Apache-2.0
"""Calls of inverse trigonometric functions, of the gamma function's relatives, and of the
likelihoods that need them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import torch
import torch.distributions as D
from neural_case import Case, floats, integers, unit


def _functions() -> Iterator[Case]:
    signed, inner, positive = floats(7, 9), 2 * unit(7, 9) - 1, 4 * unit(7, 9)
    for name in ("acos", "asin", "atanh"):
        yield Case(name, getattr(torch, name), (inner,), 1e-4)
    for name in ("atan", "asinh", "sinc", "i0"):
        yield Case(name, getattr(torch, name), (signed,))
    yield Case("acosh", torch.acosh, (1 + positive,), 1e-4)
    yield Case("lgamma", torch.lgamma, (positive,))
    yield Case("mvlgamma", lambda x: torch.mvlgamma(x + 2, 3), (positive,))
    # torch's trigamma, which is the derivative, is off by 2e-9.
    yield Case("digamma", torch.digamma, (positive,), 0.05)
    for name in ("entr", "i0e", "i1", "i1e", "ndtri", "ndtr", "expit", "gammaln"):
        # torch has no derivative of i1 and i1e for bfloat16.
        narrow = name not in ("i1", "i1e")
        yield Case(name, getattr(torch.special, name), (unit(7, 9),), 1e-4, narrow)
    yield Case("atan2", torch.atan2, (signed, floats(9)))
    yield Case("xlog1py", torch.special.xlog1py, (signed, positive))
    yield Case("xlog1py/number", lambda x: torch.special.xlog1py(x, 0.5), (signed,))
    yield Case("xlog1py/of a number", lambda y: torch.special.xlog1py(0.5, y), (positive,))
    yield Case("atan2/none", torch.atan2, (floats(0, 3), floats(3)))


def _likelihoods() -> Iterator[Case]:
    a, b, x = 0.5 + 3 * unit(6), 0.5 + 3 * unit(6), unit(6)
    shares = unit(6, 3)
    shares /= shares.sum(-1, keepdim=True)
    yield Case("Beta", lambda a, b, x: D.Beta(a, b, False).log_prob(x), (a, b, x))
    yield Case("Gamma", lambda a, b, x: D.Gamma(a, b, False).log_prob(x), (a, b, x))
    yield Case("Gamma/entropy", lambda a, b: D.Gamma(a, b, False).entropy(), (a, b), 0.05)
    yield Case(
        "Dirichlet", lambda a: D.Dirichlet(a, False).log_prob(shares.to(a)), (1 + unit(6, 3),)
    )
    yield Case("StudentT", lambda a, b, x: D.StudentT(a, b, validate_args=False).log_prob(x),
               (a, b, x))  # fmt: skip
    yield Case(
        "NegativeBinomial",
        lambda a, x, n: D.NegativeBinomial(a, logits=x, validate_args=False).log_prob(n),
        (a, x, integers(9, 6)),
    )


def cases() -> list[Case]:
    wide = [dataclasses.replace(case, narrow=False) for case in _likelihoods()]
    return [*_functions(), *wide]
