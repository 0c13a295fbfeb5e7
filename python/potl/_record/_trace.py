# SPDX-License-Identifier: Apache-2.0
"""The operators of one step, each with a digest of what it returned: names the first one that two
machines disagree on.

A replay in a reproducible arithmetic that differs names the step. Both sides then trace that step
(`potl trace`, `trace`), the prover's trace lies in `traces/step-N.json` of the run directory, and
`verify` names the first operator whose result differs. A trace convinces nobody by itself: it says
where to look.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from .. import _core
from .._base._elements import bytes_of_elements
from .._base._errors import UsageError

if TYPE_CHECKING:
    from .._arithmetic._rounded_steps import Rounding
    from .._job._job import Job
    from .._job._session import Session
    from .._task._task import Task
    from ._run import Run


@dataclass(frozen=True)
class OperatorTrace:
    """What the operators of one step returned.

    Attributes:
        step: 1-based.
        before: Digest of the state that the step started from, 32 bytes.
        operators: Name and SHA-256 (hexadecimal) of the results, in the order of the calls.
    """

    step: int
    before: bytes
    operators: tuple[tuple[str, str], ...]

    def first_difference(self, other: OperatorTrace) -> str | None:
        """The first operator that differs, e.g. "operator 12 of 80, aten.mm.default"; None when
        all agree.

        Raises:
            UsageError: The traces start from different states or are of different steps.
        """
        return self._core().first_difference(other._core())

    def write(self, run: str | os.PathLike[str]) -> Path:
        """Writes `traces/step-N.json` into a run directory; returns the path."""
        return Path(self._core().write(os.fspath(run)))

    @classmethod
    def read(cls, run: str | os.PathLike[str], step: int) -> OperatorTrace | None:
        """The trace that somebody left in a run directory; None when there is none.

        Raises:
            MalformedError: There is one that is not a trace of that step.
        """
        found = _core.OperatorTrace.read(os.fspath(run), step)
        return None if found is None else cls(step, found.before, tuple(found.operators))

    def _core(self) -> _core.OperatorTrace:
        return _core.OperatorTrace(self.step, self.before, self.operators)


def trace(
    run: str | os.PathLike[str] | Run,
    *,
    step: int,
    task: Callable[[], Task] | str,
    job: Job | str | os.PathLike[str] | None = None,
) -> OperatorTrace:
    """Replays up to a step from the stored state before it, and traces that step.

    Args:
        run: The run directory.
        step: 1-based.
        task: `build`, or "module:function".
        job: None for the run's own.

    Raises:
        MissingError: The run holds no state before the step.
        JobMismatch: The task does not match the job.
        UsageError: The job has no such step.
    """
    from .._base import _executors, _imports
    from .._job._agreement import open_checked
    from .._job._job import Job
    from ._inputs import as_job, run_directory

    directory = run_directory(run)
    _imports.close(directory)
    evidence = _core.Evidence.open(
        str(directory), job=None if job is None else as_job(job).core, commitment=None
    )
    agreed = Job(evidence.job) if job is None else as_job(job)
    if not 1 <= step <= agreed.steps:
        raise UsageError(f"the job has no step {step}", f"use 1 to {agreed.steps}")
    stored = [row["step"] for row in evidence.checkpoints() if row["step"] < step]
    start = max(stored, default=0)
    build = _executors.load_task(task) if isinstance(task, str) else task
    with open_checked(build, agreed) as session, session.active():
        session.restore(evidence.load_state(start))
        for at, _, batch in session.batches(start + 1, step):
            if at == step:
                before = session.capture().digest()
                return OperatorTrace(step, before, tuple(trace_step(session, step, batch)))
            session.run_step(at, batch)
    raise AssertionError("the schedule ended early")


def trace_step(
    session: Session, step: int, batch: Any, *, rounding: Rounding | None = None
) -> list[tuple[str, str]]:
    """Runs a step from the session's present state, following a rounding log, and says what its
    operators returned.
    """
    tracer = _Tracer()
    with tracer:
        session.run_step(step, batch, rounding=rounding)
    return tracer.rows


class _Tracer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees what reaches the backend: forward, backward and update, after autograd."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.rows: list[tuple[str, str]] = []

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if func.namespace != "profiler":  # marks for profilers compute nothing
            name = str(func)
            self.rows.append((name, _digest(out, contents=not _core.returns_unset(name))))
        return out


def _digest(out: object, *, contents: bool) -> str:
    hasher = hashlib.sha256()
    for leaf in tree_flatten(out)[0]:
        if isinstance(leaf, torch.Tensor):
            hasher.update(f"{leaf.dtype} {tuple(leaf.shape)} ".encode())
            if contents and leaf.layout == torch.strided and leaf.device.type != "meta":
                hasher.update(bytes_of_elements(leaf).numpy().data)
        elif isinstance(leaf, bool | int | float | complex | str | None):
            hasher.update(f"{leaf!r} ".encode())
        else:  # its text might hold an address
            hasher.update(f"{type(leaf).__name__} ".encode())
    return hasher.hexdigest()
