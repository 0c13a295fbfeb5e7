# SPDX-License-Identifier: Apache-2.0
"""Answers requests, here or in worker processes."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, as_completed
from types import TracebackType
from typing import TYPE_CHECKING

from .. import _core
from .._base import _executors, _imports, _progress
from .._job._agreement import is_of_a_program, job_of, open_checked, open_unchecked
from .._job._job import Job
from .._task._capture import modules_of
from ._schema import Schema
from ._work import work_of
from ._worker import Setup, fulfil
from ._workload import describe, replayer_of

if TYPE_CHECKING:
    from typing_extensions import Self

    from .._job._session import Session
    from .._remote._remote import Place
    from .._task._task import Task

_NO_TASK = "no task was given to replay with; pass task= (--task)"
_A_PROGRAM = "only the C++ program whose job it is can replay it: verify with that program"


class Answers:
    """Owns the verifier's session, and the pool if there is one, for one verification.

    Attributes:
        loading_seconds: Until the task was there, which each process does once, however long the
            training.
    """

    def __init__(
        self,
        place: Place,
        evidence: _core.Evidence,
        *,
        job: Job | None,
        note: str | None,
        task: Callable[[], Task] | str | None,
        workers: int = 0,
        executor: Executor | None = None,
        timeout: float | None = None,
        max_checkpoint_bytes: int | None = None,
        derive: bool = False,
        progress: _progress.Progress = None,
    ) -> None:
        self._evidence = evidence
        self._timeout = timeout
        self._derive = derive
        self._progress = progress
        self._setup: Setup | None = None
        self._executor = executor
        self._owned: _executors.Pool | None = None
        if workers < 0:
            raise _core.UsageError("workers is a number of processes, 0 for none", "")
        if timeout is not None and not timeout > 0:
            raise _core.UsageError(f"timeout is {timeout}", "pass seconds above 0, or None")
        if executor is not None:
            _executors.check_executor(executor)
        elsewhere = task is not None and (workers or executor is not None)
        name = ""
        if elsewhere:
            _imports.require_clean_start(place.directory)
            name = _executors.task_name(task)
        began = time.perf_counter()
        build = _executors.load_task(task) if isinstance(task, str) else task
        self.loading_seconds = time.perf_counter() - began
        self._session = None if build is None else _opened(build, job, evidence)
        if self._session is not None:
            self.loading_seconds += self._session.build_seconds
        if self._session is not None and not evidence.rejected:
            # Before any state is opened, which drawing the largest updates does.
            evidence.expect_state_bytes(self._schema.initial.nbytes)
            if elsewhere:
                self._setup = Setup.of(
                    place,
                    evidence,
                    note=note,
                    task=name,
                    timeout=timeout,
                    state_bytes=self._schema.initial.nbytes,
                    max_checkpoint_bytes=max_checkpoint_bytes,
                    derive=derive,
                )
        if self._setup is not None and executor is None:
            self._owned = self._executor = _executors.Pool(workers)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._owned is not None:
            if kind is None:
                self._owned.shutdown()
            else:  # nobody waits for replays whose result is not wanted any more
                self._owned.kill()
        if self._session is not None:
            self._session.close()

    def to(
        self,
        requests: Sequence[_core.Request],
        *,
        until: Callable[[_core.AnyMeasurement], bool] = lambda _: False,
    ) -> list[_core.AnyMeasurement]:
        """A measurement for each request, and nothing more after one of which `until` is true."""
        work = work_of(requests, self._evidence, derive=self._derive)
        step_seconds = self._step_seconds() if requests else None
        work.announce(self._evidence.job.steps, step_seconds)
        label = work.label(step_seconds)
        with _progress.track(label, len(requests), self._progress) as advance:
            return self._run(requests, advance, until)

    def non_persistent_buffers(self) -> list[str] | None:
        """Buffers that the task's `state_dict` leaves out; None without a task."""
        if self._session is None:
            return None
        modules = modules_of(self._session.task.model)
        return [p + name for p, module in modules for name in module._non_persistent_buffers_set]

    def here(self, request: _core.Request) -> _core.AnyMeasurement:
        """A measurement in this process, wherever other requests are answered."""
        if self._session is None:
            return _core.unanswered(request, self._no_task)
        with self._session.active():
            return self._replayer.answer(request)

    def _step_seconds(self) -> float | None:
        """What a step takes in this process; None where none can be taken, or others replay."""
        if self._session is None or self._executor is not None:
            return None
        try:
            with self._session.active():
                return self._schema.step_seconds
        except Exception:  # each request will say what is wrong
            return None

    @functools.cached_property
    def _no_task(self) -> str:
        return _A_PROGRAM if is_of_a_program(self._evidence.job) else _NO_TASK

    @functools.cached_property
    def _schema(self) -> Schema:
        assert self._session is not None
        return Schema(self._session, self._evidence)

    @functools.cached_property
    def _replayer(self) -> _core.Replayer:
        assert self._session is not None
        return replayer_of(
            self._session,
            self._schema,
            self._evidence,
            timeout=self._timeout,
            derive=self._derive,
            own_job=self._evidence.job_is_own,
        )

    def _run(
        self,
        requests: Sequence[_core.Request],
        advance: _progress.Advance | None,
        until: Callable[[_core.AnyMeasurement], bool],
    ) -> list[_core.AnyMeasurement]:
        if self._session is None:
            return [_core.unanswered(request, self._no_task) for request in requests]
        done: list[_core.AnyMeasurement] = []
        for measurement in self._measured(requests):
            done.append(measurement)
            if advance is not None:
                advance(len(done))
            if until(measurement):
                break
        return done

    def _measured(self, requests: Sequence[_core.Request]) -> Iterator[_core.AnyMeasurement]:
        assert self._session is not None
        if self._executor is not None and self._setup is not None:
            yield from self._measured_elsewhere(self._executor, self._setup, requests)
            return
        for request in requests:
            with self._session.active():
                measurement = self._replayer.answer(request)
            yield measurement

    @staticmethod
    def _measured_elsewhere(
        executor: Executor, setup: Setup, requests: Sequence[_core.Request]
    ) -> Iterator[_core.AnyMeasurement]:
        futures: dict[Future[_core.AnyMeasurement], _core.Request] = {}
        for request in requests:
            try:
                futures[executor.submit(fulfil, setup, request)] = request
            except RuntimeError as error:  # a broken or closed pool
                yield _core.unanswered(request, describe(error))
        try:
            for future in as_completed(futures):
                try:
                    yield future.result()
                except Exception as error:
                    message = f"a worker failed: {describe(error)}"
                    yield _core.unanswered(futures[future], message)
        finally:  # of an interrupt, too: what has not begun need not
            for future in futures:
                future.cancel()


def _opened(build: Callable[[], Task], job: Job | None, evidence: _core.Evidence) -> Session:
    """The verifier's session under its own job, or under the run's."""
    if job is None:
        job = job_of(evidence.job, evidence, state_bytes=lambda: _size_of(build, evidence.job))
    return open_checked(build, job)


def _size_of(build: Callable[[], Task], job: _core.Job) -> int:
    with open_unchecked(build, Job(job)) as session:
        return session.capture().nbytes
