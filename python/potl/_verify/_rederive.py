# SPDX-License-Identifier: Apache-2.0
"""`rederive`: trains the states again that a run has recorded and does not store, or not any more.

Claims: what it stores has the digest that the log binds, so a verifier sees no difference. Costs at
most one training; for the states of a challenge, the way to each from the stored state before it.
Assumes the arithmetic of the recording: the same machine and number of threads, or a reproducible
one; elsewhere the digests differ and nothing is stored.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .. import _core
from .._arithmetic import _rounded_steps
from .._base import _executors, _imports
from .._base._errors import MismatchError, UsageError
from .._base._progress import Progress, track
from .._job._agreement import job_of, open_checked
from .._record._inputs import read_note, run_directory
from ._challenge import Challenge, as_challenge, root_of

if TYPE_CHECKING:
    from .._task._task import Task


@dataclass(frozen=True, kw_only=True)
class Rederivation:
    """What was derived.

    Attributes:
        steps: Steps whose states are stored again, ascending.
        trained: Number of steps that were trained for it.
    """

    steps: tuple[int, ...]
    trained: int


def rederive(
    run: str | os.PathLike[str],
    *,
    task: Callable[[], Task] | str,
    challenge: Challenge | str | os.PathLike[str] | None = None,
    progress: Progress = None,
) -> Rederivation:
    """Stores all missing checkpoints of a run, or those that a challenge or the job asks for.

    Each is trained from the stored state before it, and kept only if it has the recorded digest.
    In exact arithmetic one that has not, such as a NaN, may be followed by others that have.

    Args:
        run: The run directory.
        task: `build` of the task that was recorded, or "module:function".
        challenge: What the verifier drew (`potl.challenge`), or its file: only those states, and
            those that the job has stored and that were lost.
        progress: None for a bar when stderr is a terminal, a bool, or a function of (done, total).

    Returns:
        The steps whose states were stored, and how many steps were trained.

    Raises:
        JobMismatch: The task is not that of the run's job.
        MismatchError: A state comes out with other bits than were recorded. In exact arithmetic all
            others are stored, in stock arithmetic those before it.
        MissingError: The state at step 0 is not there.
        UsageError: The challenge is not about this run as it was committed to, or about a job that
            has every checkpoint stored.
    """
    directory = run_directory(run)
    build = _executors.load_task(task) if isinstance(task, str) else task
    _imports.close(directory)
    evidence = _core.Evidence.open(str(directory), job=None, commitment=None)
    missing = {int(one["step"]): one for one in evidence.missing_checkpoints()}
    if challenge is not None:
        wanted = _wanted(as_challenge(challenge), evidence, directory)
        # A state that the job stores, and that was lost, rejects whatever is drawn.
        missing = {
            step: one
            for step, one in missing.items()
            if step in wanted or evidence.job.is_checkpoint(step)
        }
    stored = sorted(int(one["step"]) for one in evidence.checkpoints())
    ways = _ways(stored, sorted(missing))
    total = sum(last - first for first, last in ways)
    if total == 0 and not missing:
        return Rederivation(steps=(), trained=0)
    done, others = 0, list[int]()
    rounding = _Followed(evidence) if evidence.job.arithmetic == _rounded_steps.LOG64 else None
    with (
        open_checked(build, job_of(evidence.job, evidence)) as session,
        track("deriving", total, progress) as advance,
        session.active(),
    ):
        for first, last in ways:
            session.restore(evidence.load_state(first))
            for step, _, batch in session.batches(first + 1, last):
                follow = None if rounding is None else rounding.of(step)
                session.run_step(step, batch, rounding=follow)
                if step in missing:
                    state = session.capture()
                    if state.digest() == missing[step]["state"]:
                        state.save(str(directory / _name(step, int(missing[step]["branch"]))))
                    else:
                        others.append(step)
                        # A NaN is the processor's, and may pass: the states behind it are owed.
                        if not session.is_reproducible:
                            raise _other_bits(others)
                done += 1
                if advance is not None:
                    advance(done)
    if others:
        raise _other_bits(others)
    return Rederivation(steps=tuple(sorted(missing)), trained=done)


def _other_bits(steps: list[int]) -> MismatchError:
    more = f" (and those of {len(steps) - 1} later ones)" if len(steps) > 1 else ""
    return MismatchError(
        f"the state of step {steps[0]}{more} comes out with other bits than were recorded",
        "derive it on the machine and with the number of threads that recorded it; in exact "
        "arithmetic only the bits of a NaN depend on them",
    )


class _Followed:
    """Rounds as the recorded rounding logs say, which on this machine may not come by itself."""

    def __init__(self, evidence: _core.Evidence) -> None:
        self._evidence = evidence
        self._auditor = _rounded_steps.Auditor()

    def of(self, step: int) -> _rounded_steps.Rounding:
        committed = self._evidence.rounding_digest(step)
        log = b"" if committed is None else self._evidence.load_rounding_log(step)
        self._auditor.expect(log, committed)
        return self._auditor


def _wanted(challenge: Challenge, evidence: _core.Evidence, directory: Path) -> set[int]:
    """The steps that a challenge asks for, once it is sure that it may."""
    job = evidence.job
    if challenge.job != job.id:
        raise UsageError(
            "the challenge is about another job",
            "ask the client for the one that was drawn for this run",
        )
    if job.store_every == 0:
        raise UsageError(
            "the job has every checkpoint stored: nothing is derived on demand"
            + (
                ", and in stock arithmetic a state need not come out with the recorded bits"
                if job.arithmetic == "stock"
                else ""
            ),
            "leave the challenge out to bring back what was pruned",
        )
    note = directory / _core.COMMITMENT_NAME
    if not note.is_file():
        raise UsageError("the run has no commitment", "answer challenges after potl commit only")
    if root_of(read_note(note)) != challenge.root or evidence.commitment_digest != challenge.root:
        raise UsageError("the challenge is about another commitment", "")
    return set(challenge.states)


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
    # As in docs/format/transcript.md.
    return f"checkpoints/step-{step}{f'.b{branch}' if branch else ''}.safetensors"
