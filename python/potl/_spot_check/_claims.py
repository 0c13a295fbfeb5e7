# SPDX-License-Identifier: Apache-2.0
"""The products among a step's operators, and the statistics of its batch norms: what each claims,
and how that is checked.

Shapes and types alone decide which of them are in a witness, so that both sides decide alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias  # Any: torch's operators take anything

import torch

from .. import _core
from .._core import FreivaldsResult
from ._batch_norms import Statistics, StatisticsFound
from ._freivalds import _array, convolution_sizes

aten = torch.ops.aten
Shape: TypeAlias = tuple[int, ...]
Tensor = torch.Tensor
Found: TypeAlias = FreivaldsResult | StatisticsFound

# A product is checked where it multiplies so often for each element that is read or written. Below
# that a check costs about as much as the product.
_WORTH = 32
_LEAST = 1 << 20
# Elements of a batch norm from which on its statistics are worth a comparison, and positions of an
# image.
_LEAST_NORM, _LEAST_POSITIONS = 1 << 15, 16
# Sums of more products have no bound in float32 (checks/freivalds.hpp).
_DEEPEST = 1 << 22


@dataclass(frozen=True)
class Claim:
    """A product of the step, or statistics.

    Attributes:
        operator: What computes it.
        place: Which of the operator's results it is.
        shape: Of the result, made of the operands' shapes.
        compute: The operator, for this result alone.
        check: (result, probes, false alarm, pool): Freivalds' check of it.
        finish: What the operator returns, from the results of all its claims.
        memory_format: In which the operator returns it.
        operands: Of a product, by their places among the operator's arguments: two factors, and
            what is added; none of statistics.
        factors: Places of the factors.
    """

    operator: str
    place: int
    shape: Shape
    compute: Callable[[], Tensor]
    check: Callable[[Tensor, int, float, _core.ThreadPool | None], Found]
    finish: Callable[[Sequence[Tensor]], Any]
    memory_format: torch.memory_format = torch.contiguous_format
    operands: Mapping[int, Tensor] = field(default_factory=dict)
    factors: tuple[int, int] = (0, 1)

    def laid_out(self, result: Tensor) -> Tensor:
        """A contiguous result as the operator would return it."""
        return result.contiguous(memory_format=self.memory_format)


def _alone(results: Sequence[Tensor]) -> Tensor:
    return results[0]


def _is_worth_it(products: int, elements: int, depth: int) -> bool:
    return products >= max(_LEAST, _WORTH * elements) and depth <= _DEEPEST


def _are_floats(*tensors: Tensor | None) -> bool:
    return all(
        one is None
        or (one.dtype is torch.float32 and one.layout is torch.strided and not one.is_neg())
        for one in tensors
    )


def _products(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, object]) -> list[Claim]:
    """mm, bmm, addmm and baddbmm: C = A B, or A B + D."""
    added = args[0] if func in (aten.addmm.default, aten.baddbmm.default) else None
    a, b = args[-2:] if added is None else args[1:3]
    if any(kwargs.get(name, 1) != 1 for name in ("alpha", "beta")) or not _are_floats(a, b, added):
        return []
    *batch, rows, depth = a.shape
    columns, count = b.shape[-1], math.prod(batch)
    products = count * rows * depth * columns
    elements = count * (rows * depth + depth * columns + rows * columns)
    if not _is_worth_it(products, elements, depth):
        return []
    shape = (*batch, rows, columns)

    def check(
        result: Tensor, probes: int, false_alarm: float, pool: _core.ThreadPool | None
    ) -> FreivaldsResult:
        addend = None if added is None else _array(added.expand(shape))
        return _core.freivalds(
            _array(a), _array(b), _array(result), probes, false_alarm, 0.0, None, pool, addend
        )

    name = func.overloadpacket.__name__
    factors = (0, 1) if added is None else (1, 2)
    return [
        Claim(
            name,
            0,
            shape,
            lambda: func(*args, **kwargs),
            check,
            _alone,
            operands=dict(enumerate((a, b) if added is None else (added, a, b))),
            factors=factors,
        )
    ]


@dataclass(frozen=True)
class _Geometry:
    """A convolution: its input, weights, and what torch calls the rest."""

    x: Tensor
    w: Tensor
    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    groups: int

    @property
    def output(self) -> Shape:
        """Of the result."""
        sizes = zip(
            self.x.shape[2:],
            self.w.shape[2:],
            self.stride,
            self.padding,
            self.dilation,
            strict=True,
        )
        return (
            self.x.shape[0],
            self.w.shape[0],
            *((x + 2 * p - d * (w - 1) - 1) // s + 1 for x, w, s, p, d in sizes),
        )

    def is_worth_it(self) -> bool:
        """The three products of a convolution multiply equally often."""
        output = self.output
        outputs, inputs_each, *kernel = math.prod(output), *self.w.shape[1:]
        taps = math.prod(kernel)
        products = outputs * inputs_each * taps
        elements = self.x.numel() + self.w.numel() + outputs
        depth = max(inputs_each * taps, output[1] * taps, outputs // max(1, output[1]))
        return _is_worth_it(products, elements, depth)

    def claim(
        self,
        gradient: str,
        place: int,
        operands: Mapping[int, Tensor],
        shape: Shape,
        compute: Callable[[], Tensor],
        finish: Callable[[Sequence[Tensor]], Any],
        bias: Tensor | None = None,
    ) -> Claim:
        """Of the result, or of the gradient of "input" or "weight"."""
        first_place, second_place = operands

        def check(
            result: Tensor, probes: int, false_alarm: float, pool: _core.ThreadPool | None
        ) -> FreivaldsResult:
            x, w = tuple(self.x.shape), tuple(self.w.shape)
            first, second = (_array(one.contiguous()) for one in operands.values())
            return _core.freivalds_convolution(
                gradient,
                first,
                second,
                _array(result),
                x[0],
                x[1],
                w[0],
                self.groups,
                convolution_sizes(x[2:], w[2:], self.stride, self.padding, self.dilation),
                probes,
                false_alarm,
                0.0,
                None,
                pool,
                None if bias is None else _array(bias.contiguous()),
            )

        last = any(
            one.dim() == 4
            and one.is_contiguous(memory_format=torch.channels_last)
            and not one.is_contiguous()
            for one in (self.x, self.w)
        )
        return Claim(
            f"convolution ({gradient} gradient)" if gradient else "convolution",
            place,
            shape,
            compute,
            check,
            finish,
            torch.channels_last if last else torch.contiguous_format,
            operands if bias is None else {**operands, 2: bias},
            (first_place, second_place),
        )


def _convolution(func: Any, args: tuple[Any, ...], _: Mapping[str, object]) -> list[Claim]:
    x, w, bias, stride, padding, dilation, transposed, _unused, groups = args
    if transposed or not _are_floats(x, w, bias):
        return []
    of = _Geometry(x, w, stride, padding, dilation, groups)
    if not of.is_worth_it():
        return []
    return [of.claim("", 0, {0: x, 1: w}, of.output, lambda: func(*args), _alone, bias)]


def _gradients(func: Any, args: tuple[Any, ...], _: Mapping[str, object]) -> list[Claim]:
    dy, x, w, _sizes, stride, padding, dilation, transposed, _unused, groups, mask = args
    if transposed or not _are_floats(dy, x, w):
        return []
    of = _Geometry(x, w, stride, padding, dilation, groups)
    if not of.is_worth_it():
        return []

    def alone(place: int) -> Callable[[], Tensor]:
        return lambda: func(*args[:-1], [place == at for at in range(3)])[place]

    def finish(results: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
        given = iter(results)
        out = [next(given) if wanted else None for wanted in mask[:2]]
        # The gradient of the bias is a sum.
        return *out, dy.sum([0, *range(2, dy.dim())]) if mask[2] else None

    claims = []
    if mask[0]:
        claims.append(of.claim("input", 0, {0: dy, 2: w}, tuple(x.shape), alone(0), finish))
    if mask[1]:
        claims.append(of.claim("weight", 1, {1: x, 0: dy}, tuple(w.shape), alone(1), finish))
    return claims


def _batch_norm(_func: Any, args: tuple[Any, ...], _: Mapping[str, object]) -> list[Claim]:
    x, weight, bias, *_running, training, _momentum, _epsilon = args
    if not training or not _are_floats(x, weight, bias):
        return []
    if x.numel() < _LEAST_NORM or math.prod(x.shape[2:]) < _LEAST_POSITIONS:
        return []
    of = Statistics(args)

    def claim(name: str, place: int) -> Claim:
        def check(
            result: Tensor, _probes: int, _false_alarm: float, pool: _core.ThreadPool | None
        ) -> Found:
            return of.judged(place, result, pool)

        return Claim(
            f"batch norm ({name})",
            place,
            (x.shape[1],),
            lambda: of.computed(place),
            check,
            lambda results: of.normalised(*results),
        )

    return [claim("mean", 1), claim("inverse deviation", 2)]


_OPERATORS: Mapping[object, Callable[[Any, tuple[Any, ...], Mapping[str, object]], list[Claim]]] = {
    aten.mm.default: _products,
    aten.bmm.default: _products,
    aten.addmm.default: _products,
    aten.baddbmm.default: _products,
    aten.convolution.default: _convolution,
    aten.convolution_backward.default: _gradients,
    aten.native_batch_norm.default: _batch_norm,
}


def claims_of(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, object]) -> list[Claim]:
    """The products that an operator computes and that are worth a check."""
    of = _OPERATORS.get(func)
    return [] if of is None else of(func, args, kwargs)
