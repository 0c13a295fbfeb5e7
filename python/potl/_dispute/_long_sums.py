# SPDX-License-Identifier: Apache-2.0
"""Elements that are sums of more terms than anybody wants to open: what the terms are, in the
order in which they are added up, and what is made of the sum. Both parties show the parts of their
sums, and open the one block of terms whose part they do not agree on.

Operands are numbered as in `Operator.operands`; after these come the operator's own tensor results,
which are of use where both parties agree on them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from .._base._errors import MismatchError
from .._task._values import DTYPE_OF, Tree
from ._call import call
from ._encoding import Reference, TensorOutline, leaves
from ._folds import (
    FLOATS,
    ORD32,
    Alone,
    Chains,
    Fold,
    InOrder,
    Trees,
    canonical,
    factors,
    multiplied_and_added,
)
from ._moves import unraveled
from ._operators import Operator
from ._regions import at, broadcast, packet_of, shape_of, spatial

Places = dict[int, torch.Tensor]
Values = Mapping[int, torch.Tensor]
Finish = Callable[[torch.Tensor, Values], torch.Tensor]


def _nothing(settled: Values) -> Places:
    return {}


def _first(settled: Values, rows: Values) -> torch.Tensor:
    return next(iter(rows.values()))


def _both(settled: Values, rows: Values) -> torch.Tensor:
    return torch.stack(list(rows.values()))


def _sum(total: torch.Tensor, settled: Values) -> torch.Tensor:
    return total


@dataclass
class LongSum:
    """One element of a result.

    Attributes:
        fold: How the terms are added up.
        dtype: Of terms and parts.
        most: At most so many terms.
        finish: Makes the element of the sum and of what is settled.
        settled: What is opened with the parts, whatever they say: operand -> places.
        rows: The places of the terms, one for each; of every operand in its order.
        terms: Makes the terms of what stands at the places; the last dimension runs over them.
    """

    fold: Fold
    dtype: torch.dtype
    most: int
    finish: Finish
    settled: Places
    rows: Callable[[Values], Places] = _nothing
    terms: Callable[[Values, Values], torch.Tensor] = _first

    def block(self, number: int, settled: Values) -> Places:
        """The places of the terms from one part to the next."""
        first = number * self.fold.block
        return {
            operand: places[first : first + self.fold.block]
            for operand, places in self.rows(settled).items()
        }

    def count(self, settled: Values) -> int:
        """How many terms there are."""
        return max((len(places) for places in self.rows(settled).values()), default=0)


def forms_of(operator: Operator) -> tuple[TensorOutline, ...]:
    """Operands, and then results."""
    return (*operator.inputs, *operator.tensors)


def order_of(operator: Operator) -> list[int]:
    """In which order tensor results are disputed: those first of which others are made."""
    numbers = list(range(len(operator.tensors)))
    if packet_of(operator.name) in _MADE_OF_RESULTS:
        return [*numbers[1:], 0] if operator.results[0] is not None else numbers
    return numbers


def long_sum(operator: Operator, result: int, element: int, arithmetic: str) -> LongSum | None:
    """The element as a long sum; None where it is none, or is opened as a whole in this mode: all
    modes add up in the same order, but multiply each in its own way.

    Args:
        operator: With its operands' forms.
        result: Among the operator's results.
        element: Its place in row-major order.
        arithmetic: Of the job.
    """
    rule = _RULES.get(packet_of(operator.name))
    form = operator.results[result]
    if rule is None or form.dtype not in FLOATS:
        return None
    found = rule(operator, result, element)
    if found is not None and isinstance(found.fold, Chains) and arithmetic != ORD32:
        return None
    return found


# ---------------------------------------------------------------------- products


def _dot(
    operator: Operator,
    rows: tuple[tuple[int, torch.Tensor], tuple[int, torch.Tensor]],
    finish: Finish = _sum,
    settled: Places | None = None,
) -> LongSum | None:
    """A dot product of what stands at two lists of places."""
    dtypes = {operator.inputs[operand].dtype for operand, _ in rows}
    (dtype, *others) = dtypes
    if others or dtype not in FLOATS:
        return None
    flat = {operand: places.reshape(-1) for operand, places in rows}
    count = len(flat[rows[0][0]])
    return LongSum(
        Chains(), FLOATS[dtype], count, finish, settled or {}, lambda settled: flat, _both
    )


def _product(operator: Operator, result: int, element: int) -> LongSum | None:
    *added, left, right = (one.shape for one in operator.inputs)
    index = unraveled(element, shape_of(operator, result))
    *batch, row, column = index
    ones = (1,) * len(index)
    settled = {i: broadcast(shape, index).reshape(ones) for i, shape in enumerate(added)}

    def finish(total: torch.Tensor, settled: Values) -> torch.Tensor:
        own = [settled[i] for i in range(len(added))]
        out: torch.Tensor = call(
            operator, [*own, *(one.reshape(ones) for one in factors(total))], {}
        )[0]
        return out.reshape(())

    count = len(added)
    rows = (
        (count, at(left, *batch, row, None)),
        (count + 1, at(right, *batch, None, column)),
    )
    return _dot(operator, rows, finish, settled)


def _convolution(operator: Operator, result: int, element: int) -> LongSum | None:
    arguments = operator.arguments
    x, weight = operator.inputs[0].shape, operator.inputs[1].shape
    place = unraveled(element, shape_of(operator, result))
    if len(place) != len(weight):
        return None
    settled: Places = {}
    if len(operator.inputs) > 2:
        settled[2] = torch.tensor([place[1]])
    ones = (1,) * len(weight)
    count = len(weight) - 2
    changed = {
        "stride": [1] * count,
        "padding": [0] * count,
        "dilation": [1] * count,
        "output_padding": [0] * count,
        "groups": 1,
    }

    def finish(total: torch.Tensor, settled: Values) -> torch.Tensor:
        if not settled:
            return total
        operands = [*(one.reshape(ones) for one in factors(total)), settled[2]]
        out: torch.Tensor = call(operator, operands, changed)[0]
        return out.reshape(())

    if arguments["transposed"]:
        gradient, filters = _input_gradient(arguments, x, weight, place)
        return _dot(operator, ((1, filters), (0, gradient)), finish, settled)
    filters, window = _window(arguments, x, weight, place)
    return _dot(operator, ((1, filters), (0, window)), finish, settled)


def _convolution_backward(operator: Operator, result: int, element: int) -> LongSum | None:
    arguments = operator.arguments
    dy, x, weight = (one.shape for one in operator.inputs)
    if len(x) != len(weight):
        return None
    if result == 2:
        rest = [None] * (len(weight) - 2)
        return _tree(operator, 0, at(dy, None, element, *rest))
    place = unraveled(element, x if result == 0 else weight)
    if result == 0:
        if arguments["transposed"]:
            filters, window = _window(arguments, dy, weight, place)
            return _dot(operator, ((2, filters), (0, window)))
        gradient, filters = _input_gradient(arguments, dy, weight, place)
        return _dot(operator, ((2, filters), (0, gradient)))
    # Of a transposed convolution the input has the part that the gradient has of another one.
    ours, theirs, own, other = (1, 0, x, dy) if arguments["transposed"] else (0, 1, dy, x)
    out, channel, *tap = place
    group = out // (weight[0] // arguments["groups"])
    seen = [
        range(t * d - pad, t * d - pad + n * s, s)
        for t, n, s, pad, d in zip(tap, own[2:], *_steps(arguments), strict=True)
    ]
    rest = [None] * len(tap)
    return _dot(
        operator,
        (
            (ours, at(own, None, out, *rest)),
            (theirs, at(other, None, group * weight[1] + channel, *seen)),
        ),
    )


def _steps(arguments: Tree) -> tuple[list[int], list[int], list[int]]:
    return arguments["stride"], arguments["padding"], arguments["dilation"]


def _window(
    arguments: Tree, x: Sequence[int], weight: Sequence[int], place: Sequence[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Places of a filter and of the window that it is laid on."""
    image, channel, *at_place = place
    group = channel // (weight[0] // arguments["groups"])
    taps = [
        range(p * s - pad, p * s - pad + k * d, d)
        for p, s, pad, d, k in zip(at_place, *spatial(arguments, tuple(weight)), strict=True)
    ]
    channels = range(group * weight[1], (group + 1) * weight[1])
    rest = [None] * (len(weight) - 1)
    return at(tuple(weight), channel, *rest), at(tuple(x), image, channels, *taps)


def _input_gradient(
    arguments: Tree, dy: Sequence[int], weight: Sequence[int], place: Sequence[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Places of the gradients that read an element of the input, and of the weights at them."""
    image, channel, *at_place = place
    group, inner = divmod(channel, weight[1])
    each = weight[0] // arguments["groups"]
    outs = range(group * each, (group + 1) * each)
    reads: list[list[int]] = []
    taps: list[list[int]] = []
    for i, s, pad, d, k in zip(at_place, *spatial(arguments, tuple(weight)), strict=True):
        taps.append([t for t in range(k) if (i + pad - t * d) % s == 0])
        reads.append([(i + pad - t * d) // s for t in taps[-1]])
    return at(tuple(dy), image, outs, *reads), at(tuple(weight), outs, inner, *taps)


# ---------------------------------------------------------------------- sums


def _tree(
    operator: Operator,
    operand: int,
    places: torch.Tensor,
    finish: Finish = _sum,
    terms: Callable[[Values, Values], torch.Tensor] = _first,
    settled: Places | None = None,
    others: Places | None = None,
) -> LongSum | None:
    """T over terms that are made of one operand, and others in the same order."""
    if any(one.dtype != operator.inputs[operand].dtype for one in operator.tensors):
        return None
    dtype = FLOATS.get(operator.inputs[operand].dtype)
    if dtype is None:
        return None
    rows = {operand: places.reshape(-1), **(others or {})}
    count = len(rows[operand])
    return LongSum(Trees(count), dtype, count, finish, settled or {}, lambda settled: rows, terms)


def _divided(count: int) -> Callable[[torch.Tensor, Values], torch.Tensor]:
    return lambda total, settled: canonical(total / torch.tensor(count, dtype=total.dtype))


def _along(operator: Operator, result: int, element: int) -> LongSum | None:
    """Sums, means and Euclidean norms along dimensions."""
    shape = shape_of(operator, result)
    first = operator.inputs[0].shape
    name = packet_of(operator.name)
    given = operator.arguments.get("dim")
    listed = [given] if isinstance(given, int) else list(given or range(len(first)))
    dims = {one % max(len(first), 1) for one in listed}
    kept = iter(unraveled(element, shape))
    fixed: list[int | None] = []
    for dimension in range(len(first)):
        if dimension in dims:
            fixed.append(None)
            if len(shape) == len(first):
                next(kept)
        else:
            fixed.append(next(kept))
    finish: Finish = _sum
    places = at(first, *fixed)
    if name == "mean":
        finish = _divided(places.numel())
    terms = _first
    if name == "linalg_vector_norm":
        if float(operator.arguments["ord"]) != 2:
            return None
        finish, terms = _root, _squares
    return _tree(operator, 0, places, finish, terms)


def _root(total: torch.Tensor, settled: Values) -> torch.Tensor:
    return canonical(total.sqrt())


def _squares(settled: Values, rows: Values) -> torch.Tensor:
    (one,) = rows.values()
    return canonical(one * one)


def _foreach_norm(operator: Operator, result: int, element: int) -> LongSum | None:
    form = operator.inputs[result]
    if float(operator.arguments["ord"]) != 2 or form.dtype not in FLOATS:
        return None
    places = torch.arange(math.prod(form.shape))
    return _tree(operator, result, places, _root, _squares)


# ---------------------------------------------------------------------- norms


def _named(operator: Operator) -> dict[str, int]:
    """The operands' numbers by the names of the arguments that they are."""
    out: dict[str, int] = {}
    for name, value in operator.arguments.items():
        found = [leaf for _, leaf in leaves(value) if isinstance(leaf, Reference)]
        for _ in found:
            out[name] = len(out)
    return out


def _own(operator: Operator, result: int) -> int | None:
    """The number of one of the operator's own results; None where that is not a tensor."""
    if not isinstance(operator.results[result], TensorOutline):
        return None
    before = operator.results[:result]
    return len(operator.inputs) + sum(isinstance(one, TensorOutline) for one in before)


def _number(value: float, dtype: torch.dtype) -> torch.Tensor:
    return torch.tensor(value, dtype=dtype)


def _formula(
    dtype: torch.dtype, settled: Places, finish: Callable[[Values], torch.Tensor]
) -> LongSum:
    """An element that is made of what is settled."""
    return LongSum(Trees(0), dtype, 0, lambda _, values: finish(values).reshape(()), settled)


def _channel(operator: Operator, operand: int, channel: int) -> torch.Tensor:
    shape = operator.inputs[operand].shape
    return at(shape, None, channel, *([None] * (len(shape) - 2))).reshape(-1)


def _of_one_float(operator: Operator) -> torch.dtype | None:
    """The type that all operands and results have."""
    (dtype, *others) = {one.dtype for one in forms_of(operator)}
    return None if others else FLOATS.get(dtype)


def _batch_norm(operator: Operator, result: int, element: int) -> LongSum | None:
    names, arguments = _named(operator), operator.arguments
    dtype = _of_one_float(operator)
    if dtype is None or not arguments["training"] or not {"weight", "bias"} <= names.keys():
        return None
    shape = operator.inputs[0].shape
    channel = unraveled(element, shape)[1] if result == 0 else element
    here = torch.tensor([channel])
    mean, factor = _own(operator, 1), _own(operator, 2)
    assert mean is not None and factor is not None
    values = _channel(operator, 0, channel)
    count = len(values)
    momentum = _number(arguments["momentum"], dtype)
    kept = _number(1.0, dtype) - momentum

    def deviations(settled: Values, rows: Values) -> torch.Tensor:
        away = rows[0] - settled[mean]
        return canonical(away * away)

    def reciprocal(total: torch.Tensor, settled: Values) -> torch.Tensor:
        variance = total / _number(count, dtype) + _number(arguments["eps"], dtype)
        return canonical(_number(1.0, dtype) / variance.sqrt())

    def moved(new: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
        return multiplied_and_added(momentum, new, old * kept)

    if result == 1:
        return _tree(operator, 0, values, _divided(count))
    if result == 2:
        return _tree(operator, 0, values, reciprocal, deviations, {mean: here})
    if result == 3:
        old = names["running_mean"]
        return _formula(dtype, {mean: here, old: here}, lambda v: moved(v[mean], v[old]))
    if result == 4:
        old = names["running_var"]
        return _tree(
            operator,
            0,
            values,
            lambda total, v: moved(total / _number(count - 1, dtype), v[old]),
            deviations,
            {mean: here, old: here},
        )
    weight, bias = names["weight"], names["bias"]
    settled = {0: torch.tensor([element]), mean: here, factor: here, weight: here, bias: here}
    return _formula(
        dtype,
        settled,
        lambda v: multiplied_and_added((v[0] - v[mean]) * v[factor], v[weight], v[bias]),
    )


def _batch_norm_backward(operator: Operator, result: int, element: int) -> LongSum | None:
    names = _named(operator)
    dtype = _of_one_float(operator)
    wanted = {"weight", "save_mean", "save_invstd"}
    if dtype is None or not operator.arguments["train"] or not wanted <= names.keys():
        return None
    shape = operator.inputs[0].shape
    channel = unraveled(element, shape)[1] if result == 0 else element
    here = torch.tensor([channel])
    mean, factor, weight = names["save_mean"], names["save_invstd"], names["weight"]
    if result:
        return _weight_gradient(
            operator,
            result,
            (_channel(operator, 0, channel), _channel(operator, 1, channel)),
            {mean: here, factor: here},
        )
    slope, shift = _own(operator, 1), _own(operator, 2)
    if slope is None or shift is None:
        return None
    count = _number(math.prod(shape) // shape[1], dtype)

    def made(v: Values) -> torch.Tensor:
        h = (v[1] - v[mean]) * v[factor]
        inner = (v[0] - v[shift] / count) - h * (v[slope] / count)
        return canonical(inner * (v[factor] * v[weight]))

    place = torch.tensor([element])
    shared = dict.fromkeys((mean, factor, weight, slope, shift), here)
    return _formula(dtype, {0: place, 1: place, **shared}, made)


def _weight_gradient(
    operator: Operator,
    result: int,
    places: tuple[torch.Tensor, torch.Tensor],
    statistics: Places,
) -> LongSum | None:
    """The gradient of a norm's bias, T(dy), or of its weight, T(dy h). The statistics are those of
    all terms, or one for each.
    """
    dy, x = places
    if result == 2:
        return _tree(operator, 0, dy)
    mean, factor = statistics
    each = {} if len(statistics[mean]) == 1 else statistics
    once = {} if each else statistics

    def weighted(settled: Values, rows: Values) -> torch.Tensor:
        known = {**settled, **rows}
        return canonical(rows[0] * ((rows[1] - known[mean]) * known[factor]))

    return _tree(operator, 0, dy, _sum, weighted, once, {1: x, **each})


def _layer_norm_backward(operator: Operator, result: int, element: int) -> LongSum | None:
    names = _named(operator)
    if result == 0 or _of_one_float(operator) is None:
        return None
    width = math.prod(operator.arguments["normalized_shape"])
    rows = math.prod(operator.inputs[0].shape) // width
    if rows < 2:
        return None
    places = torch.arange(rows) * width + element
    each = torch.arange(rows)
    statistics = {names["mean"]: each, names["rstd"]: each}
    return _weight_gradient(operator, result, (places, places), statistics)


# ---------------------------------------------------------------------- by index


def _embedding(operator: Operator, result: int, element: int) -> LongSum | None:
    (count, width) = operator.inputs[0].shape
    place, inner = divmod(element, width)

    def rows(settled: Values) -> Places:
        row = _index(settled[1], count)
        return {0: row * width + inner}

    dtype = DTYPE_OF[operator.inputs[0].dtype]
    return LongSum(Alone(), dtype, 1, _sum, {1: torch.tensor([place])}, rows)


def _index(given: torch.Tensor, count: int) -> torch.Tensor:
    out = given.to(torch.int64)
    if bool(((out < 0) | (out >= count)).any()):
        raise MismatchError("both agreed on an index outside of its tensor")
    return out


def _embedding_gradient(operator: Operator, result: int, element: int) -> LongSum | None:
    arguments = operator.arguments
    gradient, indices = operator.inputs
    width = gradient.shape[-1]
    row, inner = divmod(element, width)
    if arguments["scale_grad_by_freq"] or gradient.dtype not in FLOATS:
        return None

    def rows(settled: Values) -> Places:
        if row == arguments["padding_idx"]:
            return {0: torch.zeros(0, dtype=torch.int64)}
        return {0: (settled[1].reshape(-1) == row).nonzero().reshape(-1) * width + inner}

    most = math.prod(indices.shape)
    return LongSum(InOrder(), FLOATS[gradient.dtype], most, _sum, {1: torch.arange(most)}, rows)


def _nll(operator: Operator, result: int, element: int) -> LongSum | None:
    arguments = operator.arguments
    x, _, *weight = operator.inputs
    if result or weight or len(x.shape) != 2 or not arguments["reduction"]:
        return None
    if x.dtype not in FLOATS:
        return None
    dtype = FLOATS[x.dtype]
    samples, classes = x.shape
    ignored = arguments["ignore_index"]

    def rows(settled: Values) -> Places:
        at_target = torch.where(settled[1] == ignored, 0, settled[1])
        return {0: torch.arange(samples) * classes + _index(at_target, classes), 1: every}

    def losses(settled: Values, rows: Values) -> torch.Tensor:
        return torch.where(rows[1] == ignored, torch.zeros_like(rows[0]), -rows[0])

    def finish(total: torch.Tensor, settled: Values) -> torch.Tensor:
        if arguments["reduction"] == 2:
            return total
        count = int((settled[1] != ignored).sum())
        return canonical(total / _number(count, dtype))

    every = torch.arange(samples)
    return LongSum(Trees(samples), dtype, samples, finish, {1: every}, rows, losses)


Rule = Callable[[Operator, int, int], LongSum | None]
# Operators of which an element of the first result is made of the others.
_MADE_OF_RESULTS = frozenset(("native_batch_norm", "native_batch_norm_backward"))
_RULES: dict[str, Rule] = {
    **dict.fromkeys(("mm", "addmm", "bmm", "baddbmm"), _product),
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    **dict.fromkeys(("sum", "mean", "linalg_vector_norm"), _along),
    "_foreach_norm": _foreach_norm,
    "native_batch_norm": _batch_norm,
    "native_batch_norm_backward": _batch_norm_backward,
    "native_layer_norm_backward": _layer_norm_backward,
    "embedding": _embedding,
    "embedding_dense_backward": _embedding_gradient,
    "nll_loss_forward": _nll,
}
