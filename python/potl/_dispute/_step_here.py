# SPDX-License-Identifier: Apache-2.0
"""One step of a recorded run, executed again on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.utils._pytree import tree_leaves

from .. import _core
from .._base._errors import JobMismatch, MissingError, NotReplayable, NotReproducible
from .._job._agreement import Build, job_of, open_checked
from .._job._session import Session
from ._operators import ValueTrace
from ._outline import StateOutline
from ._roots import root_of_tensor
from ._rounding_logs import own_logs
from ._values import trace_values


@dataclass(frozen=True)
class StepHere:
    """What became of a run's step here.

    Attributes:
        trace: Its operators; None where it was not executed.
        batch: Content roots of the batch's tensors.
        reproduced: Whether it ended in the recorded state.
        problem: Why it was not executed.
    """

    trace: ValueTrace | None
    batch: tuple[bytes, ...] = ()
    reproduced: bool = False
    problem: str = ""


def step_here(
    build: Build, run: _core.Evidence, step: int, *, states: Sequence[_core.Evidence]
) -> StepHere:
    """Executes a step of a run from the state before it.

    Args:
        build: Of the run's task.
        run: Whose job, rounding logs and records count.
        step: 1-based.
        states: Runs whose states before the step are those of this run: the latest stored one is
            where the replay begins.
    """
    try:
        stored = [(row["step"], i) for i, one in enumerate(states) for row in one.checkpoints()]
        start, holder = max((at, -i) for at, i in stored if at < step)
        with open_checked(build, job_of(run.job, run)) as session, session.active():
            session.restore(states[-holder].load_state(start))
            return _executed(session, run, start, step)
    except ValueError:
        return StepHere(None, problem=f"no state before step {step} is stored")
    except (JobMismatch, MissingError, NotReplayable, NotReproducible) as error:
        return StepHere(None, problem=error.message)


def _executed(session: Session, run: _core.Evidence, start: int, step: int) -> StepHere:
    logs = own_logs(run)
    for at, _, batch in session.batches(start + 1, step):
        follow = logs(at)
        if at < step:
            session.run_step(at, batch, rounding=follow)
            continue
        before = StateOutline.of(session.capture())
        if before.digest() != run.state_digest(step - 1):
            return StepHere(
                None, problem=f"steps {start + 1} to {step - 1} end in another state here"
            )
        tensors = [one for one in tree_leaves(batch) if isinstance(one, torch.Tensor)]
        roots = tuple(root_of_tensor(one) for one in tensors)
        trace = trace_values(session, step, batch, before=before, rounding=follow)
        return StepHere(trace, roots, trace.after == run.state_digest(step))
    raise AssertionError("the schedule ended early")
