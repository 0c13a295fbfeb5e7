# SPDX-License-Identifier: Apache-2.0
"""Whose random numbers are drawn: a step's own, or the user's."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator

import torch

from .. import _core
from .._task import _random
from .._task._task import Task, overrides_step


class StepRandomness:
    """Seeds each micro-batch of a task's steps from the job's seed, the step and its number.

    Args:
        task: Asks before each micro-batch.
        seed: The job's.
    """

    def __init__(self, task: Task, seed: int) -> None:
        self._task = task
        self._seed = seed
        self._step = 0
        task._before_micro_batch = self._before_micro_batch
        _random.install()
        self._finalizer = weakref.finalize(self, _random.uninstall)

    def begin(self, step: int) -> None:
        """Says which step comes next."""
        self._step = step

    def begin_whole(self, step: int) -> None:
        """`begin`, for `Task.step`: where the user's own one asks for no micro-batches, it draws
        from the first one's numbers.
        """
        self.begin(step)
        if overrides_step(self._task):
            self._before_micro_batch(0)

    def seed_subset(self, step: int, number: int) -> None:
        """Seeds a forward pass of samples that are of no step."""
        _random.seed_torch(_core.derive_key(self._seed, "subset", step, number))

    def close(self) -> None:
        """Lets go of torch's operators and the task."""
        self._task._before_micro_batch = _no_seed
        self._finalizer()

    def _before_micro_batch(self, index: int) -> None:
        _random.seed_all(_core.derive_key(self._seed, "step", self._step, index))


@contextlib.contextmanager
def user_code(task: Task) -> Iterator[None]:
    """Inside a scope of `_random`: a block of the user's code, with the user's generators; train
    flags of all that steps may call are restored after.
    """
    roots = (task.model, task.ema, task.loss, *task.state.values())
    flags = [
        (module, module.training)
        for root in roots
        if isinstance(root, torch.nn.Module)
        for module in root.modules()
    ]
    try:
        # The next step seeds itself before it draws.
        with _random.suspended():
            yield
    finally:
        for module, flag in flags:
            if module.training is not flag:
                module.training = flag


def _no_seed(index: int) -> None:
    pass
