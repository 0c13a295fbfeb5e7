# SPDX-License-Identifier: Apache-2.0
"""Digests of where a job's first steps end.

In an exact arithmetic torch's operators have the same bits everywhere. What `compute_loss` or
`step` computes with anything else need not: NumPy's exp depends on the processor, `math.exp` on the
C library, a simulation on its version. So the job pins where the steps end that `Job.create` tries.
A trainer whose machine ends them otherwise is told at once. A verifier whose machine does so holds
nothing that it recomputed against the trainer
(docs/decisions/0048-an-exact-job-pins-where-its-first-steps-end.md).

Costs a digest of each of these states, and no step. Does not see a difference that only later steps
have. In log64 nothing is pinned: there the bits follow the trainer's rounding log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .. import _core
from ._first_batches import other_machine
from ._recipe import Description

if TYPE_CHECKING:
    from ._session import Session


def end_of(state: _core.State | bytes, loss: float) -> str:
    """The digest of a step's end.

    Args:
        state: The state after the step, or its digest.
        loss: What the step reports, which replays compare, too.
    """
    return _core.end_of_step(state if isinstance(state, bytes) else state.digest(), loss)


def pins_of(ends: Sequence[str]) -> dict[str, _core.Json]:
    """What the description of a task says of the steps that were tried."""
    return {_core.FIRST_STEPS: [*ends]} if ends else {}


def without_ends(task: Mapping[str, _core.Json]) -> Description:
    """The description of a task that says nothing of its first steps."""
    return {key: value for key, value in task.items() if key != _core.FIRST_STEPS}


def other_bits(core: _core.Job, own: Sequence[str]) -> str:
    """Which of a job's first steps ends otherwise on this machine, in a sentence; "": none.

    Args:
        core: The client's own job: what a trainer pins must not excuse the trainer.
        own: Where they end here.
    """
    for step, (here, there) in enumerate(zip(own, core.first_steps(), strict=False), start=1):
        if here != there:
            return (
                f"step {step} ends in other bits on this machine than on the one that made the "
                f"job, of the same code and data{other_machine(core)}. If build() or a step uses "
                "another file, such as a configuration or a teacher's weights, compare the files, "
                "or make the teacher a part of the model. What compute_loss or step computes "
                "outside of torch depends on the machine: compute it in torch or in integers, or "
                "use a machine like that one"
            )
    return ""


def ends_here(session: Session, core: _core.Job) -> list[str]:
    """Where the steps that a job pins end on this machine, trained in a session that was just
    opened.
    """
    out: list[str] = []
    with session.active():
        for step, _ in enumerate(core.first_steps(), start=1):
            loss = session.run_step(step, session.sample_ids(step)).loss
            out.append(end_of(session.capture(), loss))
    return out


def why_other_end(session: Session, core: _core.Job, step: int, end: str) -> str:
    """Why a step did not end as a job pins, in a sentence: trains it once more.

    Args:
        session: Just opened under the job.
        core: What was agreed.
        step: 1-based.
        end: Where it ended.
    """
    again = ends_here(session, core)
    if again[step - 1] == end:
        return other_bits(core, again)
    return (
        f"step {step} ends in other bits each time that it is trained: draw from torch, random or "
        "numpy.random only, which potl seeds, and share steps among machines of one kind"
    )
