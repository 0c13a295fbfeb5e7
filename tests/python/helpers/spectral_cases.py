# SPDX-License-Identifier: Apache-2.0
"""Calls that transform, and compute with complex numbers: their operands are parts of those."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from neural_case import Case, floats
from torch import Tensor


def _parts(z: Any) -> Any:
    return torch.view_as_real(z.resolve_conj()) if z.is_complex() else z


def _case(name: str, call: Callable[..., Tensor], *operands: Tensor) -> Case:
    """`call` takes a complex number for every operand with a last dimension of 2, the others as
    they are.
    """

    def of_parts(*parts: Tensor) -> Tensor:
        whole = [torch.view_as_complex(x) if x.size(-1) == 2 else x for x in parts]
        return _parts(call(*whole))  # type: ignore[no-any-return]

    return Case(f"complex/{name}", of_parts, operands, narrow=False)


def _transforms() -> Iterator[Case]:
    z, x = floats(3, 6, 5, 2), floats(3, 6, 5)
    for norm, length in itertools.product(("backward", "ortho", "forward"), (4, 5, 17)):
        for name in ("fft", "ifft", "hfft", "irfft"):
            yield _case(
                f"{name}/{norm}/{length}",
                lambda z, name=name, norm=norm, n=length: getattr(torch.fft, name)(
                    z, n, dim=1, norm=norm
                ),
                z,
            )
        for name in ("fft", "rfft", "ihfft"):
            yield _case(
                f"{name} of reals/{norm}/{length}",
                lambda x, name=name, norm=norm, n=length: getattr(torch.fft, name)(
                    x, n, dim=1, norm=norm
                ),
                x,
            )
    for name in ("fftn", "ifftn", "irfftn"):
        yield _case(name, lambda z, name=name: getattr(torch.fft, name)(z, dim=(2, 0)), z)
    for name in ("fftn", "rfftn"):
        yield _case(f"{name} of reals", lambda x, name=name: getattr(torch.fft, name)(x), x)
    yield _case("irfft2 of a size", lambda z: torch.fft.irfft2(z, s=(4, 7)), z)

    def spectrogram(x: Tensor) -> Tensor:
        window = torch.hann_window(16, dtype=x.dtype)
        return torch.stft(x, 16, 4, window=window, return_complex=True)

    def sound(z: Tensor) -> Tensor:
        window = torch.hann_window(16, dtype=z.real.dtype)
        return torch.istft(z, 16, 4, window=window, length=50)

    yield _case("stft", spectrogram, floats(3, 50))
    yield _case("istft", sound, floats(3, 9, 13, 2))


def _elements() -> Iterator[Case]:
    z, w, x = floats(3, 4, 2), floats(3, 1, 2), floats(3, 4)
    yield _case("product", lambda z, w: z * w, z, w)
    yield _case("product with a real", lambda z, x: z * x * 3, z, x)
    yield _case("product with a conjugate", lambda z, w: z * w.conj() * 1j, z, w)
    yield _case("quotient", lambda z, w: z / w, z, w)
    yield _case("quotients by and of reals", lambda z, x: z / (x + 2j) / x + 3 / z, z, x)
    yield _case("reciprocal", lambda z: z.reciprocal(), z)
    yield _case("abs", lambda z: z.abs(), z)
    yield _case("sgn", lambda z: z.sgn(), z)
    yield _case("exp", lambda z: z.exp(), z)
    yield _case("log", lambda z: z.log(), z)
    yield _case("cumsum", lambda z: z.cumsum(-1) + z.conj().cumsum(0), z)
    yield _case("angle", lambda z: z.angle(), z)
    yield _case("sqrt", lambda z: z.sqrt() + (-z.real.square() + 0j).sqrt(), z)
    for power in (0, 1, 2, 3, -1.5, 0.5, 1 - 2j):
        yield _case(f"power of {power}", lambda z, power=power: z**power, z)
    yield _case("power", lambda z, w: z**w, z, w)
    yield _case("power of reals", lambda z, x: z**x, z, x)
    yield _case("powers of numbers", lambda z: 2**z + (1 + 2j) ** z, z)
    yield _case("polar", lambda x, y: torch.polar(x.abs(), y), x, floats(3, 4))
    yield _case("parts", lambda z: torch.complex(z.imag, z.conj().imag) + z.real, z)
    yield _case("sum with a factor", lambda z, w: torch.sub(z, w.expand_as(z), alpha=3), z, w)
    yield _case("lerp", lambda z, w: torch.lerp(z, w.expand_as(z), 0.3), z, w)


def _reductions() -> Iterator[Case]:
    a, b = floats(2, 3, 5, 2), floats(2, 5, 4, 2)
    yield _case("sum", lambda a: a.sum().sum(0) + a.sum(1, keepdim=True) * a.mean((0, -1)).sum(), a)
    yield _case("prod", lambda a: a.prod() + a.prod(1) + a[:, :0].prod(1, keepdim=True).sum(1), a)
    yield _case("prod of zeros", lambda a: (a * (a.real > 0)).prod(1) + (a * 0).prod(0).sum(), a)
    yield _case("cumprod", lambda a: a.cumprod(1) + (a * (a.imag > 0)).conj().cumprod(-1), a)
    yield _case("var", lambda a: a.var() + a.var(1, correction=0) + torch.var_mean(a, 1)[1], a)
    yield _case("std", lambda a: a.std((0, 1), keepdim=True), a)
    yield _case("norm", lambda a: a.norm() + torch.linalg.vector_norm(a, 3, dim=1), a)
    yield _case("bmm", lambda a, b: a @ b, a, b)
    yield _case("mm of conjugates", lambda a, b: a[0].conj() @ b[0].mH.mT, a, b)
    yield _case("addmm", lambda a, b: torch.addmm(a[0, :, :4], a[0], b[0], alpha=2j), a, b)
    yield _case("vdot", lambda a: torch.vdot(a[0, 0], a[1, 1]) + torch.dot(a[0, 0], a[0, 1]), a)
    yield _case("einsum", lambda a, b: torch.einsum("bik,bko->oi", a, b), a, b)


def _places() -> Iterator[Case]:
    a, twice = floats(4, 3, 2), torch.tensor([2, 0, 2])
    yield _case("index", lambda a: a[twice, twice] * a[:, twice][:3, 0], a)
    yield _case("index_select", lambda a: a.index_select(-2, twice), a)
    yield _case("gather", lambda a: a.gather(-1, twice.expand(4, 3)), a)
    yield _case("take", lambda a: a.take(twice - 1), a)
    yield _case("index_add", lambda a: a.index_add(0, twice, a[:3], alpha=2), a)


def cases() -> list[Case]:
    return [*_transforms(), *_elements(), *_reductions(), *_places()]
