# SPDX-License-Identifier: Apache-2.0
"""One task under one job's randomness: capture, restore and run steps, the same way for training
and for replay.
"""

from __future__ import annotations

import contextlib
import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch

from .. import _core
from .._arithmetic import _arithmetic, _noise, _rounded_steps
from .._base import _repeated
from .._base._errors import MismatchError, NotReplayable, Problem, UsageError
from .._task import _random
from .._task._capture import TreeBuilder
from .._task._data import Planned, Reader, batches, check_dataset
from .._task._restore import restore_task
from .._task._schedule import Schedule, end_epoch_metric, rates_of, set_rates
from .._task._task import Task, overrides_step, to_device
from .._task._trees import first_difference, fixed_part
from .._task._weights import load_weights

if TYPE_CHECKING:
    from typing_extensions import Self

Build = Callable[[], Task]


class Agreed(Protocol):
    """What a session takes of a `potl.Job`."""

    @property
    def core(self) -> _core.Job:
        """The parsed document."""

    @property
    def initial(self) -> _core.State | None:
        """The agreed state at step 0, where the job brings one."""


@dataclass(frozen=True)
class StepResult:
    """What one step did."""

    loss: float
    """Mean loss of the batch before the update."""
    rates: list[float]
    """Learning rate of every parameter group of every optimizer, as used."""
    random_draws: int
    """Random operators drawn by the step."""
    skipped: bool
    """Whether the scaler skipped the update."""
    non_finite: bool
    """Whether the loss or a gradient was NaN or infinite."""
    gradient_norm: float
    """l2 norm of the gradients that the optimizers used; 0 for a skipped update."""


class Session:
    """A task that was built under a job's seed.

    All of a session's work happens under potl's randomness; the user's generators are as before
    when a method returns. Loops hold `active()` so that they are saved and restored once.

    Example:
        >>> with Session.open(build, seed=7) as session:  # doctest: +SKIP
        ...     for step, ids, batch in session.batches(1, 10):
        ...         print(session.run_step(step, batch).loss)
    """

    def __init__(
        self,
        task: Task,
        schedule: Schedule,
        reader: Reader,
        build: Build,
        arithmetic: str = _arithmetic.STOCK,
    ) -> None:
        self.task = task
        self.build = build
        self._arithmetic = arithmetic
        self._schedule = schedule
        self._reader = reader
        self._builder = TreeBuilder(task)
        self._step = 0
        self._running = 0
        self._epoch_loss = 0.0
        self._noise: _noise.Noise | None = None
        self._squared_norm = 0.0
        self._hooks = [o.register_step_pre_hook(self._before_update) for o in task.optimizers]
        self._fixed: dict[str, Any] | None = None
        if schedule.varying is not None and _fits(schedule.varying, task):
            self._fixed = fixed_part(self.tree(), schedule.varying)
        task._before_micro_batch = self._before_micro_batch
        _random.install()
        self._finalizer = weakref.finalize(self, _random.uninstall)

    @classmethod
    def open(
        cls,
        build: Build,
        *,
        seed: int,
        job: Agreed | _core.Job | None = None,
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
                the task is the job's is another question: `difference` of `_job` answers it.
        """
        core = job if job is None or isinstance(job, _core.Job) else job.core
        if core is not None and core.seed != seed:
            raise UsageError(f"seed={seed}, but the job's seed is {core.seed}", "pass job.seed")
        if arithmetic is None:
            arithmetic = _arithmetic.STOCK if core is None else core.arithmetic
        _arithmetic.require(arithmetic)
        with _random.scope(), _repeated.once():
            task = build_task(build, seed)
            own = Schedule.of_task(task, seed=seed)
            schedule = own if core is None else Schedule.of_job(core, task)
            reader = Reader(
                task.dataset,
                seed=seed,
                transform=task.transform,
                collate_fn=task.collate_fn,
                seeded_reads=schedule.seeded_reads,
            )
            session = cls(task, schedule, reader, build, arithmetic)
            initial = getattr(job, "initial", None)
            if initial is not None:
                session.restore(initial)
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
        tree = self.tree(keep=keep)
        if self._fixed is not None:
            self._require_flags(tree)
        return _core.State.capture(tree, whole=whole)

    def tree(self, *, keep: bool = False) -> dict[str, Any]:
        """The training state, described but not copied."""
        counters: dict[str, int | float] = {
            "step": self._step,
            "epoch": self._step // self._schedule.steps_per_epoch,
        }
        if end_epoch_metric(self.task):
            counters["epoch_loss"] = self._epoch_loss
        return self._builder.tree(counters, keep=keep)

    def restore(self, state: _core.State) -> None:
        """Makes the task hold `state`, bit for bit.

        Raises:
            MismatchError: The state is not one of this task: the first differing path is named.
        """
        tree = state.tree()
        if not isinstance(tree, dict) or not isinstance(tree.get("counters"), dict):
            raise MismatchError("the state is not a training state: it has no counters")
        try:
            self._require_recipe(tree)
            with _repeated.once():
                restore_task(self.task, tree)
        except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
            raise MismatchError(
                f"the state does not have the form of this task's: {error!r}"
            ) from error
        counters = tree["counters"]
        step = counters.get("step")
        if type(step) is not int or not 0 <= step <= self._schedule.steps:
            raise MismatchError(f"counters/step: {step!r} is not a step of the job")
        if counters.get("epoch") != step // self._schedule.steps_per_epoch:
            raise MismatchError(f"counters/epoch: {counters.get('epoch')!r} at step {step}")
        self._step = step
        self._epoch_loss = float(counters.get("epoch_loss", 0.0))

    def _require_recipe(self, tree: dict[str, Any]) -> None:
        if self._fixed is None or self._schedule.varying is None:
            return
        place = first_difference(self._fixed, fixed_part(tree, self._schedule.varying))
        if place is not None:
            raise MismatchError(f"{place}: the state has another value than the agreed task")

    def _require_flags(self, tree: dict[str, Any]) -> None:
        assert self._fixed is not None
        for name in ("training", "requires_grad"):
            if tree["model"][name] != self._fixed["model"][name]:
                place = first_difference(self._fixed["model"][name], tree["model"][name])
                raise NotReplayable(
                    Problem(
                        what=f"the flag {name} changed during training",
                        where=f"model/{name}/{place}",
                        remedy="set flags in build(), or change them in an overridden Task.step, "
                        "which makes them part of what is trained",
                    )
                )

    @property
    def schedule(self) -> Schedule:
        """Sizes, order and rates of the training."""
        return self._schedule

    @property
    def step(self) -> int:
        """Updates done so far, as counted by the state."""
        return self._step

    @property
    def is_reproducible(self) -> bool:
        """Whether steps compute in an arithmetic that has the same bits on every machine."""
        return self._arithmetic != _arithmetic.STOCK

    # ------------------------------------------------------------------ batches

    def sample_ids(self, step: int) -> list[int]:
        """The agreed samples of a step, in batch order."""
        return self._schedule.sample_ids(step)

    def batch(self, step: int, ids: Sequence[int]) -> Any:
        """The collated batch of a step, with these samples."""
        return self._reader(step, self._schedule.epoch_of(step), list(ids))

    def batches(self, first: int, last: int) -> Iterator[tuple[int, list[int], Any]]:
        """The agreed batches of steps `first` to `last`: step, sample ids, collated batch."""

        def plan() -> Iterator[Planned]:
            for step in range(first, last + 1):
                yield step, self._schedule.epoch_of(step), self._schedule.sample_ids(step)

        for (step, _, ids), batch in batches(
            self._reader, plan, num_workers=self.task.num_workers if last > first else 0
        ):
            yield step, ids, batch

    # ------------------------------------------------------------------ steps

    def run_step(
        self, step: int, batch: Any, *, rounding: _rounded_steps.Rounding | None = None
    ) -> StepResult:
        """Runs one step with the step's own randomness and the agreed learning rates.

        Args:
            step: 1-based.
            batch: A collated batch, or a list of sample ids.
            rounding: Makes or follows the step's rounding log (log64).
        """
        with _random.scope(), torch.enable_grad():
            task, schedule = self.task, self._schedule
            batch = self._on_device(step, batch)
            set_rates(task, schedule.rates_at(step))
            rates = rates_of(task)
            scale = 0.0 if task.scaler is None else task.scaler.get_scale()
            self._squared_norm = 0.0
            self._running = step
            if overrides_step(task):
                self._before_micro_batch(0)
            drawn = _random.draws()
            with self._block(), _rounded_steps.around(rounding, step):
                loss = _as_number(task.step(batch))
            drawn = _random.draws() - drawn
            self._step = step
            self._end_step(step, loss)
            skipped = task.scaler is not None and task.scaler.get_scale() < scale
            norm = math.sqrt(self._squared_norm)
            return StepResult(
                loss=loss,
                rates=rates,
                random_draws=drawn,
                skipped=skipped,
                non_finite=skipped or not (math.isfinite(loss) and math.isfinite(norm)),
                gradient_norm=norm,
            )

    def loss_at(
        self,
        step: int,
        batch: Any,
        *,
        keep: bool = True,
        rounding: _rounded_steps.Rounding | None = None,
    ) -> float:
        """The loss that step `step` would report from the state as it is: train mode, the step's
        own randomness.

        Nothing changes: buffers that the forward pass updates are restored.

        Args:
            step: 1-based.
            batch: A collated batch, or a list of sample ids.
            keep: Whether the state must stay as it is; False saves a restore where the caller
                restores anyway before the next use.
            rounding: Follows the step's rounding log (log64). The log of several micro-batches has
                backward passes between their losses, so that all but the last are run too.
        """
        with _random.scope(), torch.enable_grad(), self._unchanged(keep):
            batch = self._on_device(step, batch)
            self._running = step
            whole: torch.Tensor | None = None
            behind = self.task._micro_batch_count(batch) - 1 if rounding is not None else 0
            with self._block(), _rounded_steps.around(rounding, step):
                for number, (part, share) in enumerate(self.task.micro_batches(batch)):
                    loss = self.task.compute_loss(part, "mean")
                    scaled = loss if share == 1.0 else loss * share
                    if number < behind:
                        self.task._backward(scaled)
                    loss = scaled.detach()
                    del scaled
                    whole = loss if whole is None else whole + loss
            if behind > 0:
                for optimizer in self.task.optimizers:
                    optimizer.zero_grad(set_to_none=True)
            return _as_number(whole)

    def subset_loss(self, ids: Sequence[int]) -> tuple[float, float]:
        """Mean and standard deviation of the per-sample losses of `ids` at the state as it is, in
        train mode.
        """
        epoch = min(self._step // self._schedule.steps_per_epoch, self.task.epochs - 1)
        losses: list[torch.Tensor] = []
        with _random.scope(), torch.no_grad(), self._unchanged():
            for number, first in enumerate(range(0, len(ids), self.task.batch_size)):
                part = list(ids[first : first + self.task.batch_size])
                batch = to_device(self._reader(number, epoch, part), self.task.device)
                _random.seed_torch(
                    _core.derive_key(self._schedule.seed, "subset", self._step, number)
                )
                with self._block():
                    each = self.task.compute_loss(batch, "none").detach()
                losses.append(each.reshape(len(part), -1).double().mean(1).cpu())
        values = torch.cat(losses)
        return float(values.mean()), float(values.std(correction=0))

    def rates(self) -> list[float]:
        """The present learning rate of every parameter group of every optimizer."""
        return rates_of(self.task)

    # ------------------------------------------------------------------ noise

    @contextlib.contextmanager
    def perturb(self, index: int = 0, *, threads_only: bool = False) -> Iterator[bool]:
        """Runs steps in another arithmetic than the job's stock one, as honest hardware might.

        Operators without a form in it run as stock.

        Args:
            index: Which of several ways.
            threads_only: Changes nothing but the number of threads.

        Yields:
            Whether it is another arithmetic, and not just another number of threads.
        """
        device = "other" if threads_only or self.is_reproducible else self.task.device.type
        noise = _noise.make(index, device=device)
        before, self._noise = self._noise, noise
        try:
            with noise.around():
                yield noise.arithmetic is not None
        finally:
            self._noise = before

    def _block(self) -> contextlib.AbstractContextManager[None]:
        if self._noise is not None and self._noise.arithmetic is not None:
            return _arithmetic.block(self._noise.arithmetic, lenient=True)
        return _arithmetic.block(self._arithmetic)

    # ------------------------------------------------------------------ scopes

    def active(self) -> contextlib.AbstractContextManager[None]:
        """Keeps potl's randomness in force for a whole loop."""
        return _random.scope()

    @contextlib.contextmanager
    def user_code(self) -> Iterator[None]:
        """Inside `active()`: a block of the user's code, with the user's generators; train flags
        are restored after.
        """
        flags = [(module, module.training) for module in self.task.model.modules()]
        try:
            # The next step seeds itself before it draws.
            with _random.suspended(resume=False):
                yield
        finally:
            for module, flag in flags:
                if module.training is not flag:
                    module.training = flag

    def close(self) -> None:
        """Lets go of torch's operators. The task stays usable."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        self.task._before_micro_batch = _no_seed
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # ------------------------------------------------------------------ inside a step

    def _on_device(self, step: int, batch: Any) -> Any:
        if isinstance(batch, (list, tuple)) and batch and type(batch[0]) is int:
            batch = self.batch(step, batch)
        return to_device(batch, self.task.device)

    def _before_micro_batch(self, index: int) -> None:
        _random.seed_all(_core.derive_key(self._schedule.seed, "step", self._running, index))

    def _before_update(self, optimizer: torch.optim.Optimizer, *arguments: Any) -> None:
        gradients = [
            p.grad
            for group in optimizer.param_groups
            for p in group["params"]
            if p.grad is not None
        ]
        if gradients:
            norm = _norm(gradients)
            self._squared_norm += norm * norm

    def _end_step(self, step: int, loss: float) -> None:
        task, schedule = self.task, self._schedule
        last_of_epoch = step % schedule.steps_per_epoch == 0
        if end_epoch_metric(task):
            self._epoch_loss += loss
        if task.scheduler_interval == "epoch" and task.schedulers and last_of_epoch:
            task.advance_schedulers(self._epoch_loss / schedule.steps_per_epoch)
        if last_of_epoch:
            self._epoch_loss = 0.0
        set_rates(task, schedule.rates_at(min(step + 1, schedule.steps)))

    @contextlib.contextmanager
    def _unchanged(self, keep: bool = True) -> Iterator[None]:
        """Puts back what a forward pass changes: buffers, extra state."""
        before = self.capture() if keep else None
        try:
            yield
        finally:
            if before is not None:
                self.restore(before)


def build_task(build: Build, seed: int) -> Task:
    """Calls `build` under the job's randomness and loads `init`. Inside a scope."""
    _random.seed_all(_core.derive_key(seed, "init"))
    task = build()
    if not isinstance(task, Task):
        raise UsageError(
            f"build returned a {type(task).__name__}",
            "return potl.Task(model=..., optimizer=..., ...)",
        )
    problems = check_dataset(task.dataset)
    if problems:
        raise NotReplayable(problems)
    if task.steps == 0:
        raise UsageError(
            f"an epoch of {len(task.dataset)} samples has no batch of {task.batch_size}",
            "use a smaller batch_size, or drop_last=False",
        )
    if task.init is not None:
        load_weights(task.model, task.init)
    for optimizer in task.optimizers:
        for group in optimizer.param_groups:
            if type(group["lr"]) is int:  # lr=1 is lr=1.0
                group["lr"] = float(group["lr"])
    return task


def _fits(varying: dict[str, list[list[str]]], task: Task) -> bool:
    """Whether the job speaks of as many optimizers and schedulers as the task has."""
    return len(varying["optimizers"]) == len(task.optimizers) and (
        len(varying["schedulers"]) == len(task.schedulers)
    )


def _norm(gradients: list[torch.Tensor]) -> float:
    first = gradients[0]
    if all(
        g.dtype == first.dtype and g.device == first.device and g.layout is torch.strided
        for g in gradients
    ):
        # What get_total_norm does, without sorting the tensors into groups.
        return float(torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients))))
    dense = [g.coalesce().values() if g.is_sparse else g for g in gradients]
    return float(torch.nn.utils.get_total_norm(dense))


def _as_number(loss: Any) -> float:
    if isinstance(loss, float) or (isinstance(loss, torch.Tensor) and loss.numel() == 1):
        return float(loss)
    raise UsageError(
        f"step returned {type(loss).__name__}", "return the mean loss of the batch from Task.step"
    )


def _no_seed(index: int) -> None:
    pass
