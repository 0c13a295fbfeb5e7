# SPDX-License-Identifier: Apache-2.0
"""`SpotCheckedOptimizer`: a worker's own loop, whose updates a trusted side makes."""

from __future__ import annotations

import contextlib
import math
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from .. import _core
from .._base._errors import StorageError, UnsupportedError, UsageError
from ._gradients import LEAST_SHARE, MARGIN, Gradients, clipped, load_weights, spread, weights_of

if TYPE_CHECKING:
    from typing_extensions import Self

    from .._task._task import Task

_ACCEPT_SECONDS = 3600.0
# First steps of a session whose gradients are compared with those of the agreed step: what a loop
# leaves behind, such as a generator that it moved, shows in the second.
_COMPARED_STEPS = 2


@dataclass
class _Asked:
    """A step that the trusted side asks for."""

    step: int
    weights: memoryview


@dataclass
class _Over:
    """The session is over."""

    error: BaseException | None
    reason: str


class _Handover:
    """What a session asks for gradients: hands each question to the loop, and waits for it."""

    def __init__(self, honest: Gradients) -> None:
        self.honest = honest
        self.tensors, self.weights_bytes = honest.tensors, honest.weights_bytes
        self.steps = honest.steps
        # As agreed: a loop may evaluate before its first step, too.
        self.flags = [(one, one.training) for one in honest.session.task.model.modules()]
        self.asked: queue.SimpleQueue[_Asked | _Over] = queue.SimpleQueue()
        self.told: queue.SimpleQueue[tuple[float, list[torch.Tensor | None]] | str] = (
            queue.SimpleQueue()
        )

    def begin_training(self) -> None:
        """Turns on what a loop that evaluates left off."""
        for module, flag in self.flags:
            module.training = flag

    def gradient(self, step: int, weights: memoryview, way: int, out: memoryview) -> float:
        self.asked.put(_Asked(step, weights))
        answer = self.told.get()
        if isinstance(answer, str):
            raise UsageError(answer, "")
        loss, found = answer
        self.honest.write(found, step, out)
        return loss


class OwnLoop:
    """The link of a worker's own loop to the trusted side: `Worker.open` makes it.

    Attributes:
        reason: Why the trusted side ended the training; empty when it is finished.
    """

    def __init__(
        self,
        make: Callable[[str], _core.GradientSource],
        *,
        address: str,
        key: bytes,
        timeout: float,
    ) -> None:
        self.reason = ""
        self._make = make
        self._key = key
        self._timeout = timeout
        self._door = _core.SpotCheckDoor(address, key=key)
        self._opened: queue.SimpleQueue[_Handover | _Over] = queue.SimpleQueue()
        self._handover: _Handover | None = None
        self._given: tuple[float, list[torch.Tensor | None]] | None = None
        self._serving = threading.Thread(target=self._serve, daemon=True)

    @property
    def address(self) -> str:
        """Where the trusted side connects to."""
        return self._door.address

    @property
    def task(self) -> Task:
        """The agreed task, once the trusted side has connected; this waits for it."""
        return self._open().honest.session.task

    def steps(self) -> Iterator[tuple[int, Any]]:
        """The steps that the trusted side asks for: number and collated batch, with its weights in
        the model. The body computes the gradients and calls the optimizer's `step`.

        The gradients of the first two are compared with those of the agreed step. Later nobody
        does that but the trusted side, which takes a mistake for a lie.

        Raises:
            UsageError: The body of a step did not, or it computes something else.
            StorageError: The connection was lost; open another one to go on.
        """
        handover = self._open()
        session = handover.honest.session
        weights = weights_of(session.task)
        compared = 0
        while True:
            asked = handover.asked.get()
            if isinstance(asked, _Over):
                self._end(asked)
                return
            self._given = None
            try:
                load_weights(weights, asked.weights)
                handover.begin_training()
                batch = session.batch(asked.step, session.sample_ids(asked.step))
                with session._own_step(asked.step):
                    yield asked.step, batch
                if self._given is None:
                    raise UsageError(
                        f"step {asked.step} has no gradient",
                        "call optimizer.step(loss) in the loop",
                    )
                if compared < _COMPARED_STEPS:
                    handover.begin_training()
                    _require_agreed(handover.honest, asked, self._given[1])
                    compared += 1
            except BaseException as error:
                # The generator is closed by whatever ended the body.
                why = "" if isinstance(error, GeneratorExit) else f": {error!r}"
                handover.told.put(f"the loop ended{why}")
                raise
            handover.told.put(self._given)

    def give(self, loss: float, gradients: list[torch.Tensor | None]) -> None:
        """Takes the gradients of the present step."""
        self._given = loss, gradients

    def close(self) -> None:
        """Waits for the end of the session."""
        if self._handover is not None:
            self._handover.told.put("the loop ended")
        if self._serving.is_alive() and self._handover is not None:
            self._serving.join()

    def __enter__(self) -> Self:
        self._serving.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _open(self) -> _Handover:
        if self._handover is None:
            found = self._opened.get()
            if isinstance(found, _Over):
                self._end(found)
                raise StorageError("the trusted side ended before its first step", self.reason)
            self._handover = found
        return self._handover

    def _end(self, over: _Over) -> None:
        self.reason = over.reason
        if over.error is not None:
            raise over.error

    def _serve(self) -> None:
        made: list[_Handover] = []

        def make(text: str) -> _Handover:
            honest = self._make(text)
            if not isinstance(honest, Gradients):
                raise UsageError("a loop of your own computes the gradients", "leave out wrap=")
            made.append(_Handover(honest))
            self._opened.put(made[0])
            return made[0]

        try:
            socket = self._door.next(_ACCEPT_SECONDS)
            stopped, reason, _ = _core.spot_check_serve(
                socket, key=self._key, make=make, timeout=self._timeout
            )
            lost = None if stopped else StorageError(f"the session was lost: {reason}")
            over = _Over(lost, reason)
        except BaseException as error:
            over = _Over(error, str(error))
        (made[0].asked if made else self._opened).put(over)


def _require_agreed(honest: Gradients, asked: _Asked, found: Sequence[torch.Tensor | None]) -> None:
    """Refuses gradients that are not those of the agreed step: who sends them is no cheat, but
    would be taken for one.
    """
    size = 4 * sum(elements for _, elements in honest.tensors)
    own, given = bytearray(size), bytearray(size)
    honest.gradient(asked.step, asked.weights, 0, memoryview(own))
    with contextlib.suppress(UnsupportedError):  # for other parameters
        honest.write(found, asked.step, memoryview(given))
        if own == given:
            return
        if not honest.session.is_reproducible:
            clip = honest.session.task.grad_clip or math.inf
            ours, furthest = spread(honest, asked.step, asked.weights, clip)
            theirs = clipped(torch.frombuffer(given, dtype=torch.float32), clip)
            # A guard that measures its tolerance passes no more.
            passing = max(LEAST_SHARE * float(ours.norm()), MARGIN * furthest)
            if float((theirs - ours).norm()) <= passing:
                return
    raise UsageError(
        f"the loop's gradient of step {asked.step} is not that of the agreed step",
        "compute the task's loss of the whole batch, in one forward and one backward pass, before "
        "anything else that draws random numbers, and do not clip: the trusted side does",
    )


class SpotCheckedOptimizer:
    """Stands for an optimizer in a loop of your own: `step` sends the gradients to a trusted side,
    which clips them, makes the update, and sends the weights of the next step.

    Args:
        optimizer: The task's: `guard.task.optimizer`.
        guard: The link to the trusted side.

    Example:
        >>> with worker.open("unix:/run/potl.sock") as guard:  # doctest: +SKIP
        ...     model = guard.task.model
        ...     optimizer = potl.SpotCheckedOptimizer(guard.task.optimizer, guard)
        ...     for number, (images, labels) in guard.steps():
        ...         optimizer.zero_grad()
        ...         loss = F.cross_entropy(model(images), labels)
        ...         loss.backward()
        ...         optimizer.step(loss)

    Raises:
        UsageError: The optimizer is not the task's only one.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, guard: OwnLoop) -> None:
        if optimizer is not guard.task.optimizer:
            raise UsageError(
                "the optimizer is not the agreed task's", "pass guard.task.optimizer, of one"
            )
        self._optimizer = optimizer
        self._guard = guard

    @property
    def param_groups(self) -> list[dict[str, object]]:
        """The optimizer's."""
        return list(self._optimizer.param_groups)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """The optimizer's."""
        self._optimizer.zero_grad(set_to_none)

    def step(self, loss: torch.Tensor | float) -> None:
        """Gives the gradients of this step to the trusted side. The weights change when the loop
        goes on.

        Args:
            loss: Mean loss of the batch, for the trusted side's report.

        Raises:
            UsageError: It is not one number.
        """
        try:
            number = float(loss.detach() if isinstance(loss, torch.Tensor) else loss)
        except (TypeError, ValueError, RuntimeError) as error:
            raise UsageError(
                f"the loss of a step is not one number: {error}",
                "compute the gradients first, without a closure, and pass the mean loss of the "
                "batch: optimizer.step(loss)",
            ) from error
        self._guard.give(
            number,
            [
                None if p.grad is None else p.grad.detach().clone()
                for group in self._optimizer.param_groups
                for p in group["params"]
            ],
        )
