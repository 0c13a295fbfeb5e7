# SPDX-License-Identifier: Apache-2.0
"""One task under one job's randomness: capture, restore and run steps, the same way for training
and for replay.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from .. import _core
from .._arithmetic import _arithmetic, _rounded_steps
from .._base import _repeated
from .._base._errors import UnsupportedError, UsageError
from .._task import _random
from .._task._schedule import Schedule, rates_of
from .._task._task import Task
from .._task._values import Tree
from ._batches import Batches
from ._build import Build, build_task
from ._course import Course
from ._losses import Losses
from ._randomness import StepRandomness, user_code
from ._step_arithmetic import StepArithmetic
from ._steps import StepResult as StepResult, Steps
from ._still_elements import StillElements
from ._training_state import TrainingState

if TYPE_CHECKING:
    import torch
    from typing_extensions import Self

    from ._ranks import Ranks


class Agreed(Protocol):
    """What a session takes of a `potl.Job`."""

    @property
    def core(self) -> _core.Job:
        """The parsed document."""

    @property
    def initial(self) -> _core.State | None:
        """The agreed state at step 0, where the job brings one."""

    def schedule(self, task: Task) -> Schedule:
        """The sizes, order and rates of a training of the task."""


class Session:
    """A task that was built under a job's seed.

    All of a session's work happens under potl's randomness; the user's generators are as before
    when a method returns. Loops hold `active()` so that they are saved and restored once.

    Attributes:
        task: What `build` returned.
        build: What made the task.
        build_seconds: How long that took; for the first task of a process most of it is torch's.

    Example:
        >>> with Session.open(build, seed=7) as session:  # doctest: +SKIP
        ...     for step, ids, batch in session.batches(1, 10):
        ...         print(session.run_step(step, batch).loss)
    """

    def __init__(
        self,
        task: Task,
        schedule: Schedule,
        build: Build,
        arithmetic: str = _arithmetic.STOCK,
    ) -> None:
        self.task = task
        self.build = build
        self.build_seconds = 0.0
        self._schedule = schedule
        self._batches = batches = Batches(task, schedule)
        self._arithmetic = computed = StepArithmetic(arithmetic)
        self._state = state = TrainingState(task, schedule)
        self._randomness = randomness = StepRandomness(task, schedule.seed)
        self._steps = Steps(
            task,
            batches=batches,
            course=Course(task, schedule, state),
            randomness=randomness,
            arithmetic=computed,
        )
        self._watches: list[StillElements] = []
        self._losses = Losses(
            task, batches=batches, state=state, randomness=randomness, arithmetic=computed
        )

    @classmethod
    def open(
        cls,
        build: Build,
        *,
        seed: int,
        job: Agreed | None = None,
        arithmetic: str | None = None,
    ) -> Session:
        """Builds the task with every random number generator seeded from the job.

        Args:
            build: Returns the `Task`; called once.
            seed: The job's seed.
            job: What was agreed. Without it the schedule is the task's own, and learning rates are
                not pinned.
            arithmetic: What steps compute in; None for the job's, or torch's own without a job.

        Raises:
            UnsupportedError: This installation has no reproducible operators, and the arithmetic
                asks for them.
            UsageError: `build` does not return a usable task, or the job has another seed. Whether
                the task is the job's is another question, which `Job.differences` answers.
        """
        if job is not None and job.core.seed != seed:
            raise UsageError(f"seed={seed}, but the job's seed is {job.core.seed}", "pass job.seed")
        if arithmetic is None:
            arithmetic = _arithmetic.STOCK if job is None else job.core.arithmetic
        _arithmetic.require(arithmetic)
        with _random.scope(), _repeated.once():
            began = time.perf_counter()
            task = build_task(build, seed)
            seconds = time.perf_counter() - began
            own = Schedule.of_task(task, seed=seed)
            session = cls(task, own if job is None else job.schedule(task), build, arithmetic)
            session.build_seconds = seconds
            if job is not None and job.initial is not None:
                session.restore(job.initial)
            return session

    # ------------------------------------------------------------------ state

    def capture(self, *, keep: bool = False, whole: bool = True) -> _core.State:
        """A copy of the whole training state.

        Args:
            keep: For recording: what is not trained is copied and hashed once.
            whole: Whether all of that is compared with its copy, and not only a part.

        Raises:
            NotReplayable: Something cannot be part of a state; its path is named.
        """
        return self._state.capture(keep=keep, whole=whole)

    def _digest_there(self) -> bytes | None:
        """The digest that `capture` would have, hashed by the device that holds the state.

        Nothing is copied from the device. None where the CPU has the state, or a megabyte of it,
        or the device has no kernels of potl's.

        Raises:
            NotReplayable: Something cannot be part of a state; its path is named.
        """
        return self._state.digest_there()

    def tree(self, *, keep: bool = False) -> Tree:
        """The training state, described but not copied."""
        return self._state.tree(keep=keep)

    def restore(self, state: _core.State) -> None:
        """Makes the task hold `state`, bit for bit.

        Raises:
            MismatchError: The state is not one of this task: the first differing path is named.
        """
        self._state.restore(state)

    def _require_restorable(self, state: _core.State) -> None:
        """Refuses a state in which another setting of the recipe is than in the task as built.

        Raises:
            NotReplayable: A hook changed it, or a patched method: nobody could go on from there.
        """
        self._state.require_restorable(state)

    @property
    def schedule(self) -> Schedule:
        """Sizes, order and rates of the training."""
        return self._schedule

    @property
    def step(self) -> int:
        """Updates done so far, as counted by the state."""
        return self._state.step

    @property
    def is_reproducible(self) -> bool:
        """Whether steps compute in an arithmetic that has the same bits on every machine."""
        return self._arithmetic.is_reproducible

    @property
    def _rounds_by_log(self) -> bool:
        """Whether what a step computes depends on a rounding log."""
        return self._arithmetic.name == _rounded_steps.LOG64

    # ------------------------------------------------------------------ batches

    @property
    def _has_plain_batches(self) -> bool:
        """Whether making a batch is nothing but indexing tensors."""
        return self._batches.are_plain

    def sample_ids(self, step: int) -> list[int]:
        """The agreed samples of a step, in batch order."""
        return self._schedule.sample_ids(step)

    def batch(self, step: int, ids: Sequence[int]) -> Any:
        """The collated batch of a step, with these samples."""
        return self._batches.of(step, ids)

    def batches(self, first: int, last: int) -> Iterator[tuple[int, list[int], Any]]:
        """The agreed batches of steps `first` to `last`: step, sample ids, collated batch."""
        return self._batches.between(first, last)

    # ------------------------------------------------------------------ steps

    def run_step(
        self,
        step: int,
        batch: Any,
        *,
        rounding: _rounded_steps.Rounding | None = None,
        logged: float | None = None,
        keeps_gradients: bool = False,
    ) -> StepResult:
        """Runs one step with the step's own randomness and the agreed learning rates.

        Args:
            step: 1-based.
            batch: A collated batch, or a list of sample ids.
            rounding: Makes or follows the step's rounding log (log64).
            logged: The loss that schedulers are told, unless the task has a step of its own: it
                may tell them something else.
            keeps_gradients: Begins with the gradients that the parameters have, instead of none.
        """
        return self._steps.run(step, batch, rounding, logged, keeps_gradients=keeps_gradients)

    def _share_steps(self, ranks: Ranks) -> None:
        """From now on computes steps together with other processes, which do the same.

        Args:
            ranks: The processes, of which this is one.

        Raises:
            UnsupportedError: Processes cannot share a step of this task.
            UsageError: There are more of them than micro-batches.
        """
        if self._rounds_by_log:
            raise UnsupportedError(
                "a rounding log is of one process, and the job is in log64",
                "train in one process, or agree on another arithmetic",
            )
        from ._parallel_step import ParallelStep

        self._steps.compute = ParallelStep(
            self.task,
            ranks,
            capture=self.capture,
            restore=self.restore,
            is_exact=self.is_reproducible,
        )

    def gradients(self, step: int, batch: Any) -> tuple[float, list[torch.Tensor | None]]:
        """Runs a step up to its update, which is not made: forward and backward passes alone.

        Args:
            step: 1-based.
            batch: A collated batch, or a list of sample ids.

        Returns:
            The loss, and for each parameter of the optimizers, in their order, the gradient of it
            before clipping, or None.

        Raises:
            UnsupportedError: The task's own `step` does not end with one `self.update(loss)`.
        """
        return self._steps.gradients(step, batch)

    def _own_step(self, step: int) -> contextlib.AbstractContextManager[None]:
        """A block in which the caller computes a step up to its gradients, with the step's own
        randomness and in the job's arithmetic.

        Args:
            step: 1-based.
        """
        return self._steps.own(step)

    def apply(self, step: int, gradients: Sequence[torch.Tensor | None], loss: float) -> None:
        """Makes the update of a step with these gradients: clips them, steps optimizers and
        schedulers.

        Args:
            step: The one after the state's.
            gradients: As `gradients` gives them. They are changed by the clipping.
            loss: What metric-driven schedulers see.
        """
        self._steps.apply(step, gradients, loss)

    def loss_at(
        self,
        step: int,
        batch: Any,
        *,
        rounding: _rounded_steps.Rounding | None = None,
    ) -> float:
        """The loss that step `step` would report from the state as it is: train mode, the step's
        own randomness.

        Buffers that the forward pass updates move on: restore a state before the next use.

        Args:
            step: 1-based.
            batch: A collated batch, or a list of sample ids.
            rounding: Follows the step's rounding log (log64). The log of several micro-batches has
                backward passes between their losses, so that all but the last are run too.
        """
        return self._losses.of_step(step, batch, rounding)

    def _subset_loss(self, ids: Sequence[int]) -> tuple[float, float]:
        """Mean and standard deviation of the per-sample losses of `ids` at the state as it is, in
        train mode.
        """
        return self._losses.of_samples(ids)

    def rates(self) -> list[float]:
        """The present learning rate of every parameter group of every optimizer."""
        return rates_of(self.task)

    def _perturb(
        self, index: int = 0, *, threads_only: bool = False
    ) -> contextlib.AbstractContextManager[bool]:
        """Runs steps in another arithmetic than the job's stock one, as honest hardware might.

        Operators without a form in it run as stock.

        Args:
            index: Which of several ways.
            threads_only: Changes nothing but the number of threads.

        Yields:
            Whether it is another arithmetic, and not just another number of threads.
        """
        device = self.task.device.type
        return self._arithmetic.perturb(index, device=device, threads_only=threads_only)

    def _roughen(self, seed: int) -> contextlib.AbstractContextManager[bool]:
        """Runs steps whose sums are as far off as another machine's may be.

        Args:
            seed: What the differences are drawn from.

        Yields:
            Whether the job's arithmetic allows it.
        """
        return self._arithmetic.roughen(seed)

    def _watch_still(self) -> StillElements:
        """Watches from now on which elements of parameters have no gradient, until it is closed."""
        self._watches.append(StillElements(self.task))
        return self._watches[-1]

    # ------------------------------------------------------------------ scopes

    def active(self) -> contextlib.AbstractContextManager[None]:
        """Keeps potl's randomness in force for a whole loop."""
        return _random.scope()

    def _user_code(self) -> contextlib.AbstractContextManager[None]:
        """Inside `active()`: a block of the user's code, with the user's generators; train flags
        are restored after.
        """
        return user_code(self.task)

    def close(self) -> None:
        """Lets go of torch's operators. The task stays usable."""
        self._steps.close()
        for watch in self._watches:
            watch.close()
        self._randomness.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
