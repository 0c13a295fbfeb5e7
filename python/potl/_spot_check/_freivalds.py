# SPDX-License-Identifier: Apache-2.0
"""Is C = A B? Asked with secret vectors, for the price of a few of them."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal  # Any: a caller's tensors and arrays

import numpy as np

from .. import _core
from .._base._errors import UsageError
from .._core import FreivaldsResult, SegmentResult

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Unit roundoff of the types whose products are computed in float32 and stored in fewer bits.
_STORED = {"torch.bfloat16": 2.0**-8, "torch.float16": 2.0**-11, "float16": 2.0**-11}


def _array(value: Any) -> NDArray[Any]:
    """What lies in a tensor or an array, without a copy where the type is one that is compared."""
    if hasattr(value, "detach"):
        value = value.detach()
        if value.device.type != "cpu":
            value = value.cpu()
        if str(value.dtype) in _STORED:
            value = value.float()
        value = value.numpy()
    array = np.asarray(value)
    return array.astype(np.float32) if array.dtype == np.float16 else array


def _stored(claimed: Any, *operands: Any) -> float:
    """What rounding is allowed for the type of the result, which nobody chooses but the caller: a
    narrow result of wider operands would widen its own tolerance."""
    name, *others = (str(getattr(one, "dtype", "")) for one in (claimed, *operands))
    if name in _STORED and any(other != name for other in others):
        raise UsageError(
            f"the result is {name}, its operands are not", "convert the operands, or compute again"
        )
    return _STORED.get(name, 0.0)


def _pool(threads: int) -> _core.ThreadPool | None:
    return None if threads == 1 else _core.ThreadPool(threads)


def freivalds(
    a: Any,
    b: Any,
    c: Any,
    *,
    probes: int = 4,
    false_alarm: float = 1e-9,
    key: bytes | None = None,
    threads: int = 1,
) -> FreivaldsResult:
    """Is `c` the matrix product of `a` and `b`?

    The three are compared after multiplication with secret random vectors, which takes one pass
    over each instead of a product. What is computed in float32 and stored in bfloat16 or float16 is
    compared with the rounding of that type. Whole numbers are checked exactly.

    Args:
        a: [rows, depth] or [batch, rows, depth]; a tensor on any device, or an array. float32,
            float64, bfloat16, float16, or int32.
        b: [depth, columns], or a batch of them, of the same type.
        c: [rows, columns], or a batch of them, of the same type (int64 for int32 operands). It was
            fixed before this call, which draws the vectors.
        probes: Vectors, 1 to 64. An error of ten tolerances in one element is missed by one with
            probability .08, by four with .00004.
        false_alarm: Probability that an honest product is found inconsistent.
        key: 32 secret bytes that the vectors are drawn from, to repeat a check. Fresh by default.
        threads: How many threads compute.

    Returns:
        What was found. `holds` is True for what is consistent, `rejected` for what no order of
        additions gives. Between the two a product is unusual: compute it again.

    Raises:
        UsageError: The shapes or types do not fit, or an option is out of range.

    Example:
        >>> import numpy as np
        >>> a, b = np.ones((20, 30), np.float32), np.ones((30, 10), np.float32)
        >>> potl.freivalds(a, b, a @ b).outcome
        'consistent'
        >>> potl.freivalds(a, b, a @ b + np.eye(20, 10, dtype=np.float32)).outcome
        'inconsistent'
    """
    left, right, result = _array(a), _array(b), _array(c)
    if left.dtype == np.int32:
        return _core.freivalds_exact(left, right, result, probes, key)
    return _core.freivalds(
        left, right, result, probes, false_alarm, _stored(c, a, b), key, _pool(threads)
    )


def _sizes(value: int | Sequence[int], dimensions: int, fill: int) -> tuple[int, int, int]:
    """Depth, height and width from what torch takes for 1 to 3 dimensions."""
    given = [value] * dimensions if isinstance(value, int) else [operator.index(v) for v in value]
    if len(given) != dimensions:
        raise UsageError(
            f"{tuple(given)} does not describe {dimensions} dimensions",
            "pass one number, or one for each dimension",
        )
    depth, height, width = [fill] * (3 - dimensions) + given
    return depth, height, width


def convolution_sizes(
    x: Sequence[int],
    w: Sequence[int],
    stride: int | Sequence[int],
    padding: int | Sequence[int],
    dilation: int | Sequence[int],
) -> list[tuple[int, int, int]]:
    """A geometry in three dimensions, as the core takes it."""
    dimensions = len(x)
    return [
        _sizes(x, dimensions, 1),
        _sizes(w, dimensions, 1),
        _sizes(stride, dimensions, 1),
        _sizes(padding, dimensions, 0),
        _sizes(dilation, dimensions, 1),
    ]


def freivalds_convolution(
    first: Any,
    second: Any,
    claimed: Any,
    *,
    gradient: Literal["", "input", "weight"] = "",
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    probes: int = 4,
    false_alarm: float = 1e-9,
    key: bytes | None = None,
    threads: int = 1,
) -> FreivaldsResult:
    """Is `claimed` the result of a convolution, or one of its gradients?

    Args:
        first: The input [batch, in_channels, ...]; for the gradient of the input the output's
            gradient.
        second: The weights [out_channels, in_channels / groups, ...]; for the gradient of the
            weights the output's gradient.
        claimed: What is checked: the output without its bias, or the gradient.
        gradient: Which of the three: "", "input" or "weight".
        stride: As in torch.nn.functional.conv1d, conv2d and conv3d, like the next three.
        padding: Zeros on both sides.
        dilation: Distance of the kernel's elements.
        groups: Groups of channels.
        probes: As in `freivalds`, like what follows.
        false_alarm: Probability that an honest result is found inconsistent.
        key: 32 secret bytes that the vectors are drawn from.
        threads: How many threads compute.

    Raises:
        UsageError: The tensors do not fit the geometry.

    Example:
        >>> import torch
        >>> x, w = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3)
        >>> y = torch.nn.functional.conv2d(x, w, padding=1)
        >>> potl.freivalds_convolution(x, w, y, padding=1).holds
        True
    """
    tensors = {
        "": {"x": first, "w": second, "y": claimed},
        "input": {"y": first, "w": second, "x": claimed},
        "weight": {"x": first, "y": second, "w": claimed},
    }.get(gradient)
    if tensors is None:
        raise UsageError(f'there is no gradient "{gradient}"', 'pass "", "input" or "weight"')
    shapes = {name: np.shape(tensor) for name, tensor in tensors.items()}
    dimensions = len(shapes["x"]) - 2
    if dimensions not in (1, 2, 3) or any(
        len(shape) != dimensions + 2 for shape in shapes.values()
    ):
        raise UsageError(
            "the tensors of a convolution have different dimensions, or not 3 to 5",
            "pass batch x channels x 1 to 3 sizes, and the weights like them",
        )
    sizes = convolution_sizes(shapes["x"][2:], shapes["w"][2:], stride, padding, dilation)
    left, right, result = (np.ascontiguousarray(_array(one)) for one in tensors.values())
    return _core.freivalds_convolution(
        gradient,
        left,
        right,
        result,
        shapes["x"][0],
        shapes["x"][1],
        shapes["w"][0],
        groups,
        sizes,
        probes,
        false_alarm,
        _stored(claimed, first, second),
        key,
        _pool(threads),
    )


@dataclass(frozen=True, kw_only=True)
class LayerState:
    """The weights of a linear layer, and what the optimizer holds for them, at one step.

    Attributes:
        weights: [outputs, inputs], float32.
        first: SGD's momentum buffer, or Adam's first moment; None before the first step.
        second: Adam's second moment; None before the first step.
    """

    weights: Any
    first: Any = None
    second: Any = None

    def _arrays(self) -> list[NDArray[Any] | None]:
        tensors = (self.weights, self.first, self.second)
        return [None if one is None else _array(one) for one in tensors]


@dataclass(frozen=True, kw_only=True)
class LayerStep:
    """What gave the gradient of a linear layer's weights in one step.

    Attributes:
        inputs: [batch, inputs], float32; more dimensions before the last are one batch.
        output_gradients: [batch, outputs]: the gradient of the loss by the layer's output.
        rate: Learning rate of the step.
        scale: What clipping multiplied the gradient by. Compute it; do not take the trainer's.
    """

    inputs: Any
    output_gradients: Any
    rate: float
    scale: float = 1.0

    def _operands(self) -> tuple[NDArray[Any], NDArray[Any], float, float]:
        flat = [
            array.reshape(-1, array.shape[-1])
            for array in (_array(self.inputs), _array(self.output_gradients))
        ]
        return flat[0], flat[1], float(self.rate), float(self.scale)


class _Operands(Sequence[tuple[Any, Any, float, float]]):
    """The steps as the core asks for them: one at a time."""

    def __init__(self, steps: Sequence[LayerStep]) -> None:
        self._steps = steps

    def __len__(self) -> int:
        return len(self._steps)

    def __getitem__(self, index: Any) -> Any:
        return self._steps[index]._operands()


def freivalds_segment(
    start: LayerState,
    end: LayerState,
    steps: Sequence[LayerStep],
    *,
    momentum: float = 0.0,
    dampening: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
    betas: tuple[float, float] | None = None,
    eps: float = 1e-8,
    steps_before: int = 0,
    sampled: int = 8,
    probes: int = 4,
    false_alarm: float = 1e-9,
    key: bytes | None = None,
    threads: int = 1,
) -> SegmentResult:
    """Do these steps lead a linear layer from one state to the other?

    SGD is linear in its gradients, so the whole segment is compared at once, without computing a
    gradient. It says nothing of where inputs and gradients come from: whoever invents them passes.
    Forward and backward passes of single steps, from the agreed data on, are another check.

    Args:
        start: The layer before the first step.
        end: The layer after the last.
        steps: In order, as many as were agreed: their number is not compared with anything. A
            sequence of your own may load each step when it is asked for.
        momentum: As in torch.optim.SGD, like the next three.
        dampening: Of the momentum.
        nesterov: Nesterov's form of momentum.
        weight_decay: For Adam it is decoupled, as in torch.optim.AdamW.
        betas: Adam's: it made the steps. The first moment is compared as a whole, the second
            moment and the weights in `sampled` columns.
        eps: Adam's; above 0.
        steps_before: Steps that the optimizer made before this segment.
        sampled: Columns that are computed again for Adam. Errors elsewhere are not seen.
        probes: As in `freivalds`, like what follows.
        false_alarm: Probability that an honest segment is found inconsistent.
        key: 32 secret bytes that the vectors are drawn from.
        threads: How many threads compute.

    Raises:
        UsageError: Shapes do not fit, or an option is out of range.

    Example:
        >>> import torch
        >>> x, dy, w = torch.randn(8, 5), torch.randn(8, 3), torch.randn(3, 5)
        >>> step = potl.LayerStep(inputs=x, output_gradients=dy, rate=0.1)
        >>> after = potl.LayerState(weights=w - 0.1 * dy.T @ x)
        >>> potl.freivalds_segment(potl.LayerState(weights=w), after, [step]).holds
        True
    """
    beta1, beta2 = betas or (0.9, 0.999)
    return _core.freivalds_segment(
        start._arrays(),
        end._arrays(),
        _Operands(steps),
        "adam" if betas else "sgd",
        weight_decay,
        momentum,
        dampening,
        nesterov,
        beta1,
        beta2,
        eps,
        steps_before,
        sampled,
        probes,
        false_alarm,
        key,
        _pool(threads),
    )
