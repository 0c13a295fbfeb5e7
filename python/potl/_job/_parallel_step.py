# SPDX-License-Identifier: Apache-2.0
"""A step whose micro-batches several processes compute, with the bits that one process would have.

Micro-batch i is computed by rank i modulo the number of processes, with its own randomness. The
gradients are added in the order of the micro-batches, as backward passes after each other add them,
and every process makes the same update.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch

from .. import _core
from .._arithmetic import _arithmetic
from .._base._errors import UnsupportedError, UsageError
from .._task import _random
from .._task._collated import split_batch
from .._task._task import Task, overrides_step
from .._task._trees import first_difference
from ._ranks import Ranks
from ._running_statistics import RunningStatistics
from ._steps import parameters_of

# In stock arithmetic processes with other threads round otherwise, and so do some operators of a
# device each time: in full precision, and in half.
_ROUNDED, _ROUNDED_HALF = 1e-4, 1e-2

# A loss and its gradients.
_Computed: TypeAlias = "tuple[torch.Tensor, Sequence[torch.Tensor | None]]"

_LOSSES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


class ParallelStep:
    """What is called instead of `Task.step`, in all processes of a group.

    Args:
        task: With the default step.
        ranks: The processes.
        capture: Copies the state of the task.
        restore: Makes the task hold such a state.
        is_exact: Whether one process computes the same bits each time.

    Raises:
        UnsupportedError: The task has a step of its own.
        UsageError: There are more processes than micro-batches.
    """

    def __init__(
        self,
        task: Task,
        ranks: Ranks,
        *,
        capture: Callable[[], _core.State],
        restore: Callable[[_core.State], None],
        is_exact: bool,
    ) -> None:
        if overrides_step(task):
            raise UnsupportedError(
                "several processes cannot share a step of the task's own",
                "leave Task.step, update and advance_schedulers as they are, or train in one "
                "process",
            )
        if ranks.size > task.accumulate:
            raise UsageError(
                f"{ranks.size} processes share {task.accumulate} "
                f"micro-batch{'' if task.accumulate == 1 else 'es'} of a step",
                "agree on accumulate= of at least as many as there are processes, or start fewer",
            )
        self._task = task
        self._ranks = ranks
        self._parameters = parameters_of(task)
        self._sums = [_OrderedSum(alike, ranks) for alike in _alike(self._parameters)]
        self._statistics = RunningStatistics(task.model)
        self._capture = capture
        self._restore = restore
        is_wide = all(one.dtype.itemsize >= 4 for one in self._parameters)
        rounded = _ROUNDED if is_wide and task.autocast is None else _ROUNDED_HALF
        self._same = SameStep(0.0 if is_exact else rounded)
        self._count = 0

    def __call__(self, batch: object) -> torch.Tensor:
        """One optimizer update on one collated batch: `Task.step`."""
        task, ranks = self._task, self._ranks
        for optimizer in task.optimizers:
            optimizer.zero_grad(set_to_none=True)
        if task.scaler is not None:
            # It begins with its first loss, and not every process has one in a short batch.
            task.scaler.scale(torch.zeros((), device=task.device))
        parameters, sums = self._parameters, self._sums
        parts = split_batch(batch, task.accumulate, task.batch_size)
        # What a step may begin to do later is looked for again after twice as many, so that half a
        # training is lost at most.
        self._count += 1
        before = self._capture() if _is_power_of_two(self._count) else None
        alone = None
        if is_compared(self._count, ranks.size):
            alone = self._alone(parts, self._capture() if before is None else before)
        total: torch.Tensor | None = None
        for first in range(0, len(parts), ranks.size):
            mine = first + ranks.rank
            loss, drawn = None, _random.draws()
            with self._statistics.learned() as moves:
                if mine < len(parts):
                    task._before_micro_batch(mine)
                    loss = task._backward_of(*parts[mine])
            if alone is not None:
                with _arithmetic.outside(), torch.no_grad():
                    self._same.see([one.grad for one in parameters])
            if before is not None:
                self._require_unchanged(before)
                before = None
            told = ranks.rows(_row(loss, _random.draws() - drawn, len(moves), parameters))
            _random.count(sum(int(row[2]) for row in told) - int(told[ranks.rank][2]))
            for found in ranks.lists(moves, [int(row[3]) for row in told]):
                self._statistics.move(found)
            for value, kind, *_ in told[: len(parts) - first]:
                one = torch.tensor(value, dtype=_LOSSES[int(kind)], device=task.device)
                total = one if total is None else total + one
            has = dict(zip(parameters, zip(*(row[4:] for row in told), strict=True), strict=True))
            with torch.no_grad():
                for each in sums:
                    each.add(has)
        assert total is not None
        with torch.no_grad():
            for each in sums:
                each.put_back()
        if alone is not None:
            self._require_same(total, *alone)
        drawn = _random.draws()
        task.update(total)
        if _random.draws() != drawn:
            raise UnsupportedError(
                "the update draws random numbers, of which each process would draw others",
                "use an optimizer that draws none, or train in one process",
            )
        return total

    def _alone(
        self, parts: Sequence[tuple[object, float]], before: _core.State
    ) -> tuple[torch.Tensor, list[torch.Tensor | None]]:
        """Loss and gradients of the micro-batches as one process has them. Nothing else is left."""
        task, drawn = self._task, _random.draws()
        total: torch.Tensor | None = None
        for index, part in enumerate(parts):
            task._before_micro_batch(index)
            loss = task._backward_of(*part)
            total = loss if total is None else total + loss
        assert total is not None
        _random.count(drawn - _random.draws())
        gradients = [one.grad for one in self._parameters]
        if any(one is not None and one.layout is not torch.strided for one in gradients):
            raise UnsupportedError(
                "several processes cannot add up sparse gradients",
                "make embeddings without sparse=True, or train in one process",
            )
        for optimizer in task.optimizers:
            optimizer.zero_grad(set_to_none=True)
        with _arithmetic.outside():
            self._restore(before)
        return total, gradients

    def _require_same(
        self, total: torch.Tensor, loss: torch.Tensor, gradients: Sequence[torch.Tensor | None]
    ) -> None:
        """A client verifies in one process. Where one finds another step, none may go on."""
        found = [one.grad for one in self._parameters]
        with _arithmetic.outside(), torch.no_grad():
            mine = " and ".join(self._same.other((total, found), (loss, gradients)))
        other = next(filter(None, self._ranks.texts(mine)), "")
        if other:
            raise UnsupportedError(
                f"{other} of the step are not those that one process computes",
                "a forward pass cannot read running statistics, a hook cannot change gradients "
                "that are added up (register_post_accumulate_grad_hook), and reentrant checkpoints "
                "cannot share parameters (use_reentrant=False): change that, or train in one "
                "process",
            )

    def _require_unchanged(self, before: _core.State) -> None:
        """Each process would change its own copy, and each in another way."""
        place = first_difference(before.tree(), self._capture().tree())
        if place is not None:
            raise UnsupportedError(
                f"{place} changes in the forward pass, and each process sees only its own "
                "micro-batches",
                "keep no numbers of batches in the model but those of torch's batch norms, in "
                "float32 and with a momentum, or train in one process",
            )


class _OrderedSum:
    """The sum of the gradients of some parameters over all micro-batches, in their order.

    Every process adds up a share of the elements, so that it sends and gets twice what the
    gradients take, however many processes there are.

    Args:
        parameters: Of one type and device.
        ranks: The processes.
    """

    def __init__(self, parameters: Sequence[torch.nn.Parameter], ranks: Ranks) -> None:
        self._ranks = ranks
        self._parameters = parameters
        ends = list(itertools.accumulate(one.numel() for one in parameters))
        self._bounds = list(itertools.pairwise([0, *ends]))
        self._share = -(-ends[-1] // ranks.size)
        self._sum = parameters[0].new_empty(self._share, requires_grad=False)
        # What this process sends, and in the end the gradients; and what it gets.
        self._flat = self._sum.new_empty(self._share * ranks.size)
        self._received = torch.empty_like(self._flat)
        self._added = [False] * len(parameters)

    def add(self, has: dict[torch.nn.Parameter, tuple[float, ...]]) -> None:
        """Adds one micro-batch of each process, by rank, and takes the gradients away.

        Args:
            has: For each parameter the ranks that have a gradient: 1, or 0.
        """
        for one, (start, end) in zip(self._parameters, self._bounds, strict=True):
            if one.grad is not None:
                self._flat[start:end] = one.grad.reshape(-1)
                one.grad = None
        self._ranks.exchange(self._flat, self._received)
        received = self._received.view(self._ranks.size, -1)
        mine = self._ranks.rank * self._share
        which = [
            (has[one], added) for one, added in zip(self._parameters, self._added, strict=True)
        ]
        begin = 0
        for (ranks, added), alike in itertools.groupby(which):
            count = len(list(alike))
            start = max(self._bounds[begin][0] - mine, 0)
            end = min(self._bounds[begin + count - 1][1] - mine, self._share)
            if start < end:
                self._add(
                    slice(start, end),
                    [received[r] for r, is_in in enumerate(ranks) if is_in],
                    added,
                )
            self._added[begin : begin + count] = [added or any(ranks)] * count
            begin += count

    def _add(self, where: slice, terms: Sequence[torch.Tensor], added: bool) -> None:
        # What a backward pass finds empty it fills, and adds to nothing: -0 stays -0.
        for term in terms:
            if added:
                self._sum[where].add_(term[where])
            else:
                self._sum[where] = term[where]
            added = True

    def put_back(self) -> None:
        """Makes the sums the gradients of the parameters, and begins anew."""
        self._ranks.gather(self._sum, self._flat)
        for one, (start, end), added in zip(
            self._parameters, self._bounds, self._added, strict=True
        ):
            if added:
                gradient = self._flat[start:end].view(one.shape)
                # In the layout that a backward pass chooses.
                one.grad = (
                    gradient if one.is_contiguous() else torch.empty_like(one).copy_(gradient)
                )
        self._added = [False] * len(self._parameters)


class SameStep:
    """Whether steps are the same that were computed twice.

    Losses and gradients come near zero in the end, and their rounding does not. Where a training
    goes on there, those of micro-batches tell how large it is: they do not vanish with their sum.

    Args:
        rounded: What of 1 + a loss, and of the largest norm of gradients so far, may be rounding.
    """

    def __init__(self, rounded: float) -> None:
        self._rounded = rounded
        self._largest = 0.0

    def see(self, gradients: Sequence[torch.Tensor | None]) -> None:
        """Takes note of how large gradients are."""
        _, size = _difference(gradients, gradients)
        self._largest = max(self._largest, size)  # which a NaN leaves as it was

    def other(self, this: _Computed, that: _Computed) -> list[str]:
        """What differs. Nothing where something overflows: a later step is compared."""
        off, size = _difference([this[0]], [that[0]])
        out = ["the loss"] if off > self._rounded * (1 + size) else []
        self.see(that[1])
        off, _ = _difference(this[1], that[1])
        return [*out, "the gradients"] if off > self._rounded * self._largest else out


def _difference(
    these: Sequence[torch.Tensor | None], those: Sequence[torch.Tensor | None]
) -> tuple[float, float]:
    """The norm of the differences of all tensors, and of all those; NaN where some overflow."""
    off = size = 0.0
    for a, b in zip(these, those, strict=True):
        if a is None or b is None:
            if a is not b:
                return math.inf, 0.0
            continue
        # Of complex numbers, which may be marked as conjugate, as real ones.
        a, b = (
            (torch.view_as_real(x.resolve_conj()) if x.is_complex() else x).double() for x in (a, b)
        )
        off += float((a - b).square().sum())
        size += float(b.square().sum())
    finite = math.isfinite(off) and math.isfinite(size)
    return (math.sqrt(off), math.sqrt(size)) if finite else (math.nan, math.nan)


def is_compared(step: int, processes: int) -> bool:
    """Whether each process computes a step alone, too, which takes it as long as so many steps as
    there are processes: seldom enough for a few percent of a training.
    """
    first = 64 * processes
    return step == 1 or (step % first == 0 and _is_power_of_two(step // first))


def _is_power_of_two(count: int) -> bool:
    return count & (count - 1) == 0


def _alike(parameters: Sequence[torch.nn.Parameter]) -> list[list[torch.nn.Parameter]]:
    found: dict[tuple[torch.dtype, torch.device], list[torch.nn.Parameter]] = {}
    for one in parameters:
        found.setdefault((one.dtype, one.device), []).append(one)
    return list(found.values())


def _row(
    loss: torch.Tensor | None, drawn: int, moves: int, parameters: Sequence[torch.nn.Parameter]
) -> list[float]:
    """What a process tells of its micro-batch: the loss and its type, how often it drew, how long
    its list of running statistics is, and which gradients there are.
    """
    told = [0.0, 0.0] if loss is None else [float(loss), float(_LOSSES.index(loss.dtype))]
    return [
        *told,
        float(drawn),
        float(moves),
        *(0.0 if one.grad is None else 1.0 for one in parameters),
    ]
