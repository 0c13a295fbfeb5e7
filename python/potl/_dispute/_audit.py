# SPDX-License-Identifier: Apache-2.0
"""`audit`: repeats a run in full, and compares it step by step, also while it is still trained."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from .. import _core
from .._arithmetic import _rounded_steps
from .._base import _executors, _imports
from .._base._durable import state_folder
from .._base._errors import MissingError, PotlError, StorageError, UnsupportedError, UsageError
from .._base._nonce import Nonce, as_nonce
from .._base._progress import Progress, track
from .._record import _keys
from .._record._inputs import as_note, as_own_job, run_directory
from .._record._prover import Prover, Step
from .._record._run import Commitment, Run
from .._remote._follow import Followed, followed
from .._remote._remote import AnyRun, Remote, as_remote, opened
from ._rounding_logs import Difference, TrainersLogs
from ._work import CODES, WorkLog

if TYPE_CHECKING:
    from .._job._job import Job
    from .._task._task import Task

# Of a log at once. Many times the longest record, and little beside a state.
_PIECE = 1 << 20
# How often a growing log is looked at.
_POLL_SECONDS = 0.2

CHANGED = "the run's log changed while it was read"


@dataclass(frozen=True, kw_only=True)
class AuditDifference:
    """The first place where a run and its repetition part.

    Attributes:
        step: 0 before the first step.
        field: "initial state", "samples", "learning rates", "rounding log", "loss", "skipped
            update", "state", or "record" of a step that the trainer recorded again after a resume.
        sentence: With both values, where they can be read.
    """

    step: int
    field: str
    sentence: str


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What came of repeating a run.

    Attributes:
        agrees: True: every step of the job has the same bits, and the log is that of the
            commitment, where one was given. False: it differs, or its log is not that of an
            agreed run. None: the run is not finished, so that nothing is decided beyond `steps`;
            its log changed while it was read; or it differs where the agreed steps diverge, because
            the bits of a NaN are the processor's.
        steps: From the first step on, so many are the same.
        difference: The first one, if there is one.
        reason: A sentence.
        log: The auditor's own run directory.
        commitment: The auditor's own, once it repeated all steps; what a dispute needs.
        seconds: Time on the clock; loading the task not counted.
        key: The auditor's signing key, as it was given.
        finish: Repeats the rest, also after a difference: a dispute needs all of it.
    """

    agrees: bool | None
    steps: int
    difference: AuditDifference | None
    reason: str
    log: Path
    commitment: Commitment | None
    seconds: float
    key: str | os.PathLike[str] | _core.SigningKey | None = field(repr=False)
    finish: Callable[[], Audit] = field(repr=False)


def audit(
    run: AnyRun,
    *,
    job: Job | str | os.PathLike[str],
    task: Callable[[], Task] | str,
    log: str | os.PathLike[str] | None = None,
    key: str | os.PathLike[str] | _core.SigningKey | None = None,
    commitment: object = None,
    follow: bool = False,
    timeout: float = 600.0,
    to_the_end: bool = False,
    nonce: Nonce | None = None,
    progress: Progress = None,
) -> Audit:
    """Repeats a run from its first step, and compares every step with the trainer's log.

    The repetition is recorded like a run, in `log` and under the auditor's key, so that a referee
    can compare both. Interrupted, it goes on when it is called again.

    Args:
        run: The trainer's run directory, or where it is (a URL, `potl.Remote`). Nothing is
            imported from it.
        job: The client's own: what was agreed.
        task: `build`, or "module:function".
        log: Directory of the repetition; a new one, or that of an interrupted audit of yours: what
            is there is not repeated again. None: one in `audits` of your state directory
            (`XDG_STATE_HOME`), the same whenever this run of this job is audited; `Audit.log` names
            it.
        key: The auditor's signing key, created when there is none; None keeps one in `log`.
        commitment: The trainer's, if it has committed already: then the log must be the one that
            it signed.
        follow: Waits for steps that are still to be trained.
        timeout: Seconds that a followed log may stay as it is.
        to_the_end: Repeats all steps of the job also after a difference, to commit to them: a
            dispute is about two whole runs.
        nonce: 32 bytes that a client drew, their hexadecimal digits, or a file of those: a code
            over each state is signed, with which the client sees that the work was done
            (`check_audit`).
        progress: None for a bar when stderr is a terminal, a bool, or a function of (done, total).

    Returns:
        Whether the run is the agreed one, bit for bit.

    Example:
        >>> audit = potl.audit("runs/1", job=job, task=build)  # doctest: +SKIP
        >>> audit.agrees, audit.reason  # doctest: +SKIP

    Raises:
        UnsupportedError: The arithmetic is one in which honest machines differ.
        JobMismatch: The task does not match the job, or this machine ends its first steps in other
            states.
        MalformedError, MismatchError: The log is none, or not that of this job.
        MissingError: There is no log, although it was waited for (`follow`).
        UsageError: There is no run there, and `follow` is not given.
        StorageError: A run elsewhere is not reached, or not any more when `timeout` is over; or
            the state directory has no place for the repetition.
        InternalError: This machine computes a step in two ways.
    """
    agreed = as_own_job(job, run)
    log = _own_place(run, agreed) if log is None else Path(log)
    finish = functools.partial(
        audit,
        run,
        job=agreed,
        task=task,
        log=log,
        key=key,
        commitment=commitment,
        to_the_end=True,
        nonce=nonce,
        progress=progress,
    )
    with followed(run, job=agreed.core, timeout=timeout if follow else 0.0) as place:
        if not follow and place.remote is None:
            run_directory(place.directory)  # otherwise it may still come
        return _audited(
            place,
            job=agreed,
            task=task,
            log=log,
            key=key,
            commitment=commitment,
            follow=follow,
            timeout=timeout,
            to_the_end=to_the_end,
            nonce=nonce,
            progress=progress,
            finish=finish,
        )


def _audited(
    place: Followed,
    *,
    job: Job,
    task: Callable[[], Task] | str,
    log: Path,
    key: str | os.PathLike[str] | _core.SigningKey | None,
    commitment: object,
    follow: bool,
    timeout: float,
    to_the_end: bool,
    nonce: Nonce | None,
    progress: Progress,
    finish: Callable[[], Audit],
) -> Audit:
    began = time.monotonic()
    directory = place.directory
    _imports.close(directory)
    _require_exact(job.core.arithmetic)
    if log.resolve() == directory.resolve():
        raise UsageError("the run and its repetition have one directory", "name another log")
    build = _executors.load_task(task) if isinstance(task, str) else task
    pair = _Pair(job.core, directory, log)
    wait = timeout if follow else 0.0
    pair.wait_for_log(wait)
    own, note = _finished(log, job, key), None if commitment is None else as_note(commitment)
    work = None if nonce is None else WorkLog(log, job.core, as_nonce(nonce))
    if own is None:
        if work is None and (log / CODES).exists():
            raise UsageError("the repetition was begun under a nonce", "pass the same one")
        repeater = _Repeater(build, log, job=job, key=key)
        repeater.work = work
        kept = contextlib.nullcontext() if work is None else contextlib.closing(work)
        repeater.follow(pair.rounding_logs)
        with kept, repeater, track("auditing", job.core.steps, progress) as advance:
            repeated = repeater.repeat()
            began = time.monotonic()  # the task is built
            while repeater.next_step <= job.core.steps:
                differs = pair.differs()  # of what another thread has written by now
                if not differs and not pair.has_step(repeater.next_step, 0.0):
                    # Nothing that was repeated is left to compare while it waits for the trainer.
                    repeater.flush()
                    differs = pair.differs()
                found = pair.difference
                # One step more: its record says whether the state that differs is finite.
                if found is not None and not to_the_end and repeater.next_step > found.step + 1:
                    break
                if not differs and not pair.has_step(repeater.next_step, wait):
                    break
                if not pair.brings_log(repeater.next_step, 0.0 if differs else wait):
                    break
                step = next(repeated)
                if advance is not None:
                    advance(step.number)
            repeater.flush()
        if repeater.next_step > job.core.steps:
            own = repeater.run.commit()
    if work is not None:
        work.sign(_keys.for_run(key, log), note)
    pair.compare()
    if place.remote is not None and pair.is_open:
        place.check()  # otherwise it would look as if the run went no further
    agrees, reason = pair.outcome(note, place.remote)
    return Audit(
        agrees=agrees,
        steps=pair.agreed_steps,
        difference=pair.difference,
        reason=reason,
        log=log,
        commitment=own,
        seconds=time.monotonic() - began,
        key=key,
        finish=finish,
    )


def _own_place(run: AnyRun, job: Job) -> Path:
    """Where a repetition lies of which nobody said where: not in a folder that may have come with
    the run, because who delivers a repetition that is finished has nothing repeated.
    """
    remote = as_remote(run)
    if remote is None:
        where = str(Path(getattr(run, "path", run)).resolve())  # type: ignore[arg-type]
    else:
        where = remote.url.rstrip("/")
    name = _core.sha256(job.id + where.encode("utf-8", "surrogateescape")).hex()[:16]
    try:
        place = state_folder() / "audits" / name
        _core.create_directory(str(place.parent))
    except (PotlError, RuntimeError) as error:  # RuntimeError: nobody's home
        remedy = "name a directory of your own with log= (--log), or set XDG_STATE_HOME"
        raise StorageError(f"there is no place for the repetition: {error}", remedy) from error
    return place


class _Repeater(Prover):
    """Records like a prover, under a key that is not the trainer's.

    Attributes:
        work: Where codes of the states go, if a client gave a nonce.
    """

    work: WorkLog | None = None

    _logs: TrainersLogs | None = None

    def follow(self, logs: TrainersLogs | None) -> None:
        """The trainer's rounding logs (log64)."""
        self._logs = logs

    def _rounding(self) -> _rounded_steps.Logging:
        assert self._logs is not None
        return self._logs

    def _choose_key(
        self, key: str | os.PathLike[str] | _core.SigningKey | None, check_job: bool
    ) -> _core.SigningKey:
        chosen = _keys.for_run(key, self._directory)
        if chosen.public_key.raw == self._job.trainer:
            raise UsageError("this is the trainer's own key", "give the auditor a key of its own")
        return chosen

    def _see(self, step: int, state: _core.State) -> None:
        if self.work is not None:
            self.work.see(step, state)

    def _sees_states(self) -> bool:
        return self.work is not None

    def _tell_unfinished(self) -> None:
        """The audit's reason says why it stopped, often on purpose."""

    @property
    def next_step(self) -> int:
        """The step that is repeated next."""
        return self._next

    def repeat(self) -> Iterator[Step]:
        """Steps, without anybody's code between them."""
        self._open_session()
        self._loop = self._steps(contextlib.nullcontext)
        return self._loop


def _finished(
    log: Path, job: Job, key: str | os.PathLike[str] | _core.SigningKey | None
) -> Commitment | None:
    """The commitment of a repetition that came to its end before."""
    if not (log / _core.LOG_NAME).exists() or not _core.inspect_run(str(log))["closed"]:
        return None
    if Run(log).job.id != job.id:
        raise UsageError(f"{log} holds a repetition of another job", "name another log")
    return Run(log).commit(key=key)


class _Heard:
    """Which bytes of a log were compared: a log that is read again has to be this one."""

    def __init__(self) -> None:
        self._records, self._rest = hashlib.sha256(), b""

    def take(self, more: bytes, size: int) -> None:
        """Whole records of `size` bytes, and what no record ends in yet."""
        self._records.update(more[:size])
        self._rest = more[size:]

    def is_all_of(self, run: _core.Evidence) -> bool:
        """Whether a run's log is what was heard, once there was no more to hear."""
        whole = self._records.copy()
        whole.update(self._rest)
        return run.log_digest == whole.digest()


class _Pair:
    """Both logs, as far as they are written."""

    def __init__(self, job: _core.Job, run: Path, own: Path) -> None:
        self._job = job
        self._run, self._own = run, own
        self._both = _core.Repetition(job)
        self._heard, self._heard_own = _Heard(), _Heard()
        self.rounding_logs: TrainersLogs | None = None
        if job.arithmetic == _rounded_steps.LOG64:
            self.rounding_logs = TrainersLogs(self._both, self._read, own)

    def wait_for_log(self, timeout: float) -> None:
        """Until the trainer's log is there."""
        until = time.monotonic() + timeout
        while not (self._run / _core.LOG_NAME).exists():
            if time.monotonic() >= until:
                raise MissingError(
                    f"there is no transcript.log in {self._run}", "name a run directory"
                )
            time.sleep(_POLL_SECONDS)

    def has_step(self, step: int, timeout: float) -> bool:
        """Whether the trainer recorded a step; waits for it while its log grows."""
        if self.rounding_logs is not None:
            self._hear_all()  # the log of a step is that of its last record
        deadline = time.monotonic() + timeout
        while self._both.heard_steps < step:
            before = self._both.position
            self._hear()
            if self._both.position != before:
                deadline = time.monotonic() + timeout
            elif self._both.is_closed or time.monotonic() >= deadline:
                return False
            else:
                time.sleep(min(_POLL_SECONDS, max(0.0, deadline - time.monotonic())))
        return True

    def brings_log(self, step: int, timeout: float) -> bool:
        """Whether the step can be repeated: in log64 nothing is without the trainer's log."""
        logs = self.rounding_logs
        return logs is None or (self.has_step(step, timeout) and logs.fetch(step, timeout))

    def differs(self) -> bool:
        """Whether a difference is known; both logs are looked at as far as they go."""
        if self._both.own_position >= self._both.position:
            self._hear()  # first: of a step that is only repeated little is kept
        self._hear_own()
        return self._difference is not None

    def compare(self) -> None:
        """Reads both to their ends."""
        before = None
        while before != (before := (self._both.position, self._both.own_position)):
            self._hear()
            self._hear_own()
        if self.rounding_logs is not None:
            self.rounding_logs.settle()

    @property
    def agreed_steps(self) -> int:
        found, agreed = self._difference, self._both.agreed_steps
        return agreed if found is None else min(agreed, max(found[0] - 1, 0))

    @property
    def _difference(self) -> Difference | None:
        logs = self.rounding_logs
        return self._both.difference if logs is None else logs.difference()

    @property
    def difference(self) -> AuditDifference | None:
        found = self._difference
        if found is None:
            return None
        return AuditDifference(step=found[0], field=found[1], sentence=found[2])

    @property
    def other_rounding(self) -> int | None:
        """The first step that was recorded again with another rounding log than was followed."""
        return self._both.other_rounding

    @property
    def is_open(self) -> bool:
        """Whether nothing is decided by what was heard."""
        return self._both.difference is None and not self._both.is_closed

    def outcome(self, note: str | None, remote: Remote | None) -> tuple[bool | None, str]:
        """Whether the run is the agreed one, and why."""
        both, steps, found = self._both, self._job.steps, self._difference
        if found is not None and found[1] == "state" and self._diverged(found[0]):
            return None, (
                f"{found[2]}; the agreed steps make numbers there that are not finite, whose bits "
                "are the processor's: no verifier accepts such a run"
            )
        if found is not None:
            return False, found[2]
        if self.other_rounding is not None:
            return None, (
                f"step {self.other_rounding} was recorded again with another rounding log than "
                "this repetition followed: repeat the run in a new log"
            )
        if both.agreed_steps < steps or not both.is_closed:
            return None, f"the run's log has {both.heard_steps} of {steps} steps, all of them alike"
        with opened(self._run if remote is None else remote, self._job) as place:
            where = str(place.directory)
            evidence = _core.Evidence.open(where, job=self._job, commitment=note, fetch=place.fetch)
            return self._judged(evidence, note)

    def compared(self, run: _core.Evidence, own: _core.Evidence) -> bool:
        """Whether both logs, as they were read again, are those that were compared."""
        return self._heard.is_all_of(run) and self._heard_own.is_all_of(own)

    def _judged(self, evidence: _core.Evidence, note: str | None) -> tuple[bool | None, str]:
        """The same of a finished run that differs in no step."""
        steps = self._job.steps
        # First: what another log says of the run was repeated by nobody, and rejects nobody.
        own = _core.Evidence.open(str(self._own), job=None, commitment=None)
        if not self.compared(evidence, own):
            return None, CHANGED
        for finding in evidence.findings():
            if finding.result == "reject":
                return False, finding.reason
        if evidence.steps()["state"] != own.steps()["state"] or self._other_logs(evidence, own):
            return None, CHANGED
        same = f"all {steps} steps are the same, bit for bit"
        for finding in evidence.findings():
            if finding.result == "inconclusive":  # what no verifier accepts
                return None, f"{same}, but {finding.reason}"
        signed = "" if note is None else ", and the commitment is that of its log"
        return True, f"{same}{signed}"

    def _diverged(self, step: int) -> bool:
        own = _core.Evidence.open(str(self._own), job=None, commitment=None)
        return own.has_diverged_by(step)

    def _other_logs(self, run: _core.Evidence, own: _core.Evidence) -> bool:
        """Whether the run as it is judged binds other rounding logs than were followed."""
        if self.rounding_logs is None:
            return False
        steps = range(1, self._job.steps + 1)
        return any(run.rounding_digest(one) != own.rounding_digest(one) for one in steps)

    def _hear_all(self) -> None:
        before = None
        while before != (before := self._both.position):
            self._hear()

    def _hear(self) -> None:
        before = self._both.position
        more = self._read(_core.LOG_NAME, before, _PIECE)
        self._both.hear(more)
        self._heard.take(more, self._both.position - before)

    def _read(self, name: str, position: int, size: int) -> bytes:
        return _part(self._run / name, position, size)

    def _hear_own(self) -> None:
        before = self._both.own_position
        more = _part(self._own / _core.LOG_NAME, before, _PIECE)
        self._both.hear_own(more)
        self._heard_own.take(more, self._both.own_position - before)


def _part(path: Path, position: int, size: int) -> bytes:
    """What a file holds from a place on; nothing where it is not there yet."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return b""
    except OSError as error:
        remedy = "links in a run directory are not followed" if path.is_symlink() else ""
        raise StorageError(f"{path} cannot be read: {error.strerror}", remedy) from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UsageError(f"{path} is not a regular file", "")
        return os.pread(descriptor, size, position)
    finally:
        os.close(descriptor)


def _require_exact(arithmetic: str) -> None:
    if arithmetic == "stock":
        raise UnsupportedError(
            "in stock arithmetic an honest repetition differs, too",
            'verify with potl.Replay, or agree on a job with arithmetic="ord32"',
        )
