# SPDX-License-Identifier: Apache-2.0
"""A session as the workload of a replayer: what the verifier's own build does when it is told to.

The replayer (include/potl/checks/replayer.hpp) drives it, and decides what is told, whose fault an
exception is, and what is repeated; the methods here have the names of any_workload's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .. import _core
from .._arithmetic import _rounded_steps
from .._base._errors import NotReproducible, is_own_trouble
from .._job._first_steps import other_bits
from .._job._linear import is_linear
from .._job._same_batches import SameBatches
from .._task._task import overrides

if TYPE_CHECKING:
    from .._job._session import Session, StepResult
    from .._task._task import Task
    from ._schema import Schema


# What a user can do about it: in the next job, because these states are what they are.
_LATE = (
    "the first steps show, and nothing that code of the task's own makes later is judged (make it "
    "in build(), in the form that it keeps; an option that an optimizer changes needs a name that "
    "torch's optimizers do not have)"
)


class Unjudged(Exception):
    """A state that may be honest or not."""


class Workload:
    """One task under one job.

    Args:
        session: Freshly opened: its present state is the honest initial state of control
            experiments.
        schema: Judges recorded states.
        follows: Whether the trainer logged how its steps rounded (log64).
        own_job: The client's own job; None where the trainer brought it, whose pins must not
            excuse the trainer.
    """

    def __init__(
        self,
        session: Session,
        schema: Schema,
        *,
        follows: bool,
        own_job: _core.Job | None = None,
    ) -> None:
        self.session = session
        self._schema = schema
        self._own_job = own_job
        self._noise = contextlib.ExitStack()
        self._in_repeat = False
        self._batches: Iterator[tuple[int, list[int], Any]] = iter(())
        self._expected = range(0)
        self._batch: Any = None
        self._logged: float | None = None  # the loss of the next step
        self._auditor = _rounded_steps.Auditor() if follows else None
        self._rounding: _rounded_steps.Auditor | None = None  # of the next step
        self._still = None if session.is_reproducible else session._watch_still()
        self._updates = 0
        self._data: SameBatches | None = None
        with contextlib.suppress(Exception):  # each request will say what is wrong
            self._data = SameBatches(session, 1, schema.initial)

    @property
    def task(self) -> Task:
        """The verifier's own task."""
        return self.session.task

    # ------------------------------------------------------------------ states

    def initial(self) -> _core.State:
        return self._schema.initial

    def load_state(self, state: _core.State, step: int) -> None:
        self.session.restore(state)

    def still(self) -> list[tuple[list[str], bytes, int]]:
        if self._still is None:
            return []
        # First, because what the schema learns may take steps of its own.
        found = self._still.found()
        return _core.with_copies(found, self._schema.copies, self._updates)

    def is_linear(self) -> bool:
        return is_linear(self.task, self.session.schedule)

    def capture(self) -> _core.State:
        return self.session.capture()

    def problem(
        self, state: _core.State, step: int, logged: bool
    ) -> tuple[_core.Status, str] | None:
        found = self._schema.problem(state, step, logged=logged)
        # The laws are what this machine's own first steps make.
        if found is not None and (other := self.other_first_steps()):
            return "unrepeatable", other
        if found is not None:
            certain = self._schema.problem(state, step, logged=logged, grown=True)
            if certain is None:
                return "verifier_error", f"{found}, as far as {_LATE}"
            found = certain
        if found is None:
            return None
        return "unknown_form" if found.rule == "agreed.schema" else "unlawful", str(found)

    def not_finite(self, state: _core.State) -> str:
        found = self._schema.not_finite(state)
        certain = self._schema.not_finite(state, grown=True) if found else ""
        if found and not certain:
            raise Unjudged(f"{found}, which is not known to be a mask, as far as {_LATE}")
        return certain

    def largest_state_bytes(self) -> int:
        return self._schema.largest_bytes

    # ------------------------------------------------------------------ steps

    def sample_ids(self, step: int) -> list[int]:
        return self.session.sample_ids(step)

    def expect(self, first: int, last: int) -> None:
        if self._still is not None:
            self._still.reset()
            self._updates = (last - first + 1) * self.task.accumulate
        self._batches = self.session.batches(first, last)
        self._expected = range(first, last + 1)

    def fetch(self, step: int, ids: list[int]) -> None:
        if self._expected and step == self._expected[0]:
            self._expected = self._expected[1:]
            _, _, self._batch = next(self._batches)
        else:
            self._batch = self.session.batch(step, ids)

    def steer(self, loss: float) -> None:
        self._logged = loss

    def run_step(self, step: int) -> StepResult:
        logged, self._logged = self._logged, None
        return self.session.run_step(step, self._batch, rounding=self._rounding, logged=logged)

    def batch_loss(self, step: int) -> float:
        rounding = None if self._rounding is None else self._rounding.beside
        # Only a step of the user's own knows what it reports: compute_loss was compared with it for
        # the first steps alone.
        if overrides(self.task, "step"):
            return self.session.run_step(step, self._batch, rounding=rounding).loss
        return self.session.loss_at(step, self._batch, rounding=rounding)

    def subset_loss(self, ids: list[int]) -> tuple[float, float]:
        return self.session._subset_loss(ids)

    def perturb(self, way: int, threads_only: bool) -> bool:
        self._noise.close()
        self._in_repeat = way != 0
        if way == 0:
            return False
        return self._noise.enter_context(self.session._perturb(way - 1, threads_only=threads_only))

    def roughen(self, seed: int) -> bool:
        self._noise.close()
        self._in_repeat = True
        return self._noise.enter_context(self.session._roughen(seed))

    def other_first_steps(self) -> str:
        if self._own_job is None:
            return ""
        return other_bits(self._own_job, self._schema.ends) or self._other_data()

    def _other_data(self) -> str:
        """Why this process has other data than at first, or ""."""
        if self._data is None or self.session._has_plain_batches:
            return ""
        initial = self._schema.initial
        try:
            self.session.restore(initial)  # nobody needs the state that was there
        except _core.MismatchError:  # of a form that a recorded state had: no excuse
            return ""
        problem = self._data.problem(initial, lambda: initial)
        return "" if problem is None else str(problem)

    # ------------------------------------------------------------------ what the prover left

    def follow(self, step: int, log: bytes | None, committed: bytes | None) -> None:
        self._rounding = None if log is None else self._auditor
        if log is not None and self._auditor is not None:
            self._auditor.expect(log, committed)

    def rounding(self) -> _core.RoundingSummary | None:
        if self._auditor is None:
            return None
        summary = self._auditor.summary
        self._auditor.forget()
        return summary

    def trace(self, step: int) -> list[tuple[str, str]]:
        from .._record._trace import trace_step

        return trace_step(self.session, step, self._batch, rounding=self._rounding)

    # ------------------------------------------------------------------ trouble

    def trouble_of(self, error: BaseException) -> tuple[str, str, bool]:
        # What an arithmetic refuses is a matter of this machine's devices and of build()'s code.
        # In a repeat the replayer chose the arithmetic: there it goes on with threads alone.
        refused = isinstance(error, NotReproducible) and not self._in_repeat
        return type(error).__qualname__, describe(error), refused or is_own_trouble(error)


def replayer_of(
    session: Session,
    schema: Schema,
    evidence: _core.Evidence,
    *,
    timeout: float | None,
    derive: bool,
    own_job: bool,
) -> _core.Replayer:
    """Answers the requests of checks with a session, under a job of the client's own or not."""
    job = evidence.job
    follows = job.arithmetic == _rounded_steps.LOG64
    workload = Workload(session, schema, follows=follows, own_job=job if own_job else None)
    return _core.Replayer(evidence, workload, timeout=timeout, derive=derive)


def describe(error: BaseException) -> str:
    """One line about an exception."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
