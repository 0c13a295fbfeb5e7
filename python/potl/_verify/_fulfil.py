# SPDX-License-Identifier: Apache-2.0
"""Fulfils the requests of checks: restores recorded states, runs agreed steps, measures. It decides
nothing.

Whose fault an exception is decides between a rejection and "inconclusive", so it is found out by
experiment: the step that failed is run again from the verifier's own initial state. Only when that
works, and the recorded state fails a second time in the same way, does the recorded state carry the
blame. What the data pipeline, memory, files or clocks do wrong is always the verifier's own.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from .. import _core
from .._arithmetic import _rounded_steps

if TYPE_CHECKING:
    from .._job._session import Session, StepResult
    from ._schema import Schema

Measurement = dict[str, Any]
_T = TypeVar("_T")

# How often a failing request is tried before its failure counts as reproducible.
_ATTEMPTS = 2


class _FailedError(Exception):
    """A request could not be fulfilled, and why: one of the states of `measured` in
    checks/request.hpp.
    """

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status


class _SuspectError(Exception):
    """Restoring or running a recorded state failed; whether it is to blame must still be found
    out.
    """

    def __init__(self, cause: Exception, control: Callable[[], None]) -> None:
        super().__init__(describe(cause))
        self.cause = cause
        self.control = control


class Replayer:
    """One task under one job, and the evidence whose requests it fulfils.

    Args:
        session: Freshly opened: its present state is the honest initial state of control
            experiments.
        evidence: Where recorded states come from.
        timeout: Seconds that one request may take, looked at between steps; None for no limit.
        directory: The run, in which the prover may have left traces of steps.
        derive: Whether to train a state from the one before it where the job lets the trainer store
            few and nobody has asked for this one. What was asked for and is missing is withheld.
        schema: Judges every state before it is used; None looks at nothing but numbers.
    """

    def __init__(
        self,
        session: Session,
        evidence: _core.Evidence,
        *,
        timeout: float | None = None,
        directory: Path | None = None,
        derive: bool = False,
        schema: Schema | None = None,
    ) -> None:
        self._schema = schema
        self._session = session
        self._evidence = evidence
        self._timeout = timeout
        self._directory = directory
        self._derives = derive
        self._replayed: tuple[int, _core.State] | None = None  # came out as recorded
        self._deadline: float | None = None
        self._initial = session.capture() if schema is None else schema.initial
        evidence.expect_state_bytes(self._initial.nbytes)
        self._sized = schema is None
        self._kept: tuple[tuple[int, int | None], _core.State] | None = None
        self._branch: int | None = None  # whose steps are replayed; None: the effective history
        logged = evidence.job.arithmetic == _rounded_steps.LOG64
        self._auditor = _rounded_steps.Auditor() if logged else None

    def fulfil(self, request: Mapping[str, Any]) -> Measurement:
        """The measurement that answers `request`. Interrupts propagate; every other exception
        becomes a status.
        """
        measure = {
            "segment": self._segment,
            "loss": self._loss,
            "subset_loss": self._subset_loss,
        }[request["kind"]]
        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        self._deadline = deadline
        status, message = "verifier_error", ""
        kinds: list[type[Exception]] = []
        for _ in range(_ATTEMPTS):
            try:
                with self._session.active():
                    return {"request": dict(request), "status": "ok", **measure(request, deadline)}
            except _FailedError as failure:
                status, message = failure.status, str(failure)
                break
            except _SuspectError as suspect:
                message = str(suspect)
                kinds.append(type(suspect.cause))
                if is_own_trouble(suspect.cause) or not self._passes(suspect.control):
                    break
                if kinds == [kinds[0]] * _ATTEMPTS:
                    status = "prover_error"
            except Exception as error:
                message = describe(error)
                break
        return {"request": dict(request), "status": status, "message": message}

    # ------------------------------------------------------------------ the three kinds of request

    def _segment(self, request: Mapping[str, Any], deadline: float | None) -> Measurement:
        start, end = int(request["start"]), int(request["end"])
        superseded = bool(request.get("superseded", False))
        begin = time.perf_counter()
        recorded_start = self._load(start, request["start_branch"] if superseded else None)
        not_finite = self._not_finite(recorded_start)
        load_seconds = time.perf_counter() - begin

        begin = time.perf_counter()
        self._branch = int(request["branch"]) if superseded else None
        if self._auditor is not None:
            self._auditor.forget()
        results = self._run(recorded_start, start, end, deadline)
        replayed = self._session.capture()
        expected = self._digest(end, request)
        equal = replayed.digest() == expected
        answer: Measurement = {
            "digest_equal": equal,
            "losses": [float(result.loss) for result in results],
            "rates": [list(result.rates) for result in results],
            "skipped": [bool(result.skipped) for result in results],
            "gradient_norm_mean": sum(r.gradient_norm for r in results) / max(1, len(results)),
            "replay_seconds": time.perf_counter() - begin,
        }
        if self._auditor is not None:
            answer["rounding"] = self._auditor.summary
            self._auditor.forget()
        if not equal and not superseded:
            begin = time.perf_counter()
            if self._may_be_missing(end):
                # Exact replay needs no state there: another digest says it all.
                not_finite = not_finite or self._not_finite(replayed)
            else:
                recorded_end = self._load(end)
                not_finite = not_finite or self._not_finite(recorded_end)
                answer["distances"] = _core.compare_states(recorded_start, recorded_end, replayed)
            load_seconds += time.perf_counter() - begin
        if not equal:
            begin = time.perf_counter()
            differing = None
            if self._session.is_reproducible:
                differing = self._first_difference(recorded_start, request, deadline)
                if differing is None:  # one bit that this machine got wrong accuses nobody
                    raise _FailedError(
                        "verifier_error", f"steps {start}-{end} end in two ways here"
                    )
                answer["first_differing_step"] = differing
            if differing is not None and not superseded:
                # Naming it is a courtesy: its failure must not cost the measurement.
                try:
                    named = self._operator(recorded_start, start, differing, deadline)
                except Exception as error:
                    named = f"unknown: {describe(error)}"
                answer["first_differing_operator"] = named
            answer["noise_seconds"] = time.perf_counter() - begin
        else:
            not_finite = not_finite or self._not_finite(replayed)
            if self._derives and not superseded and self._derivable:
                self._replayed = end, replayed
        if not equal or request.get("noise_if_equal", False):
            begin = time.perf_counter()
            answer |= self._noise(request, recorded_start, replayed, deadline)
            spent = time.perf_counter() - begin
            answer["noise_seconds"] = answer.get("noise_seconds", 0.0) + spent
        answer["not_finite"] = not_finite
        answer["load_seconds"] = load_seconds
        return answer

    def _noise(
        self,
        request: Mapping[str, Any],
        recorded_start: _core.State,
        replayed: _core.State,
        deadline: float | None,
    ) -> Measurement:
        start, end = int(request["start"]), int(request["end"])
        distances: list[list[dict[str, Any]]] = []
        losses: list[list[float]] = []
        other = False

        def once() -> tuple[list[float], _core.State]:
            results = self._run(recorded_start, start, end, deadline)
            return [float(result.loss) for result in results], self._session.capture()

        for index in range(int(request.get("noise_repeats", 0))):
            was_other, (seen, perturbed) = self._otherwise(index, once)
            other = other or was_other
            distances.append(_core.compare_states(recorded_start, replayed, perturbed))
            losses.append(seen)
        return {"noise": distances, "noise_losses": losses, "other_arithmetic": other}

    def _otherwise(self, index: int, what: Callable[[], _T]) -> tuple[bool, _T]:
        """What comes out in another arithmetic, or where something has no form in it, with another
        number of threads; and whether it was the first.
        """
        try:
            with self._session.perturb(index) as other:
                return other, what()
        except _SuspectError as suspect:
            # An arithmetic that only the verifier chose is nobody's fault.
            if is_own_trouble(suspect.cause):
                raise
        with self._session.perturb(index, threads_only=True):
            return False, what()

    def _loss(self, request: Mapping[str, Any], deadline: float | None) -> Measurement:
        step = int(request["step"])
        begin = time.perf_counter()
        state = self._load(step - 1)
        ids = self._session.sample_ids(step)

        auditor = self._auditor
        self._branch = None

        def once() -> float:
            _check(deadline)
            self._restore(state, step)
            rounding = None if auditor is None else auditor.beside
            if auditor is not None:
                self._expect_log(step)
            return float(
                self._guarded(
                    step,
                    lambda: self._session.loss_at(step, ids, keep=False, rounding=rounding),
                )
            )

        loss = once()
        noise = []
        # What is equal bit for bit needs no tolerance.
        repeats = 0 if self._was_logged(step, loss) else int(request.get("noise_repeats", 0))
        for index in range(repeats):
            noise.append(self._otherwise(index, once)[1])
        return {
            "loss": loss,
            "noise": noise,
            "not_finite": self._not_finite(state),
            "seconds": time.perf_counter() - begin,
        }

    def _subset_loss(self, request: Mapping[str, Any], deadline: float | None) -> Measurement:
        step = int(request["step"])
        begin = time.perf_counter()
        state = self._load(step)
        _check(deadline)
        self._restore(state, step)
        ids = list(request["sample_ids"])
        mean, deviation = self._guarded(step, lambda: self._session.subset_loss(ids))
        return {
            "mean": float(mean),
            "standard_deviation": float(deviation),
            "not_finite": self._not_finite(state),
            "seconds": time.perf_counter() - begin,
        }

    # ------------------------------------------------------------------ running

    def _run(
        self, state: _core.State, start: int, end: int, deadline: float | None
    ) -> list[StepResult]:
        return [result for result, _ in self._steps(state, start, end, deadline)]

    def _steps(
        self, state: _core.State, start: int, end: int, deadline: float | None
    ) -> Iterator[tuple[StepResult, int]]:
        _check(deadline)
        self._restore(state, start)
        for step, _, batch in self._session.batches(start + 1, end):
            _check(deadline)
            self._expect_log(step)
            try:
                result = self._session.run_step(step, batch, rounding=self._auditor)
            except Exception as error:
                raise _SuspectError(error, self._control(step, batch)) from error
            yield result, step

    def _first_difference(
        self, state: _core.State, request: Mapping[str, Any], deadline: float | None
    ) -> int | None:
        for _, step in self._steps(state, int(request["start"]), int(request["end"]), deadline):
            if self._session.capture().digest() != self._digest(step, request):
                return step
        return None

    def _operator(
        self, state: _core.State, start: int, step: int, deadline: float | None
    ) -> str | None:
        """The first operator of a step whose result differs from the prover's trace of that step;
        None when the prover left none.
        """
        from .._record._trace import OperatorTrace, trace_step

        if self._directory is None:
            return None
        try:
            theirs = OperatorTrace.read(self._directory, step)
        except (_core.MalformedError, _core.LimitError, OSError) as error:
            return f"unknown: {describe(error)}"
        if theirs is None:
            return None
        if step > start + 1:
            self._run(state, start, step - 1, deadline)
        else:
            self._restore(state, start)
        [(_, _, batch)] = self._session.batches(step, step)
        self._expect_log(step)
        own = trace_step(self._session, step, batch, rounding=self._auditor)
        if own.before != theirs.before:
            return "unknown: the prover's trace starts from another state"
        found = own.first_difference(theirs)
        return found or "none: the prover's own trace agrees with the verifier, not with its log"

    def _expect_log(self, step: int) -> None:
        """Tells the auditor what the trainer logged and committed for a step."""
        if self._auditor is None:
            return
        committed = self._evidence.rounding_digest(step, self._branch)
        log = b""
        if committed is not None:
            log = self._stored(lambda: self._evidence.load_rounding_log(step, self._branch))
        self._auditor.expect(log, committed)

    def _digest(self, step: int, request: Mapping[str, Any]) -> bytes | None:
        """The recorded digest after a step, on the branch that the request is about."""
        if not request.get("superseded", False):
            return self._evidence.state_digest(step)
        at = 0
        for part in self._evidence.superseded():
            if part["branch"] == request["branch"] and part["from_step"] == request["start"]:
                return bytes(self._replaced["state"][at + step - part["from_step"] - 1])
            at += part["last_step"] - part["from_step"]
        return None

    def _load(self, step: int, branch: int | None = None) -> _core.State:
        # A loss and the segment after it start from the same state.
        if self._kept is not None and self._kept[0] == (step, branch):
            return self._kept[1]
        self._kept = None
        if not self._sized and self._schema is not None:
            self._evidence.expect_largest_state_bytes(self._schema.largest_bytes)
            self._sized = True
        if self._derives and branch is None and self._may_be_missing(step):
            state = self._derived(step)
        else:
            state = self._stored(lambda: self._evidence.load_state(step, branch))
        self._require_lawful(state, step, branch)
        self._kept = (step, branch), state
        return state

    def _derived(self, step: int) -> _core.State:
        """The state that a reproducible arithmetic gives from the nearest one before it.

        At most the job's store_every steps. Other bits than the record binds are a lie in one of
        them: from that state an honest trainer comes to no other.
        """
        every = self._evidence.job.checkpoint_every
        at = next(s for s in range(step - every, -1, -every) if not self._may_be_missing(s))
        if self._replayed is not None and at <= self._replayed[0] <= step:
            at, start = self._replayed
        else:
            start = self._load(at)
        self._branch = None
        self._run(start, at, step, self._deadline)
        state = self._session.capture()
        if state.digest() != self._evidence.state_digest(step):
            request = {"start": at, "end": step}
            differing = self._first_difference(start, request, self._deadline)
            if differing is None:
                raise _FailedError("verifier_error", f"steps {at}-{step} end in two ways here")
            raise _FailedError(
                "tampered",
                f"trained from the state of step {at}, step {differing} is the first that ends in "
                "other bits than its record binds",
            )
        self._replayed = step, state
        return state

    def _require_lawful(self, state: _core.State, step: int, branch: int | None = None) -> None:
        """Ends the request where a recorded state is none that the agreed task can be in."""
        if self._schema is None:
            return
        logged = branch is None or state.digest() == self._evidence.state_digest(step)
        problem = self._schema.problem(state, step, logged=logged)
        if problem is not None:
            form = problem[0] == "agreed.schema"
            raise _FailedError("unknown_form" if form else "unlawful", f"step {step}: {problem[1]}")

    def _not_finite(self, state: _core.State) -> str:
        if self._schema is None:
            return self._evidence.not_finite(state)
        return self._schema.not_finite(state)

    def _may_be_missing(self, step: int) -> bool:
        return step in self._derivable and not self._evidence.job.is_checkpoint(step)

    @functools.cached_property
    def _derivable(self) -> set[int]:
        """Steps whose states the trainer stores on demand, and does not store."""
        if self._evidence.job.store_every == 0:
            return set()
        return {int(one["step"]) for one in self._evidence.missing_checkpoints()}

    @staticmethod
    def _stored(load: Callable[[], _T]) -> _T:
        try:
            return load()
        except _core.MissingError as error:
            raise _FailedError("withheld", str(error)) from error
        except (_core.MismatchError, _core.MalformedError) as error:
            raise _FailedError("tampered", str(error)) from error

    def _was_logged(self, step: int, loss: float) -> bool:
        logged = self._logged
        return step <= len(logged) and logged[step - 1] == loss

    @functools.cached_property
    def _logged(self) -> list[float]:
        return self._evidence.steps()["loss"]

    @functools.cached_property
    def _replaced(self) -> dict[str, list[Any]]:
        return self._evidence.superseded_steps()

    def _restore(self, state: _core.State, step: int) -> None:
        try:
            self._session.restore(state)
        except Exception as error:
            raise _SuspectError(error, lambda: self._session.restore(self._initial)) from error

    def _guarded(self, step: int, what: Callable[[], Any]) -> Any:
        def control() -> None:
            self._session.restore(self._initial)
            what()

        try:
            return what()
        except Exception as error:
            raise _SuspectError(error, control) from error

    def _control(self, step: int, batch: Any) -> Callable[[], None]:
        def run() -> None:
            self._session.restore(self._initial)
            self._session.run_step(step, batch)

        return run

    @staticmethod
    def _passes(control: Callable[[], None]) -> bool:
        try:
            control()
        except Exception:
            return False
        return True


def describe(error: BaseException) -> str:
    """One line about an exception."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


def is_own_trouble(error: BaseException) -> bool:
    """Whether an exception speaks of this machine, whatever the recorded state holds."""
    if isinstance(error, (MemoryError, OSError, TimeoutError, _core.StorageError)):
        return True
    # torch reports memory as RuntimeError on the CPU and as its subclass OutOfMemoryError on a GPU.
    return isinstance(error, RuntimeError) and (
        "out of memory" in str(error) or "can't allocate memory" in str(error)
    )


def _check(deadline: float | None) -> None:
    if deadline is not None and time.monotonic() > deadline:
        raise _FailedError(
            "verifier_error", "TimeoutError: the request took longer than its time limit"
        )
