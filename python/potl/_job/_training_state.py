# SPDX-License-Identifier: Apache-2.0
"""The whole state of a training: captured, restored, and held against the agreed recipe."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from types import ModuleType

from .. import _core
from .._arithmetic import _library
from .._base import _repeated
from .._base._errors import MismatchError, NotReplayable, Problem, UnsupportedError
from .._task import _random
from .._task._capture import TreeBuilder
from .._task._own_parts import has_own_step
from .._task._restore import restore_task
from .._task._schedule import Schedule, end_epoch_metric
from .._task._task import Task, overrides_step
from .._task._trees import Varying, first_difference, fixed_part, flags_of
from .._task._values import Tree

# Types of devices that hash the tensors of a state where they are.
HASHING = frozenset({"cuda"})

# What else is in a state is hashed while the trainer waits: counters and the like.
_MOST_BESIDE = 1 << 20


class TrainingState:
    """What one task holds, and the counters that a task does not keep itself.

    Args:
        task: As built: what the recipe fixes is read from it.
        schedule: What was agreed.

    Attributes:
        step: Updates done so far.
        epoch_loss: Sum of the losses of the present epoch, where a scheduler needs it.
    """

    def __init__(self, task: Task, schedule: Schedule) -> None:
        self.step = 0
        self.epoch_loss = 0.0
        self._task = task
        self._schedule = schedule
        self._builder = TreeBuilder(task)
        own_step, varying = overrides_step(task), schedule.varying
        if varying is not None and not _fits(varying, task):
            varying = None
        tree = {} if own_step and varying is None else self.tree()
        # Also where there is no job yet: a trial shows what a recording would refuse.
        self._flags = {} if own_step else flags_of(tree)
        self._fixed: Tree | None = None if varying is None else self._fixed_part(tree, varying)

    @property
    def epoch(self) -> int:
        """Epochs done so far."""
        return self.step // self._schedule.steps_per_epoch

    def tree(self, *, keep: bool = False) -> Tree:
        """The state, described but not copied."""
        return self._builder.tree(self._counters(), keep=keep)

    def _counters(self) -> dict[str, int | float]:
        counters: dict[str, int | float] = {"step": self.step, "epoch": self.epoch}
        if end_epoch_metric(self._task):
            counters["epoch_loss"] = self.epoch_loss
        return counters

    def capture(self, *, keep: bool = False, whole: bool = True) -> _core.State:
        """A copy of the state: `Session.capture`."""
        tree = self.tree(keep=keep)
        self._require_flags(tree)
        return _core.State.capture(tree, whole=whole)

    def digest_there(self) -> bytes | None:
        """The digest of the state, hashed by its device: `Session._digest_there`."""
        library = self._hashing_library
        if library is None:
            return None
        tree = self._builder.tree(self._counters(), there=HASHING)
        self._require_flags(tree)
        places = self._builder.places
        beside = sum(size for place, size in places.items() if place.type not in HASHING)
        devices = [str(place) for place in places if place.type in HASHING]
        if beside > _MOST_BESIDE or len(devices) != 1:
            return None
        return _core.State.digest_of(
            tree, functools.partial(library.content_roots_there, devices[0])
        )

    @functools.cached_property
    def _hashing_library(self) -> ModuleType | None:
        """`potl._torch`, if it has kernels that hash what the model's device holds."""
        parameter = next(self._task.model.parameters(), None)
        if parameter is None or parameter.device.type not in HASHING:
            return None
        try:
            library = _library.module()
        except UnsupportedError:
            return None
        return library if library.knows_device(parameter.device.type) else None

    def restore(self, state: _core.State) -> None:
        """Makes the task hold `state`: `Session.restore`."""
        tree = state.tree()
        if not isinstance(tree, dict) or not isinstance(tree.get("counters"), dict):
            raise MismatchError("the state is not a training state: it has no counters")
        try:
            self._require_recipe(tree)
            with _repeated.once(), _random.out_of_inference_mode():
                restore_task(self._task, tree)
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
        self.step = step
        self.epoch_loss = float(counters.get("epoch_loss", 0.0))

    @contextlib.contextmanager
    def unchanged(self) -> Iterator[None]:
        """Puts back what a forward pass changes: buffers, extra state."""
        before = self.capture()
        try:
            yield
        finally:
            self.restore(before)

    def _fixed_part(self, tree: Tree, varying: Varying) -> Tree:
        fixed = fixed_part(tree, varying)
        # A verifier judges what their steps change, and a trainer may go on from it.
        for index, optimizer in enumerate(self._task.optimizers):
            if has_own_step(optimizer):
                fixed["optimizers"][index] = []
        return fixed

    def _other_recipe(self, tree: Tree) -> str | None:
        """The first place where a state has another recipe than the task as built."""
        if self._fixed is None or self._schedule.varying is None:
            return None
        return first_difference(self._fixed, self._fixed_part(tree, self._schedule.varying))

    def require_restorable(self, state: _core.State) -> None:
        """Refuses what nobody could restore: `Session._require_restorable`."""
        place = self._other_recipe(state.tree())
        if place is not None:
            raise NotReplayable(
                Problem(
                    what="a setting that the job fixes changed during training",
                    where=place,
                    remedy="let a scheduler= change it, or an overridden Task.step, which makes it "
                    "part of what is trained",
                )
            )

    def _require_recipe(self, tree: Tree) -> None:
        place = self._other_recipe(tree)
        if place is not None:
            raise MismatchError(f"{place}: the state has another value than the agreed task")

    def _require_flags(self, tree: Tree) -> None:
        now = flags_of(tree)
        for part, flags in self._flags.items() if now != self._flags else ():
            for flag, was in flags.items():
                for name, value in now.get(part, {}).get(flag, {}).items():
                    if was.get(name, value) != value:
                        raise NotReplayable(
                            Problem(
                                what=f"the flag {flag} changed during training",
                                where=f"{part}/{flag}/{name}",
                                remedy="set flags in build(), or change them in an overridden "
                                "Task.step, which makes them part of what is trained",
                            )
                        )


def _fits(varying: Varying, task: Task) -> bool:
    """Whether the job speaks of as many optimizers and schedulers as the task has."""
    return len(varying["optimizers"]) == len(task.optimizers) and (
        len(varying["schedulers"]) == len(task.schedulers)
    )
