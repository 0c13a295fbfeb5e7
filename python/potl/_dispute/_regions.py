# SPDX-License-Identifier: Apache-2.0
"""Which elements of its operands one element of a result is made of, operator by operator.

A plan names, for each operand, a small tensor of places in it, and the arguments with which the
same operator makes the element out of those. What has no rule needs its operands as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from .._task._values import Tree
from ._call import call, function_of
from ._encoding import Reference, TensorOutline, leaves
from ._moves import source, unraveled
from ._operators import Operator

Shape = tuple[int, ...]


@dataclass
class Plan:
    """How to make one element of a result.

    Attributes:
        places: For each operand the places of what is needed, in the shape that the operator gets;
            -1 stands for +0. None: the operand is needed as a whole.
        element: Where the element is in the result that comes out.
        changed: Arguments that are other ones than the operator's.
        result: Which result of the operator it is, where that changes.
        multiply_adds: What it costs; 0 where nothing is multiplied and summed.
    """

    places: list[torch.Tensor | None]
    element: int
    changed: Tree = field(default_factory=dict)
    result: int | None = None
    multiply_adds: int = 0


# In place of a result: the one element that is needed is the element.
MOVED = -1
Rule = Callable[[Operator, int, int], Plan]


def plan(operator: Operator, result: int, element: int) -> Plan:
    """The plan for one element of a tensor result.

    Args:
        operator: With its operands' forms.
        result: Among the operator's results.
        element: Its place in row-major order.
    """
    rule = _RULES.get(packet_of(operator.name)) or _by_tag(operator)
    return rule(operator, result, element)


def multiply_adds(operator: Operator) -> int:
    """Multiply-adds of the whole operator; 0 for those that are neither product nor convolution."""
    name = packet_of(operator.name)
    shapes = [one.shape for one in operator.inputs]
    results = [one.shape if isinstance(one, TensorOutline) else () for one in operator.results]
    if name in ("mm", "addmm", "bmm", "baddbmm"):
        return math.prod(results[0]) * shapes[-2][-1]
    if name == "convolution":
        return math.prod(results[0]) * math.prod(shapes[1][1:])
    if name == "convolution_backward":
        one = math.prod(shapes[0]) * math.prod(shapes[2][1:])
        return one * sum(map(bool, operator.arguments["output_mask"][:2]))
    return 0


# ---------------------------------------------------------------------- places


def at(shape: Shape, *indices: Sequence[int] | range | int | None) -> torch.Tensor:
    """Places of a part of a tensor: for each dimension the indices in it, one index (which keeps
    the dimension), or None for all. An index outside gives -1.
    """
    out = torch.zeros((), dtype=torch.int64)
    outside = torch.zeros((), dtype=torch.bool)
    for dimension, wanted in enumerate(indices):
        size = shape[dimension]
        chosen = [wanted] if isinstance(wanted, int) else range(size) if wanted is None else wanted
        index = torch.tensor(list(chosen), dtype=torch.int64)
        out = out[..., None] * size + index
        outside = outside[..., None] | (index < 0) | (index >= size)
    return torch.where(outside, -1, out)


def broadcast(shape: Shape, index: Sequence[int]) -> torch.Tensor:
    """The one element of a broadcast operand that stands at an index of the result."""
    if not shape:
        return torch.zeros((), dtype=torch.int64)
    own = index[len(index) - len(shape) :]
    return at(shape, *(0 if n == 1 else i for n, i in zip(shape, own, strict=True)))


def shape_of(operator: Operator, result: int) -> Shape:
    outline = operator.results[result]
    assert isinstance(outline, TensorOutline)
    return outline.shape


def packet_of(name: str) -> str:
    return name.removeprefix("aten.").partition(".")[0]


# ---------------------------------------------------------------------- rules


def whole(operator: Operator, result: int, element: int) -> Plan:
    """Everything."""
    return Plan([None] * len(operator.inputs), element)


def _elementwise(operator: Operator, result: int, element: int) -> Plan:
    index = unraveled(element, shape_of(operator, result))
    places: list[torch.Tensor | None] = [broadcast(one.shape, index) for one in operator.inputs]
    return Plan(places, 0)


def _foreach(operator: Operator, result: int, element: int) -> Plan:
    """The lists hold as many tensors as there are results; other operands are for all of them."""
    packet = packet_of(operator.name)[len("_foreach_") :]
    count, shape = len(operator.results), shape_of(operator, result)
    index = unraveled(element, shape)
    forms = iter(operator.inputs)
    places: list[torch.Tensor | None] = []
    changed: Tree = {}
    pointwise = is_foreach_pointwise(packet.rstrip("_"))
    for name, value in operator.arguments.items():
        listed = isinstance(value, list) and len(value) == count
        if listed:
            changed[name] = [value[result]]
        found = [leaf for _, leaf in leaves(value) if isinstance(leaf, Reference)]
        for one in found:
            form = next(forms)
            if listed and one != found[result]:
                places.append(torch.zeros(0, dtype=torch.int64))
            elif not pointwise:
                places.append(None)
            elif name == "self" and packet in _FOREACH_OVERWRITES:
                places.append(torch.full([1] * len(shape), -1))
            else:
                places.append(broadcast(form.shape, index))
    return Plan(places, 0 if pointwise else element, changed, result=0)


# Those that are elementwise, whatever torch's tags say, and those that do not read what they write.
_FOREACH_COPIES, _FOREACH_OVERWRITES = ("copy", "zero", "clone"), ("copy_", "zero_")


def is_foreach_pointwise(packet: str) -> bool:
    """Whether an element is made of one of each list, where the lists' operator is `packet`."""
    if packet == "max":  # torch's other operator of that name is elementwise
        return False
    known = getattr(torch.ops.aten, packet, None)
    tags = [] if known is None else [getattr(known, one).tags for one in known.overloads()]
    return packet in _FOREACH_COPIES or any(torch.Tag.pointwise in one for one in tags)


def _fused(operator: Operator, result: int, element: int) -> Plan:
    """An optimizer's lists of tensors of one length, each of which is written in its place."""
    count = max(len(one) for one in operator.arguments.values() if isinstance(one, list))
    number = result % count
    shape = shape_of(operator, result)
    index = unraveled(element, shape)
    forms = iter(operator.inputs)
    places: list[torch.Tensor | None] = []
    changed: Tree = {}
    for name, value in operator.arguments.items():
        listed = isinstance(value, list) and len(value) == count
        if listed:
            changed[name] = [value[number]]
        found = [leaf for _, leaf in leaves(value) if isinstance(leaf, Reference)]
        for place, _ in enumerate(found):
            form = next(forms)
            if listed and place != number:
                places.append(torch.zeros(0, dtype=torch.int64))
            elif len(form.shape) > len(shape):  # a count is written of any element
                places.append(at(form.shape, *[0] * len(form.shape)))
            else:
                places.append(broadcast(form.shape, index))
    return Plan(places, 0, changed, result=result // count)


def _overwritten(operator: Operator, result: int, element: int) -> Plan:
    """What the first operand holds before is not read."""
    plan = _elementwise(operator, result, element)
    assert plan.places[0] is not None
    plan.places[0] = torch.full_like(plan.places[0], -1)
    return plan


def _drawn(operator: Operator, result: int, element: int) -> Plan:
    """A tensor filled with random numbers, all of which depend on its size."""
    unread = torch.tensor(-1).expand(operator.inputs[0].shape)
    return Plan([unread, *([None] * (len(operator.inputs) - 1))], element)


def _identity(operator: Operator, result: int, element: int) -> Plan:
    """The same elements in the same order."""
    outline = operator.results[result]
    if outline.dtype != operator.inputs[0].dtype:
        return whole(operator, result, element)
    return Plan([torch.tensor([element])], 0, result=MOVED)


def _moved(operator: Operator, result: int, element: int) -> Plan:
    """Where an element was before an operator that only moves elements."""
    outline = operator.results[result]
    if any(one.dtype != outline.dtype for one in operator.inputs):  # joined ones are converted
        return whole(operator, result, element)
    if function_of(operator).is_view:
        return Plan([torch.tensor([_seen(operator, result, element)])], 0, result=MOVED)
    moved = source(operator, unraveled(element, outline.shape))
    if moved is not None:
        number, place = moved
        nothing = torch.zeros(0, dtype=torch.int64)
        places: list[torch.Tensor | None] = [nothing for _ in operator.inputs]
        places[number] = torch.tensor([place])
        return Plan(places, 0, result=MOVED)
    filled = torch.full((1,) * len(outline.shape), -1)
    if "value" not in operator.arguments:
        return Plan([filled], 0, result=MOVED)
    return Plan([filled], 0, {"pad": [1, 0]})  # of the two elements, the one beside it


def _seen(operator: Operator, result: int, element: int) -> int:
    """Where in its operand an element of a view is. However large that is, nothing is as large."""
    (form,) = operator.inputs
    view: torch.Tensor = call(operator, [torch.empty(form.shape, device="meta")], {})[result]
    index = unraveled(element, tuple(view.shape))
    place = int(view.storage_offset())
    return place + sum(one * by for one, by in zip(index, view.stride(), strict=True))


def _product(operator: Operator, result: int, element: int) -> Plan:
    """mm, bmm, and with something added."""
    *added, left, right = (one.shape for one in operator.inputs)
    index = unraveled(element, shape_of(operator, result))
    *batch, row, column = index
    places: list[torch.Tensor | None] = []
    for shape in added:
        places.append(broadcast(shape, index).reshape((1,) * (len(batch) + 2)))
    places += [at(left, *batch, row, None), at(right, *batch, None, column)]
    return Plan(places, 0, multiply_adds=left[-1])


def _convolution(operator: Operator, result: int, element: int) -> Plan:
    arguments = operator.arguments
    if arguments["transposed"]:
        return whole(operator, result, element)
    x, weight = operator.inputs[0].shape, operator.inputs[1].shape
    image, channel, *place = unraveled(element, shape_of(operator, result))
    group = channel // (weight[0] // arguments["groups"])
    taps = [
        range(p * s - pad, p * s - pad + k * d, d)
        for p, s, pad, d, k in zip(place, *spatial(arguments, weight), strict=True)
    ]
    channels = range(group * weight[1], (group + 1) * weight[1])
    rest = [None] * (len(weight) - 1)
    places: list[torch.Tensor | None] = [at(x, image, channels, *taps), at(weight, channel, *rest)]
    if len(operator.inputs) > 2:
        places.append(torch.tensor([channel]))
    count = len(place)
    changed: Tree = {
        "stride": [1] * count,
        "padding": [0] * count,
        "dilation": [1] * count,
        "groups": 1,
    }
    return Plan(places, 0, changed, multiply_adds=math.prod(weight[1:]))


def spatial(
    arguments: Tree, weight: Shape
) -> tuple[list[int], list[int], list[int], Sequence[int]]:
    return arguments["stride"], arguments["padding"], arguments["dilation"], weight[2:]


def _convolution_backward(operator: Operator, result: int, element: int) -> Plan:
    arguments = operator.arguments
    if arguments["transposed"]:
        return whole(operator, result, element)
    # Results that nobody wanted are None, and stay in their places.
    if result == 0:
        return _input_gradient(operator, element)
    dy, x, weight = (one.shape for one in operator.inputs)
    rest = [None] * (len(weight) - 2)
    if result == 2:
        places: list[torch.Tensor | None] = [
            at(dy, None, element, *rest),
            at(x, None, 0, *rest),
            at(weight, 0, 0, *rest),
        ]
        return Plan(places, 0, _alone((False, False, True)))
    out, channel, *tap = unraveled(element, weight)
    seen = out // (weight[0] // arguments["groups"]) * weight[1] + channel
    places = [
        at(dy, None, out, *rest),
        at(x, None, seen, *rest),
        at(weight, out, channel, *rest),
    ]
    place = 0
    for index, size in zip(tap, weight[2:], strict=True):
        place = place * size + index
    cost = math.prod(weight[2:]) * dy[0] * math.prod(dy[2:])
    return Plan(places, place, _alone((False, True, False)), multiply_adds=cost)


def _alone(mask: tuple[bool, ...], outs: int = 1) -> Tree:
    return {"output_mask": list(mask), "groups": 1, "bias_sizes": [outs]}


def _input_gradient(operator: Operator, element: int) -> Plan:
    """A convolution so small that all of its output is read by the one element."""
    arguments = operator.arguments
    dy, x, weight = (one.shape for one in operator.inputs)
    image, channel, *place = unraveled(element, x)
    group, inner = divmod(channel, weight[1])
    each = weight[0] // arguments["groups"]
    outs = range(group * each, (group + 1) * each)
    windows: list[range] = []
    size: list[int] = []
    own: list[int] = []
    for i, s, pad, d, k in zip(place, *spatial(arguments, weight), strict=True):
        reads = [(i + pad - t * d) // s for t in range(k) if (i + pad - t * d) % s == 0]
        window = range(min(reads), max(reads) + 1) if reads else range(-2, 0)
        windows.append(window)
        size.append((len(window) - 1) * s + (k - 1) * d + 1)
        own.append(i + pad - window.start * s if reads else (i + pad) % s)
    rest = [None] * len(place)
    gradient = at(dy, image, outs, *windows)
    nothing = torch.full((1, 1, *size), -1)
    places: list[torch.Tensor | None] = [gradient, nothing, at(weight, outs, inner, *rest)]
    at_place = 0
    for index, extent in zip(own, size, strict=True):
        at_place = at_place * extent + index
    changed = _alone((True, False, False), each) | {"padding": [0] * len(place)}
    cost = math.prod(gradient.shape) * math.prod(weight[2:])
    return Plan(places, at_place, changed, multiply_adds=cost)


def _by_channel(operator: Operator, result: int, element: int) -> Plan:
    """Batch norm: a channel by itself."""
    shape = shape_of(operator, result)
    index = unraveled(element, shape)
    if 0 in shape or not index:
        return whole(operator, result, element)
    channel = index[1] if len(index) > 1 else index[0]
    places: list[torch.Tensor | None] = []
    for one in operator.inputs:
        wide = len(one.shape) > 1
        rest = [None] * (len(one.shape) - 2)
        if 0 in one.shape:
            places.append(torch.zeros(0, dtype=torch.int64))
        else:
            places.append(at(one.shape, None, channel, *rest) if wide else torch.tensor([channel]))
    if len(index) == 1:
        return Plan(places, 0)
    place = index[0]
    for i, size in zip(index[2:], shape[2:], strict=True):
        place = place * size + i
    return Plan(places, place)


def _by_row(operator: Operator, result: int, element: int) -> Plan:
    """Layer norm: a row by itself. Gradients of its weights are sums over all rows."""
    width = math.prod(operator.arguments["normalized_shape"])
    shape = shape_of(operator, result)
    of_rows = operator.inputs[0].shape
    rows = math.prod(of_rows) // width
    if rows == 1 or width == 1 or shape == tuple(operator.arguments["normalized_shape"]):
        return whole(operator, result, element)
    row, place = divmod(element, width) if math.prod(shape) == rows * width else (element, 0)
    places: list[torch.Tensor | None] = []
    normal = tuple(operator.arguments["normalized_shape"])
    for one in operator.inputs:
        count = math.prod(one.shape)
        if one.shape == normal:
            places.append(torch.arange(width).reshape(normal))
        elif count == rows:
            places.append(torch.tensor([row]).reshape((1,) * len(one.shape)))
        else:
            lead = (1,) * (len(one.shape) - len(normal))
            part = torch.arange(row * width, (row + 1) * width)
            places.append(part.reshape((*lead, *normal)))
    return Plan(places, place)


def _along(operator: Operator, result: int, element: int) -> Plan:
    """An operator along dimensions: what the other dimensions fix."""
    shape = shape_of(operator, result)
    first = operator.inputs[0].shape
    given = operator.arguments.get("dim")
    listed = [given] if isinstance(given, int) else list(given or range(len(first)))
    dims = {one % max(len(first), 1) for one in listed}
    if len(dims) == len(first):
        return whole(operator, result, element)
    index = unraveled(element, shape)
    kept = iter(index)
    same = shape == first
    removed = len(shape) < len(first)
    fixed: list[int | None] = []
    inside = 0
    for dimension, size in enumerate(first):
        if dimension in dims:
            if same:
                inside = inside * size + next(kept)
            elif not removed:
                next(kept)
            fixed.append(None)
        else:
            fixed.append(next(kept))
    places: list[torch.Tensor | None] = []
    for one in operator.inputs:
        if one.shape != first:
            return whole(operator, result, element)
        places.append(at(first, *fixed))
    return Plan(places, inside)


def _by_head(operator: Operator, result: int, element: int) -> Plan:
    """Attention: one head of one image by itself."""
    index = unraveled(element, shape_of(operator, result))
    if "attn_mask" in operator.arguments and operator.arguments["attn_mask"] is not None:
        return whole(operator, result, element)
    if len({one.shape[:2] for one in operator.inputs}) != 1:
        return whole(operator, result, element)
    shape = shape_of(operator, result)
    places: list[torch.Tensor | None] = [
        at(one.shape, index[0], index[1], *([None] * (len(one.shape) - 2)))
        for one in operator.inputs
    ]
    place = 0
    for i, size in zip(index[2:], shape[2:], strict=True):
        place = place * size + i
    return Plan(places, place)


def _by_target(operator: Operator, result: int, element: int) -> Plan:
    """The gradient of a loss by index: of the input only the form is read."""
    gradient, x, target, *rest = (one.shape for one in operator.inputs)
    if len(x) != 2:
        return whole(operator, result, element)
    sample, place = divmod(element, x[1])
    own = at(gradient, sample) if gradient else torch.zeros((), dtype=torch.int64)
    unread = torch.full((1, x[1]), -1)
    return Plan([own, unread, at(target, sample), *([None] * len(rest))], place)


def _by_plane(operator: Operator, result: int, element: int) -> Plan:
    """Pooling: a channel of an image by itself."""
    shape = shape_of(operator, result)
    forms = [one.shape for one in operator.inputs]
    if any(len(one) != 4 or one[:2] != shape[:2] for one in (shape, *forms)):
        return whole(operator, result, element)
    image, channel, row, column = unraveled(element, shape)
    places: list[torch.Tensor | None] = [at(one, image, channel, None, None) for one in forms]
    return Plan(places, row * shape[3] + column)


_POOLS = (
    *("max_pool2d_with_indices", "max_pool2d_with_indices_backward", "avg_pool2d"),
    *("avg_pool2d_backward", "_adaptive_avg_pool2d", "_adaptive_avg_pool2d_backward"),
)
_MOVES = (
    *("t", "transpose", "permute", "expand", "slice", "select", "unbind", "split", "chunk"),
    *("split_with_sizes", "cat", "stack", "constant_pad_nd", "slice_backward", "flip", "roll"),
    *("select_backward", "repeat", "diagonal", "unfold"),
)
_SAME_ORDER = (
    *("view", "_unsafe_view", "detach", "alias", "unsqueeze", "squeeze", "lift_fresh", "reshape"),
    "_reshape_alias",
)
_ALONG = (
    *("sum", "mean", "amax", "amin", "_softmax", "_log_softmax", "_softmax_backward_data"),
    *("_log_softmax_backward_data", "linalg_vector_norm", "cumsum", "prod"),
)
_RULES: dict[str, Rule] = {
    **dict.fromkeys(("mm", "addmm", "bmm", "baddbmm"), _product),
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    **dict.fromkeys(("native_batch_norm", "native_batch_norm_backward"), _by_channel),
    **dict.fromkeys(("native_layer_norm", "native_layer_norm_backward"), _by_row),
    **dict.fromkeys(
        (
            "_scaled_dot_product_flash_attention_for_cpu",
            "_scaled_dot_product_flash_attention_for_cpu_backward",
        ),
        _by_head,
    ),
    "nll_loss_backward": _by_target,
    **dict.fromkeys(_POOLS, _by_plane),
    **dict.fromkeys(_MOVES, _moved),
    **dict.fromkeys(_SAME_ORDER, _identity),
    **dict.fromkeys(_ALONG, _along),
    **dict.fromkeys(("copy_", "fill_", "zero_"), _overwritten),
    **dict.fromkeys(("zeros_like", "ones_like", "full_like", "_to_copy", "fill"), _elementwise),
}


def _by_tag(operator: Operator) -> Rule:
    name = packet_of(operator.name)
    if operator.generator is not None:
        return _drawn if name.endswith("_") else whole
    if name.startswith("_fused_") and name.endswith("_"):
        return _fused
    if name.startswith("_foreach_"):
        return _foreach
    if torch.Tag.pointwise in function_of(operator).tags:
        return _elementwise
    return whole
