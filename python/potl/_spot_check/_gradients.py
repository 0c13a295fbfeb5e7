# SPDX-License-Identifier: Apache-2.0
"""The gradients of a job's steps at weights that somebody gives: what a worker computes for every
step, and the trusted side for those that it checks."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from .. import _core
from .._base._elements import bytes_of_elements
from .._base._errors import UnsupportedError
from .._job._steps import parameters_of
from .._task import _random

if TYPE_CHECKING:
    from .._job._session import Session
    from .._task._task import Task

# Whose running statistics no step reads while it trains.
BatchNorm = nn.modules.batchnorm._BatchNorm

# Honest rounding of a machine times this is the tolerance of a stock job, but at least this share
# of the clip.
MARGIN = 32
LEAST_SHARE = 1e-4


class Gradients:
    """A session that is asked for gradients only. Nothing is kept between two steps.

    Args:
        session: Of the agreed task. One of its steps is tried.

    Attributes:
        tensors: Name and number of elements of each tensor of a gradient, in order: parameters
            that the optimizers have, and that get a gradient.
        weights_bytes: Of all parameters and buffers of the model.
        steps: Of the job.

    Raises:
        UnsupportedError: The gradients depend on more than the weights, or are not float32.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        _require_split(session.task)
        self._weights = weights_of(session.task)
        self.weights_bytes = sum(one.nbytes for one in self._weights)
        self.steps = session.schedule.steps
        names = {id(p): name for name, p in session.task.model.named_parameters()}
        self._moved = self._try_step()
        self.tensors = [
            (names.get(id(p), f"parameter {i}"), p.numel())
            for i, (p, has) in enumerate(zip(self.parameters, self._moved, strict=True))
            if has
        ]
        for (name, _), parameter in zip(self.tensors, self._with_gradient(), strict=True):
            if parameter.dtype != torch.float32:
                raise UnsupportedError(
                    f"{name} is of {parameter.dtype}",
                    "keep parameters in float32; autocast computes in other types",
                )

    @property
    def parameters(self) -> list[nn.Parameter]:
        """What the optimizers move."""
        return parameters_of(self.session.task)

    def gradient(self, step: int, weights: memoryview, way: int, out: memoryview) -> float:
        """Writes the gradient of a step before clipping.

        Args:
            step: 1-based.
            weights: All parameters and buffers, as bytes.
            way: 0 for the usual way to compute; others show what honest hardware might do.
            out: Takes float32.

        Returns:
            The loss.
        """
        load_weights(self._weights, weights)
        session = self.session
        if way == 0 or session.is_reproducible:
            loss, found = session.gradients(step, session.sample_ids(step))
        else:
            with session._perturb(way - 1):
                loss, found = session.gradients(step, session.sample_ids(step))
        self.write(found, step, out)
        return loss

    def write(self, found: Sequence[torch.Tensor | None], step: int, out: memoryview) -> None:
        """Lays out the gradients of the optimizers' parameters.

        Raises:
            UnsupportedError: Others have one than in the step that was tried.
        """
        if [gradient is not None for gradient in found] != self._moved:
            raise UnsupportedError(
                f"step {step} gives other parameters a gradient than step 1",
                "let every step reach the same parameters",
            )
        present = [gradient for gradient in found if gradient is not None]
        for part, gradient in zip(self._parts(out), present, strict=True):
            part.copy_(gradient.reshape(-1))

    def split(self, gradient: memoryview) -> list[torch.Tensor | None]:
        """A gradient as its tensors, None for parameters without one: in the memory where it is, or
        copies where the parameters lie on another device or in another order, as backward passes
        leave theirs.
        """
        parts = iter(self._parts(gradient))
        return [
            _like(parameter, next(parts).view(parameter.shape)) if has else None
            for parameter, has in zip(self.parameters, self._moved, strict=True)
        ]

    def _parts(self, gradient: memoryview) -> Sequence[torch.Tensor]:
        flat = torch.frombuffer(gradient, dtype=torch.float32)
        return torch.split(flat, [elements for _, elements in self.tensors])

    def _with_gradient(self) -> Iterator[nn.Parameter]:
        return (p for p, has in zip(self.parameters, self._moved, strict=True) if has)

    def _try_step(self) -> list[bool]:
        model = self.session.task.model
        before = [one.clone() for one in self._weights]
        _, found = self.session.gradients(1, self.session.sample_ids(1))
        ignored = _statistics(model)
        named = (*model.named_parameters(), *model.named_buffers())
        for (name, owner), one, old in zip(named, self._weights, before, strict=True):
            changed = not torch.equal(one, old)
            one.copy_(old)
            if changed and id(owner) not in ignored:
                raise UnsupportedError(
                    f"a step changes {name}, which no gradient does",
                    "nothing but the optimizer may change a weight, and only running statistics of "
                    "batch normalisation a buffer: the trusted side computes them itself",
                )
        return [gradient is not None for gradient in found]


def _like(parameter: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
    if parameter.device == part.device and parameter.is_contiguous():
        return part
    return torch.empty_like(parameter, requires_grad=False).copy_(part)


def weights_of(task: Task) -> list[torch.Tensor]:
    """All parameters and buffers of the model, each once."""
    return [one.detach() for one in (*task.model.parameters(), *task.model.buffers())]


def load_weights(weights: list[torch.Tensor], given: memoryview) -> None:
    """Copies bytes into tensors."""
    at = 0
    with torch.no_grad(), warnings.catch_warnings():
        # Bytes that only C++ may write: torch would warn of it.
        warnings.filterwarnings("ignore", message="The given buffer is not writable")
        for one in weights:
            part = given[at : at + one.nbytes]
            at += one.nbytes
            if one.numel():
                one.copy_(torch.frombuffer(part, dtype=one.dtype).view(one.shape))


def bytes_of(weights: list[torch.Tensor]) -> list[memoryview]:
    """The bytes of tensors, without a copy where they lie packed on the CPU."""
    return [bytes_of_elements(one).numpy().data for one in weights]


def clipped(gradient: torch.Tensor, clip: float) -> torch.Tensor:
    """A flat gradient as a check compares it, in float64."""
    gradient = gradient.double()
    return gradient * min(1.0, clip / (float(gradient.norm()) + 1e-6))


def spread(
    gradients: Gradients, step: int, weights: memoryview, clip: float
) -> tuple[torch.Tensor, float]:
    """The gradient of a step as a check compares it, and how far from it the other ways to compute
    it end.
    """
    out = bytearray(4 * sum(elements for _, elements in gradients.tensors))

    def computed(way: int) -> torch.Tensor:
        gradients.gradient(step, weights, way, memoryview(out))
        return clipped(torch.frombuffer(out, dtype=torch.float32), clip)

    usual = computed(0)
    ways = range(1, _core.SPOT_CHECK_WAYS + 1)
    return usual, max(float((computed(way) - usual).norm()) for way in ways)


def settle_statistics(session: Session, steps: int) -> None:
    """Computes the running statistics of batch normalisation anew: means over the last `steps`
    agreed batches at the weights as they are.

    No gradient depends on them, so that nothing else about them is known than what a worker says.
    Those that no step changes, as of a norm that is frozen, are what they were.
    """
    model = session.task.model
    norms = [
        one for one in model.modules() if isinstance(one, BatchNorm) and one.track_running_stats
    ]
    last = session.step
    if not norms or last == 0:
        return
    kept = [one.momentum for one in norms]
    given = [[buffer.clone() for buffer in one.buffers(recurse=False)] for one in norms]
    try:
        for one in norms:
            one.reset_running_stats()
            one.momentum = None  # the mean of all batches
        for step in range(max(1, last - steps + 1), last + 1):
            with _random.scope():
                session.gradients(step, session.sample_ids(step))
    finally:
        for one, momentum, buffers in zip(norms, kept, given, strict=True):
            one.momentum = momentum
            if not one.num_batches_tracked:
                for buffer, before in zip(one.buffers(recurse=False), buffers, strict=True):
                    buffer.copy_(before)


def _statistics(model: nn.Module) -> set[int]:
    return {
        id(buffer)
        for module in model.modules()
        if isinstance(module, BatchNorm)
        for buffer in module.buffers(recurse=False)
    }


def _require_split(task: Task) -> None:
    from .._task._task import Task as Own

    if type(task).update is not Own.update or "update" in vars(task):
        raise UnsupportedError(
            "the task has an update of its own, in which the trusted side could not clip",
            "override Task.compute_loss instead",
        )
    if task.scaler is not None:
        raise UnsupportedError(
            "the task scales its gradients", "train in float32 or bfloat16, which need no scaler"
        )
    if task.state:
        raise UnsupportedError(
            f"the task keeps state beside the model: {', '.join(sorted(task.state))}",
            "a worker gets the weights only: keep what a step reads in buffers that do not change",
        )
