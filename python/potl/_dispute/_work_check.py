# SPDX-License-Identifier: Apache-2.0
"""`check_audit`: did the auditor repeat the steps, or copy their digests?"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from .. import _core
from .._arithmetic import _rounded_steps
from .._base import _executors, _imports
from .._base._errors import MalformedError, MismatchError, MissingError, UsageError
from .._base._nonce import Nonce, as_nonce
from .._base._progress import Progress, track
from .._base._public_key import public_key
from .._job._agreement import job_of, open_checked, open_unchecked
from .._job._first_steps import ends_here, other_bits
from .._record._inputs import as_note, as_own_job, require_file, run_directory
from ._audit import CHANGED, _Pair, _require_exact
from ._rounding_logs import OwnLogs
from ._work import read_signed_codes

if TYPE_CHECKING:
    from typing_extensions import Self

    from .._job._job import Job
    from .._job._session import Session
    from .._record._inputs import Recorded
    from .._task._task import Task


@dataclass(frozen=True, kw_only=True)
class AuditCheck:
    """What came of checking an auditor's codes.

    Attributes:
        worked: True: all steps of the job were repeated, and all codes that were drawn are those
            of the states. False: one is not, or the log names a state that the step does not end
            in. None: nothing can be said, or the logs are not alike up to the job's last step.
        reason: A sentence.
        steps: The steps whose codes were compared, ascending.
        population: From so many steps they were drawn: those that both logs have alike, and whose
            state the trainer does not give away.
        hidden: So many would be drawn from if the run was repeated to its end, and the trainer gave
            away no other states than the job says.
        covered: The last step that both logs have alike.
        auditor: The public key that signed, in hexadecimal.
        seconds: Time on the clock.
    """

    worked: bool | None
    reason: str
    steps: tuple[int, ...]
    population: int
    hidden: int
    covered: int
    auditor: str
    seconds: float = field(compare=False)

    def seen(self, share: float) -> float:
        """The probability that an auditor who left out this share of the job's `hidden` steps
        would have been seen. Those that could not be drawn count as left out first.
        """
        if not self.steps or not share > 0:
            return 0.0
        left_out = max(1, int(min(share, 1.0) * self.hidden * (1 + 1e-12)))
        false = left_out - (self.hidden - self.population)
        if false <= 0:
            return 0.0
        # Half a step more: rounded down, it is that number again.
        return _core.strength(self.population, len(self.steps), (false + 0.5) / self.population)


def check_audit(
    log: str | os.PathLike[str] | Recorded,
    *,
    run: str | os.PathLike[str] | Recorded,
    job: Job | str | os.PathLike[str],
    task: Callable[[], Task] | str,
    nonce: Nonce,
    steps: int = 20,
    commitment: object = None,
    auditor: _core.PublicKey | str | os.PathLike[str] | None = None,
    progress: Progress = None,
) -> AuditCheck:
    """Checks that whoever made the log of an audit repeated the run.

    Draws steps, now that the auditor has signed a code over each state, computes their states from
    the nearest stored ones, and compares the codes.

    Args:
        log: The auditor's directory, made by `audit(..., nonce=)`.
        run: The trainer's run directory, for its stored states.
        job: The client's own: what was agreed.
        task: `build`, or "module:function".
        nonce: What the client gave to the auditor: 32 bytes, their hexadecimal digits, or a file.
        steps: How many are drawn.
        commitment: The trainer's: if the auditor signed for one, it must be this.
        auditor: The public key of whom the client hired; None takes the one in the log.
        progress: None for a bar when stderr is a terminal, a bool, or a function of (done, total).

    Example:
        >>> found = potl.check_audit(  # doctest: +SKIP
        ...     "audits/1", run="runs/1", job=job, task=build, nonce="nonce.txt"
        ... )
        >>> found.worked, found.seen(0.2)  # doctest: +SKIP

    Raises:
        MissingError: There are no codes, or they are not signed.
        MalformedError, MismatchError: A log is damaged or of another job; the codes are damaged, or
            signed by another key or for another nonce or commitment.
        JobMismatch: The task does not match the job.
    """
    began = time.monotonic()
    if steps < 1:
        raise UsageError(f"{steps} steps show nothing", "draw at least 1")
    agreed, secret = as_own_job(job, run), as_nonce(nonce)
    _require_exact(agreed.core.arithmetic)
    target, directory = run_directory(log), run_directory(run)
    for one in (target, directory):
        _imports.close(one)
    pair = _Pair(agreed.core, directory, target)
    pair.compare()
    key = _key_of(target, auditor)
    if key.raw == agreed.core.trainer:
        raise MismatchError("the codes are to be those of the auditor, and this is the trainer")
    note = None if commitment is None else as_note(commitment)
    codes, root = read_signed_codes(target, agreed.core, secret, key, note)
    covered, ends = _alike(pair, agreed.core.steps)
    # What is said of the strength is about these, whatever the logs hold: both belong to others.
    agreed_hidden = [
        one for one in range(1, agreed.core.steps + 1) if not agreed.core.is_checkpoint(one)
    ]

    def result(
        worked: bool | None, reason: str, compared: Sequence[int] = (), population: int = 0
    ) -> AuditCheck:
        return AuditCheck(
            worked=worked,
            reason=reason,
            steps=tuple(compared),
            population=population,
            hidden=len(agreed_hidden),
            covered=covered,
            auditor=key.raw.hex(),
            seconds=time.monotonic() - began,
        )

    if covered == 0:
        return result(None, ends)
    if len(codes) < covered:
        return result(False, f"the codes end with step {len(codes)}, the log goes on to {covered}")
    evidence = [
        _core.Evidence.open(str(directory), job=agreed.core, commitment=None),
        _core.Evidence.open(str(target), job=None, commitment=None),
    ]
    if not pair.compared(*evidence):
        return result(None, CHANGED)
    build = _executors.load_task(task) if isinstance(task, str) else task
    given = {row["step"] for row in evidence[0].checkpoints()}
    hidden = [one for one in agreed_hidden if one <= covered and one not in given]
    if not hidden:
        return result(
            None,
            ends
            or "the trainer stores the state after every step, so that a code over one takes no "
            "work",
        )
    count = min(steps, len(hidden))
    places = _core.draw_without_replacement(
        _core.fresh_nonce(), root, "potl.work", len(hidden), count
    )
    compared: list[int] = []
    with (
        _Deriver(build, agreed.core, evidence) as deriver,
        track("checking the auditor's work", count, progress) as advance,
    ):
        for done, step in enumerate(sorted(hidden[place] for place in places), 1):
            found = deriver.code(step, secret)
            if found.problem:
                return result(found.worked, found.problem, compared, len(hidden))
            if found.code != codes[step - 1]:
                return result(
                    False,
                    f"the code of step {step} is not that of its state",
                    compared,
                    len(hidden),
                )
            if found.changed:
                compared.append(step)
            if advance is not None:
                advance(done)
    if not compared:
        return result(None, "no step that was drawn changed the state", compared, len(hidden))
    right = (
        f"the codes of {len(compared)} steps, drawn from {len(hidden)}, are those of their states"
    )
    if ends:
        return result(None, f"{ends}; {right}", compared, len(hidden))
    return result(True, right, compared, len(hidden))


def _alike(pair: _Pair, steps: int) -> tuple[int, str]:
    """The last step up to which both logs are alike, and why that is not the job's last one."""
    covered, differs, other = pair.agreed_steps, pair.difference, pair.other_rounding
    if differs is not None:
        # A step that the trainer recorded twice may differ before the last one that is alike.
        covered = min(covered, max(0, differs.step - 1))
    if other is not None:
        covered = min(covered, max(0, other - 1))
    if covered == steps:
        return covered, ""
    if differs is not None:
        return covered, f"the logs differ at step {differs.step}: settle that by a dispute"
    if other is not None:
        return covered, f"step {other} was recorded again with another rounding log: repeat it"
    return covered, f"repeated {covered} of {steps} steps"


@dataclass(frozen=True, kw_only=True)
class _Derived:
    """A code of the client's own, or why there is none, and what that says of the auditor."""

    code: bytes = b""
    changed: int = 0
    problem: str = ""
    worked: bool | None = None


class _Deriver:
    """Executes drawn steps, ascending, from the nearest stored states that both logs name.

    Args:
        build: Of the agreed task.
        job: What was agreed.
        runs: The trainer's and the auditor's.
    """

    def __init__(
        self,
        build: Callable[[], Task],
        job: _core.Job,
        runs: Sequence[_core.Evidence],
    ) -> None:
        self._build, self._job, self._runs = build, job, runs
        self._stored = sorted(
            (row["step"], i) for i, one in enumerate(runs) for row in one.checkpoints()
        )
        self._session: Session | None = None
        # The step after which the session's state is.
        self._at: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._close()

    def code(self, step: int, nonce: bytes) -> _Derived:
        """Of a step, compared with what the auditor's log names."""
        states = self._states(step)
        if states is None:
            return _Derived(problem=f"no state before step {step} can be read")
        named = self._runs[1].state_digest(step)
        if states[1].digest() != named:
            # Before anybody is blamed, from the beginning and in a session of its own.
            self._close()
            again = self._states(step)
            if again is None or again[1].digest() != states[1].digest():
                return _Derived(problem=f"step {step} comes out in two ways on this machine")
            with open_unchecked(self._build, job_of(self._job, self._runs[0])) as fresh:
                other = other_bits(self._job, ends_here(fresh, self._job))
            if other:
                return _Derived(problem=other)
            problem = f"step {step} does not end in the state that the logs name"
            if found := _core.not_finite(states[1], states[0]):
                return _Derived(
                    problem=f"{problem}, but it is not finite here: {found}, and the bits of a NaN "
                    "are the processor's"
                )
            return _Derived(problem=problem, worked=False)
        code, changed = _core.work_code(nonce, self._job.id, step, *states)
        return _Derived(code=code, changed=changed)

    def _states(self, step: int) -> tuple[_core.State, _core.State] | None:
        """Before and after a step."""
        start = self._restore(step)
        self._at = None
        if start is None:
            return None
        session, rounding = self._session, None
        assert session is not None
        if self._job.arithmetic == _rounded_steps.LOG64:
            rounding = OwnLogs(self._runs[0])
        with session.active():
            for at, _, batch in session.batches(start + 1, step):
                before = session.capture() if at == step else None
                follow = None if rounding is None else rounding.of(at)
                session.run_step(at, batch, rounding=follow)
            assert before is not None
            self._at = step
            return before, session.capture()

    def _restore(self, step: int) -> int | None:
        """Makes a session hold the latest state before a step; says which one it is."""
        if self._session is None:
            self._session = open_checked(self._build, job_of(self._job, self._runs[0]))
            for one in self._runs:
                one.expect_state_bytes(self._session.capture().nbytes)
        session = self._session
        for at, run in reversed(self._stored):
            if at >= step:
                continue
            if self._at is not None and at <= self._at < step:
                return self._at
            try:
                state = self._runs[run].load_state(at)
            except (MissingError, MalformedError, MismatchError):
                continue
            with session.active():
                session.restore(state)
            return at
        return None

    def _close(self) -> None:
        if self._session is not None:
            self._session.close()
        self._session = self._at = None


def _key_of(log: Path, known: _core.PublicKey | str | os.PathLike[str] | None) -> _core.PublicKey:
    if isinstance(known, _core.PublicKey):
        return known
    if known is not None:
        require_file(known, "key")
        return public_key(known)
    recorded = _core.inspect_run(str(log))["trainer"]
    if recorded is None:
        raise MalformedError(f"the log in {log} names no key", "")
    return _core.PublicKey.from_raw(bytes.fromhex(recorded))
