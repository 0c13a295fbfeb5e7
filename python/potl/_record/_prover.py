# SPDX-License-Identifier: Apache-2.0
"""The prover's loop: trains with the agreed randomness and records every step."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

from .. import _core
from .._arithmetic import _rounded_steps
from .._base._errors import JobMismatch, NotReplayable, UsageError
from .._base._executors import require_own_call
from .._job._agreement import open_checked, open_unchecked
from .._job._first_steps import end_of, why_other_end
from .._job._late_forms import FIRST_STEPS, LateForms
from .._job._structure import Structure
from .._task._schedule import same_rates, unscheduled
from . import _keys
from ._inputs import as_job
from ._layer_options import LayerOptions
from ._run import Run
from ._same_data import SameData
from ._untouched import Untouched

if TYPE_CHECKING:
    from typing_extensions import Self

    from .._job._job import Job
    from .._job._session import Session
    from .._task._task import Task

_log = logging.getLogger("potl")


class Step(NamedTuple):
    """A recorded step.

    Attributes:
        number: 1 for the first update.
        epoch: 0 for the first epoch.
        loss: Mean loss of the batch before the update.
        rates: Learning rate of every parameter group.
        skipped: Whether a gradient scaler skipped the update.
        finite: Whether loss and gradients were finite.
    """

    number: int
    epoch: int
    loss: float
    rates: tuple[float, ...]
    skipped: bool
    finite: bool


class Prover:
    """Records a run while the caller owns the loop.

    The step itself is always `Task.step`, because the same function must train and replay; the body
    of the loop may log, evaluate or stop early. It runs with the caller's own random state, and
    with the modules' train flags as the next step needs them afterwards.

    Example:
        >>> with potl.Prover(build, "runs/2", job=job) as prover:  # doctest: +SKIP
        ...     for step in prover.steps():
        ...         print(step.number, step.loss)
        >>> commitment = prover.run.commit()  # doctest: +SKIP

    Arguments and errors are those of `record`, which also takes `progress` and `group`.

    Raises:
        NotReplayable: The body of the loop left something changed that the next step begins with.
    """

    def __init__(
        self,
        build: Callable[[], Task],
        run: str | os.PathLike[str],
        *,
        job: Job | str | os.PathLike[str] | None = None,
        key: str | os.PathLike[str] | _core.SigningKey | None = None,
        seed: int | None = None,
        checkpoint_every: int | str | None = None,
        check_job: bool = True,
    ) -> None:
        require_own_call("record a run")
        self._build = build
        if not os.fspath(run):
            raise UsageError("the run has no name", "name a directory, which may be a new one")
        self._directory = Path(run)
        self._resuming = _core.holds_run(str(self._directory))
        self._agreed = self._choose_job(job, seed, checkpoint_every)
        self._job = self._agreed.core
        self._key = self._choose_key(key, check_job)
        self._check_job = check_job
        self._ends = self._job.first_steps() if check_job else []
        self._next = 1
        self._told_not_finite = False
        self._late: LateForms | None = None  # not after a resume: who began saw the first steps
        self._structure: Structure | None = None
        self._layers: LayerOptions | None = None
        self._same: SameData | None = None
        self._untouched: Untouched | None = None  # where a body of the caller's could change it
        self._loop: Generator[Step, None, None] | None = None
        self._session: Session | None = None
        self._recorder: _core.Recorder | None = None
        self._telemetry: _core.TelemetrySampler | None = None

    # ------------------------------------------------------------------ what the caller uses

    @property
    def run(self) -> Run:
        """The run directory as a value; `commit()` works once the last step is recorded."""
        return Run(self._directory, key=self._key)

    @property
    def task(self) -> Task:
        """The task that is trained, to evaluate its model between steps."""
        return self._open_session().task

    @property
    def total(self) -> int:
        """Steps of the job."""
        return self._job.steps

    def steps(self) -> Iterator[Step]:
        """Trains and records; yields after every step.

        After a resume it starts with the first step that is not kept.

        Raises:
            UsageError: In `torch.inference_mode()`, which the loop could not put back.
        """
        import torch

        if torch.is_inference_mode_enabled():
            raise UsageError(
                "steps() is called in torch.inference_mode()",
                "enter it in the body of the loop, around what evaluates",
            )
        session = self._open_session()
        self._untouched = Untouched(session) if self._check_job else None
        self._loop = self._steps(self._between_steps)
        return self._loop

    def run_to_the_end(self, told: Callable[[int], None] | None = None) -> None:
        """Trains and records all steps without code of the caller's between them, which is
        faster.
        """
        self._open_session()
        for step in self._steps(contextlib.nullcontext):
            if told is not None:
                told(step.number)

    def _between_steps(self) -> contextlib.AbstractContextManager[None]:
        return self._open_session()._user_code()

    def _steps(
        self, between: Callable[[], contextlib.AbstractContextManager[None]]
    ) -> Generator[Step, None, None]:
        session, recorder, telemetry = self._session, self._recorder, self._telemetry
        structure = self._structure
        assert session is not None and recorder is not None and telemetry is not None
        assert structure is not None
        job, last = self._job, self._last_step(session)
        rounding = self._rounding() if job.arithmetic == _rounded_steps.LOG64 else None
        with session.active():
            for number, ids, batch in session.batches(self._next, last):
                began = time.perf_counter_ns()
                result = session.run_step(number, batch, rounding=rounding)
                duration = time.perf_counter_ns() - began
                agreed = job.rates_at(number) if self._check_job else None
                if agreed is not None and not same_rates(result.rates, agreed):
                    raise NotReplayable(unscheduled(number, result.rates, agreed))
                if result.non_finite and not result.skipped:
                    self._tell_not_finite(number)
                epoch = job.epoch_of(number)
                # A state that is stored, or the last one, has been compared byte by byte.
                whole = job.is_checkpoint(number) or number == last
                after: _core.State | bytes | None = None
                if not whole and not self._sees_states():
                    after = session._digest_there()
                if after is None:
                    after = session.capture(keep=True, whole=whole)
                    self._see(number, after)
                if whole or number <= FIRST_STEPS:
                    shown = after if isinstance(after, _core.State) else session.capture()
                    structure.require(number, shown)
                    if self._check_job:
                        session._require_restorable(shown)
                    if self._late is not None:
                        self._late.see(number, shown)
                    if whole and self._same is not None:
                        self._same.see(number, shown)
                    if whole and self._layers is not None:
                        self._layers.see(number)
                if number <= len(self._ends):
                    self._require_end(number, end_of(after, result.loss))
                recorder.append_step(
                    after,
                    step=number,
                    epoch=epoch,
                    sample_ids=ids,
                    loss=result.loss,
                    rates=result.rates,
                    random_draws=result.random_draws,
                    flags=(_core.SKIPPED if result.skipped else 0)
                    | (_core.NON_FINITE if result.non_finite else 0),
                    duration_ns=duration,
                    checkpoint=job.is_checkpoint(number),
                    rounding_log=None if rounding is None else rounding.log,
                )
                telemetry.mark_step(number, epoch)
                self._next = number + 1
                if self._untouched is not None:
                    self._untouched.look()
                with between():
                    yield Step(
                        number,
                        epoch,
                        result.loss,
                        tuple(result.rates),
                        result.skipped,
                        not result.non_finite,
                    )
                if self._untouched is not None and number < last:
                    self._untouched.require(number, after)

    def _require_end(self, step: int, end: str) -> None:
        if end != self._ends[step - 1]:
            with open_unchecked(self._build, self._agreed) as fresh:
                raise JobMismatch(why_other_end(fresh, self._job, step, end))

    def _tell_not_finite(self, step: int) -> None:
        if not self._told_not_finite:
            _log.warning(
                "the loss or a gradient of step %d is not finite: no verifier accepts such a run "
                "(stop here; for the next job, lower the learning rate or pass grad_clip=, and in "
                "float16 pass a scaler=, which leaves such steps out. If a batch has no loss, let "
                "your own step leave it out, and return a finite number, such as 0)",
                step,
            )
        self._told_not_finite = True

    def _see(self, step: int, state: _core.State) -> None:
        """Each state in turn, before it is recorded."""

    def _sees_states(self) -> bool:
        """Whether `_see` needs all of them, and not only those that are stored."""
        return False

    def _rounding(self) -> _rounded_steps.Logging:
        return _rounded_steps.Trainer()

    def publish(self) -> str:
        """Signs the log as it is now. A published note binds the prover: the commitment must
        extend it.
        """
        if self._recorder is None:
            raise UsageError("nothing is being recorded", "call publish() inside the with block")
        return self._recorder.publish()

    @property
    def acknowledged(self) -> int:
        """The last step that is durable: neither a crash nor a power cut loses it."""
        return 0 if self._recorder is None else self._recorder.acknowledged()

    def flush(self) -> None:
        """Waits until everything recorded so far is durable. Recording does that by itself, in the
        background.
        """
        if self._recorder is not None:
            self._recorder.flush()

    # ------------------------------------------------------------------ opening and closing

    def __enter__(self) -> Self:
        opened = open_checked if self._check_job else open_unchecked
        session = opened(self._build, self._agreed)
        try:
            self._begin(session)
        except BaseException:
            session.close()
            raise
        self._session = session
        return self

    def _begin(self, session: Session) -> None:
        import torch

        software = f"potl {_core.version()} torch {torch.__version__}"
        where = str(self._directory)
        self._layers = LayerOptions(session.task.model)
        if self._resuming:
            self._structure = Structure(session.task, session.capture())
            self._recorder, last, state = _core.Recorder.resume(
                where, self._job, self._key, software=software, past_limits=not self._check_job
            )
            session.restore(state)
            self._see(last, state)
            self._next = last + 1
            _log.info("resuming %s after step %d", where, last)
        else:
            self._recorder = _core.Recorder.create(where, self._job, self._key, software=software)
            state = session.capture(keep=True)
            self._see(0, state)
            self._structure = Structure(session.task, state)
            self._late = LateForms(session.task, session.schedule.varying)
            self._late.see(0, state)
            self._recorder.append_initial(state)
        if self._check_job and self._next <= self._job.steps:
            self._same = SameData(session, self._next, state, self._stored)
        self._telemetry = _core.TelemetrySampler(str(self._directory / _core.TELEMETRY_NAME))
        self._telemetry.start()

    def _stored(self, step: int) -> _core.State:
        self.flush()
        return _core.Evidence.open(str(self._directory), job=None, commitment=None).load_state(step)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._loop is not None:
            # The caller's randomness comes back even if the caller keeps the iterator.
            self._loop.close()
            self._loop = None
        recorder, telemetry, session = self._recorder, self._telemetry, self._session
        self._recorder = self._telemetry = self._session = None
        assert recorder is not None and telemetry is not None and session is not None
        try:
            telemetry.stop()
            last = self._last_step(session)
            session.close()
            if kind is None and self._next > last:
                recorder.close()
                return
        except BaseException:
            _abandon(recorder)
            raise
        _abandon(recorder)
        if kind is None:
            self._tell_unfinished()

    def _tell_unfinished(self) -> None:
        _log.warning(
            "%s stops after step %d of %d: it can be resumed, and cannot be committed yet",
            self._directory,
            self._next - 1,
            self._job.steps,
        )

    def _open_session(self) -> Session:
        if self._session is None:
            raise UsageError("the prover is not open", "use it in a with statement")
        return self._session

    def _last_step(self, session: Session) -> int:
        # A prover that lies may have a shorter training than the job.
        return self._job.steps if self._check_job else min(self._job.steps, session.task.steps)

    # ------------------------------------------------------------------ choices

    def _choose_job(
        self,
        job: Job | str | os.PathLike[str] | None,
        seed: int | None,
        checkpoint_every: int | str | None,
    ) -> Job:
        if job is not None:
            if seed is not None or checkpoint_every is not None:
                raise UsageError("seed and checkpoint_every are the job's", "leave them out")
            return as_job(job)
        if self._resuming:
            kept = _kept_job(self._directory)
            if seed is not None and kept.seed != seed:
                raise UsageError(
                    f"{self._directory} holds a run with seed {kept.seed}", "use another directory"
                )
            return kept
        if seed is None or checkpoint_every is None:
            raise UsageError(
                "recording needs a job, or seed and checkpoint_every to make one",
                "potl job create makes a job, and potl.Job.create: pass it as --job, or job=",
            )
        from .._job._job import Job

        return Job.create(self._build, seed=seed, checkpoint_every=checkpoint_every)

    def _choose_key(
        self, key: str | os.PathLike[str] | _core.SigningKey | None, check_job: bool
    ) -> _core.SigningKey:
        pinned = self._job.trainer
        if pinned is not None and check_job and not isinstance(key, _core.SigningKey):
            missing = "no key was given" if key is None else f"there is no {os.fspath(key)}"
            if key is None or not Path(key).exists():
                raise UsageError(
                    f"the job pins the trainer's key, and {missing}",
                    "pass the private key that belongs to the job's trainer: --key, or key=",
                )
        chosen_by = _keys.of_recorded if self._resuming else _keys.for_run
        chosen = chosen_by(key, self._directory)
        if pinned is not None and check_job and chosen.public_key.raw != pinned:
            raise UsageError(
                f"this is not the trainer's key: the job pins {pinned.hex()}, and the key given is "
                f"{chosen.public_key.raw.hex()}",
                "pass the private key that belongs to the job's trainer: --key, or key=",
            )
        return chosen


def _kept_job(directory: Path) -> Job:
    """The job of a run that is to be resumed, with its first state where the seed is not enough."""
    from .._job._job import Job

    core = as_job(directory / _core.JOB_NAME).core
    if core.fields()["initial_state"]["source"] != "file":
        return Job(core)
    first = directory / _core.checkpoint_entry(0, 0)
    return Job(core, initial=_core.State.load(str(first), core.initial_state))


def _abandon(recorder: _core.Recorder) -> None:
    # The caller's exception matters more than one from the writer, which the next resume meets
    # again.
    raised = sys.exc_info()[0] is not None
    try:
        recorder.abandon()
    except _core.PotlError:
        if not raised:
            raise
        _log.debug("the recorder could not write what was queued", exc_info=True)
