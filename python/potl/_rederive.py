# SPDX-License-Identifier: Apache-2.0
"""`rederive`: trains the states again that a run has recorded and does not store any more.

Claims: what it stores has the digest that the log binds, so a verifier sees no difference. Costs at
most one training. Assumes the arithmetic of then: the same machine and number of threads, or a
reproducible one; elsewhere the digests differ and nothing is stored.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import _core
from ._agreement import job_of, open_checked
from ._errors import MismatchError
from ._inputs import run_directory
from ._progress import Progress, track

if TYPE_CHECKING:
    from ._task import Task


@dataclass(frozen=True, kw_only=True)
class Rederivation:
    """What came back.

    Attributes:
        steps: Whose states are stored again, ascending.
        trained: Steps that had to be done for it.
    """

    steps: tuple[int, ...]
    trained: int


def rederive(
    build: Callable[[], Task], run: str | os.PathLike[str], *, progress: Progress = None
) -> Rederivation:
    """Stores all missing checkpoints of a run again.

    Each is trained from the stored state before it, and kept only if it has the recorded digest.

    Args:
        build: Makes the task that was recorded.
        run: The run directory.
        progress: None for a bar when stderr is a terminal, a bool, or a function of (done, total).

    Raises:
        JobMismatch: The task is not the one of the run's job.
        MismatchError: A state comes out with other bits than were recorded; those before it are
            stored.
        MissingError: The state at step 0 is not there.
    """
    directory = run_directory(run)
    evidence = _core.Evidence.open(str(directory), job=None, commitment=None)
    missing = {int(one["step"]): one for one in evidence.missing_checkpoints()}
    stored = sorted(int(one["step"]) for one in evidence.checkpoints())
    ways = _ways(stored, sorted(missing))
    total = sum(last - first for first, last in ways)
    if total == 0 and not missing:
        return Rederivation(steps=(), trained=0)
    done = 0
    with (
        open_checked(build, job_of(evidence.job, evidence)) as session,
        track("deriving", total, progress) as advance,
        session.active(),
    ):
        for first, last in ways:
            session.restore(evidence.load_state(first))
            for step, _, batch in session.batches(first + 1, last):
                session.run_step(step, batch)
                if step in missing:
                    state = session.capture()
                    if state.digest() != missing[step]["state"]:
                        raise MismatchError(
                            f"the state of step {step} comes out with other bits than were "
                            "recorded (derive it on the machine and with the number of threads "
                            "that recorded it; only reproducible arithmetic is free of both)"
                        )
                    state.save(str(directory / _name(step, int(missing[step]["branch"]))))
                done += 1
                if advance is not None:
                    advance(done)
    return Rederivation(steps=tuple(sorted(missing)), trained=done)


def _ways(stored: list[int], missing: list[int]) -> list[tuple[int, int]]:
    """From which stored state to which missing one has to be trained, without detours."""
    ways: dict[int, int] = {}
    for step in missing:
        before = [other for other in stored if other < step]
        if not before:
            raise _core.MissingError(
                f"nothing is stored before step {step} that it could be derived from",
                "the state at step 0 comes from the job: record the run again",
            )
        ways[before[-1]] = step
    return sorted(ways.items())


def _name(step: int, branch: int) -> str:
    # As in docs/format.md.
    return f"checkpoints/step-{step}{f'.b{branch}' if branch else ''}.safetensors"
