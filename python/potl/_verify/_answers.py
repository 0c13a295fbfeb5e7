# SPDX-License-Identifier: Apache-2.0
"""Answers plans: turns the requests of all checks into measurements, here or in worker
processes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, as_completed
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from .. import _core
from .._base import _executors, _imports, _progress
from .._job._agreement import job_of, open_for_verifying
from .._task._capture import modules_of
from ._fulfil import Measurement, Replayer, describe
from ._questions import Question, request_key
from ._schema import Schema
from ._work import work_of
from ._worker import Setup, fulfil

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Self

    from .._job._job import Job
    from .._task._task import Task

Request = Mapping[str, Any]
Result = TypeVar("Result")


class Answers:
    """Owns the verifier's session, and the pool if there is one, for one verification."""

    def __init__(
        self,
        directory: Path,
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
        self._directory = directory
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
        if task is not None and (workers or executor is not None):
            _imports.require_clean_start(directory)
            self._setup = Setup.of(
                directory,
                evidence,
                note=note,
                task=_executors.task_name(task),
                timeout=timeout,
                max_checkpoint_bytes=max_checkpoint_bytes,
                derive=derive,
            )
        build = _executors.load_task(task) if isinstance(task, str) else task
        agreed = job_of(evidence.job, evidence) if job is None else job
        self._session = None if build is None else open_for_verifying(build, agreed)
        if self._session is not None and not evidence.rejected:
            # Before any state is opened, which drawing the largest updates does.
            evidence.expect_state_bytes(self._schema.initial.nbytes)
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
        plans: Sequence[Sequence[Request]],
        *,
        until: Callable[[Measurement], bool] = lambda _: False,
    ) -> list[list[Measurement]]:
        """Measurements for several plans, in the plans' order. What several plans ask for is done
        once, and nothing more after a measurement of which `until` is true.
        """
        distinct: dict[str, Request] = {}
        for plan in plans:
            for request in plan:
                distinct.setdefault(request_key(request), request)
        order = sorted(distinct, key=lambda key: _position(distinct[key]))
        work = work_of([distinct[key] for key in order], self._evidence, derive=self._derive)
        step_seconds = self._step_seconds() if order else None
        work.announce(self._evidence.job.steps, step_seconds)
        with _progress.track(work.label(step_seconds), len(order), self._progress) as advance:
            done = self._run({key: distinct[key] for key in order}, advance, until)
        return [
            [
                {**done[key], "request": dict(request)}
                for request in plan
                if (key := request_key(request)) in done
            ]
            for plan in plans
        ]

    def with_noise(self, question: Question, measured: list[Measurement]) -> list[Measurement]:
        """The measurements of a replay, those replaced whose own noise decides and is not known."""
        if question.check != "replay" or len(measured) < len(question.plan):
            return measured
        more = _core.plan_noise(self._evidence, dict(question.options), measured)
        if not more:
            return measured
        [again] = self.to([more])
        better = {_target(one["request"]): one for one in again}
        return [better.get(_target(one["request"]), one) for one in measured]

    def non_persistent_buffers(self) -> list[str] | None:
        """Buffers that the task's `state_dict` leaves out; None without a task."""
        if self._session is None:
            return None
        modules = modules_of(self._session.task.model)
        return [p + name for p, module in modules for name in module._non_persistent_buffers_set]

    def at_last_state(self, use: Callable[[Task], Result]) -> Result:
        """Calls `use` with the verifier's task, whose model holds the last committed state.

        Raises:
            UsageError: There is no task.
            PotlError: The state cannot be opened or restored, or is none that the task can be in.
        """
        if self._session is None:
            raise _core.UsageError("no task was given to load the model into; pass task=build", "")
        steps = self._evidence.steps()["step"]
        if not steps:
            raise _core.MissingError("the run has no steps", "")
        with self._session.active():
            state = self._evidence.load_state(int(steps[-1]))
            problem = self._schema.problem(state, int(steps[-1]))
            if problem is not None:
                raise _core.MismatchError(f"the last committed state is not lawful: {problem[1]}")
            self._session.restore(state)
            return use(self._session.task)

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
    def _schema(self) -> Schema:
        assert self._session is not None
        return Schema(self._session, self._evidence)

    def _run(
        self,
        requests: Mapping[str, Request],
        advance: _progress.Advance | None,
        until: Callable[[Measurement], bool],
    ) -> dict[str, Measurement]:
        if self._session is None:
            message = "no task was given to replay with; pass task=build"
            return {key: _failed(request, message) for key, request in requests.items()}
        done: dict[str, Measurement] = {}
        if self._executor is not None and self._setup is not None:
            futures: dict[Future[Measurement], str] = {}
            for key, request in requests.items():
                try:
                    futures[self._executor.submit(fulfil, self._setup, dict(request))] = key
                except RuntimeError as error:  # a broken or closed pool
                    done[key] = _failed(request, describe(error))
            try:
                for future in as_completed(futures):
                    key = futures[future]
                    try:
                        done[key] = future.result()
                    except Exception as error:
                        done[key] = _failed(requests[key], f"a worker failed: {describe(error)}")
                    if advance is not None:
                        advance(len(done))
                    if until(done[key]):
                        break
            finally:  # of an interrupt, too: what has not begun need not
                for future in futures:
                    future.cancel()
            return done
        replayer = Replayer(
            self._session,
            self._evidence,
            timeout=self._timeout,
            directory=self._directory,
            derive=self._derive,
            schema=self._schema,
        )
        for key, request in requests.items():
            done[key] = replayer.fulfil(request)
            if advance is not None:
                advance(len(done))
            if until(done[key]):
                break
        return done


def _failed(request: Request, message: str) -> Measurement:
    return {"request": dict(request), "status": "verifier_error", "message": message}


def _target(request: Request) -> tuple[int, int, bool, int]:
    return (
        int(request["start"]),
        int(request["end"]),
        bool(request["superseded"]),
        int(request["branch"]),
    )


def _position(request: Request) -> tuple[int, int]:
    kind = str(request["kind"])
    if kind == "segment":
        return int(request["start"]), 1
    return int(request["step"]) - (1 if kind == "loss" else 0), 0
