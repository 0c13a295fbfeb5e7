# SPDX-License-Identifier: Apache-2.0
"""`SpotCheck`: the trusted side of a spot-checked training."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from .. import _core
from .._base._errors import StorageError, UnsupportedError, UsageError
from .._base._progress import Progress, track
from .._job._agreement import open_checked, open_unchecked
from .._job._gradient_norm import GradientNorm
from .._record._inputs import as_job
from .._record._run import write_model
from .._report._value import Report
from ._coarse import CoarseGradients
from ._gradients import (
    LEAST_SHARE,
    MARGIN,
    Gradients,
    bytes_of,
    clipped,
    settle_statistics,
    spread,
    weights_of,
)
from ._guarded import CLIP_SLACK, Folder, Guarded
from ._plan import Plan, plan
from ._responses import clip_of_job
from ._worker import Key, Worker, secret

if TYPE_CHECKING:
    from typing_extensions import Self

    from .._job._job import Job
    from .._task._task import Task

_log = logging.getLogger("potl")

# Beyond this share of the clip a tolerance is nobody's choice: much of what a gradient may be
# passes.
_MOST_SHARE = 0.25
# A worker that was started at the same time imports torch first.
_START_SECONDS = 60.0
_PATIENCE_SECONDS = 2.0
_MEASURED_STEPS = 3
# Batches over which running statistics are averaged at the end.
_STATISTICS_STEPS = 50


class SpotCheck:
    """Trains with a worker that nobody has to trust.

    The job is read from the client's own copy; seed, batches, clipping, weights and update are the
    guard's own. The worker only returns gradients, and of some steps, drawn in secret after the
    report, the guard computes the gradient again.

    Args:
        build: Makes the agreed task.
        job: What was agreed: a `potl.Job` or its file. Its optimizers must be `torch.optim.SGD`.
        key: The secret that both sides share: 16 bytes or more, or a file that holds them.
        path: A folder of yours in which the training is kept, to go on after a restart; None keeps
            it in memory.
        probability: With which the certificate holds.
        steps_at_risk: So many false steps are caught, wherever they are. Unless a displacement is
            given, a tenth of the steps, but at most 100.
        displacement: Or: how far (l2) false gradients may move the weights.
        clip: Largest l2 norm of a step's gradient; None for the job's `grad_clip`.
        tolerance: l2 distance of clipped gradients that passes, below the clip. None compares bits
            in a reproducible arithmetic, and measures the rounding of this machine in stock
            arithmetic.
        segment: Steps that become final together; None for the job's `checkpoint_every`.
        lag: Segments that may be unchecked before the training waits for the checks.
        timeout: Seconds that the worker has for one gradient.

    Raises:
        JobMismatch: `build` is not the job's.
        UnsupportedError: No checks reach the goal, nothing bounds how far a gradient moves the
            weights, honest ways of computing are too far apart for a check, or a step cannot be
            split into gradient and update.
        UsageError: Arguments that do not go together; a folder of another training, or in which
            another guard ends one.

    Example:
        >>> guard = potl.SpotCheck(build, job=job, key=secret)  # doctest: +SKIP
        >>> report = guard.train("tcp://gpu.example:7070")  # doctest: +SKIP
        >>> report.verdict  # doctest: +SKIP
        'accepted'
    """

    def __init__(
        self,
        build: Callable[[], Task],
        *,
        job: Job | str | os.PathLike[str],
        key: Key,
        path: str | os.PathLike[str] | None = None,
        probability: float = 0.999,
        steps_at_risk: int | None = None,
        displacement: float | None = None,
        clip: float | None = None,
        tolerance: float | None = None,
        segment: int | None = None,
        lag: int = 4,
        timeout: float = 60.0,
    ) -> None:
        self._job = as_job(job)
        self._key = secret(key)
        self._segment = self._job.core.checkpoint_every if segment is None else segment
        self._lag = lag
        self._timeout = timeout
        self._background = True  # tests have both sides in one process
        self._clip = _agreed_clip(self._job, clip)
        if steps_at_risk is None and displacement is None:
            steps_at_risk = min(100, max(1, self._job.steps // 10))
        folder = None if path is None else Folder(Path(path))
        kept = None if folder is None else folder.read()
        self._session = open_checked(build, self._job)
        self._checker = open_unchecked(build, self._job)
        try:
            _require_sgd(self._session.task)
            self._session.task.grad_clip = self._clip
            gradients = Gradients(self._session)
            self._checking = Gradients(self._checker)
            if tolerance is None:
                tolerance = kept["options"]["tolerance"] if kept else self._measured()
            self._tolerance = tolerance
            self._plan = plan(
                self._job,
                clip=CLIP_SLACK * self._clip,
                probability=probability,
                displacement=displacement,
                steps_at_risk=steps_at_risk,
                tolerance=tolerance,
            )
            self._require_weights_alone(gradients)
            self._guarded = Guarded(
                self._session,
                gradients,
                job=self._job.core,
                clip=self._clip,
                options={
                    "probability": probability,
                    "displacement": self._plan.certificate.displacement,
                    "clip": self._clip,
                    "tolerance": tolerance,
                },
                folder=folder,
            )
            if self.is_finished:
                with self._guarded.alone():
                    self._settle()  # who was stopped at the very end had not done that
        except BaseException:
            self.close()
            raise

    @property
    def task(self) -> Task:
        """The task that is trained: `guard.task.model` has the weights."""
        return self._session.task

    @property
    def plan(self) -> Plan:
        """How often each step is checked, and what that guarantees."""
        return self._plan

    @property
    def tolerance(self) -> float:
        """l2 distance of clipped gradients that passes."""
        return self._tolerance

    @property
    def final_step(self) -> int:
        """Steps that are final."""
        return self._guarded.final_step

    @property
    def is_finished(self) -> bool:
        """Whether all of them are."""
        return self.final_step == self._job.steps

    def train(
        self, worker: str | Worker, *, until: int | None = None, progress: Progress = None
    ) -> Report:
        """Trains from the last final step to the end, or until the session has to end.

        When a check fails, the worker is gone, or you interrupt, the weights are those of the last
        final step. Call it again with this or another worker to go on from there.

        Args:
            worker: Where it listens, "unix:/path" or "tcp://host:port"; or a `Worker` of this
                process, which is then checked between the segments.
            until: Pause after this step, for example to evaluate the model; None goes to the end.
            progress: None for a bar when stderr is a terminal, a bool, or a function of (done,
                total).

        Returns:
            Accepted: every step is final. Rejected: a gradient was false; the finding says in which
            step and tensor. Inconclusive: the training did not reach its end, and nobody is
            accused.

        Raises:
            StorageError: Nobody listens at that address.
            UsageError: The training is that far already, or another guard trains in the folder.
        """
        total = self._job.steps if until is None else until
        if not self.final_step < total <= self._job.steps:
            raise UsageError(
                f"{self.final_step} of {self._job.steps} steps are final already",
                "name a later step; of a finished training, save_model() writes the weights",
            )
        with self._guarded.alone():
            return self._train(worker, total, progress)

    def _train(self, worker: str | Worker, total: int, progress: Progress) -> Report:
        with track("training", total, progress) as advance:

            def told(step: int, final_step: int) -> None:
                if advance is not None:
                    advance(step)

            if isinstance(worker, Worker):
                found = self._with_own(worker, total, told)
            else:
                socket = _connected(worker)
                found = self._guard(socket, total, told, background=self._background)
        stopped_before = self._guarded.stopped
        if found.end in ("caught", "doubtful", "diverged"):
            self._guarded.count_stopped()
        if found.end in ("finished", "paused"):
            self._settle()
        return self._report(found, stopped_before)

    def save_model(self, path: str | os.PathLike[str]) -> None:
        """Writes the parameters and buffers of the last final step as plain safetensors."""
        write_model(self._guarded.final, path)

    def close(self) -> None:
        """Lets go of the tasks."""
        self._session.close()
        self._checker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _with_own(
        self, worker: Worker, until: int, told: Callable[[int, int], None]
    ) -> _core.SpotCheckSession:
        mine, its = _core.SpotCheckSocket.pair()
        # Both sides take turns, so that only one of them draws from torch's generators at a time.
        answering = threading.Thread(
            target=worker._answer, args=(its, self._key, self._timeout), daemon=True
        )
        answering.start()
        try:
            return self._guard(mine, until, told, background=False)
        finally:
            answering.join()

    def _guard(
        self,
        socket: _core.SpotCheckSocket,
        until: int,
        told: Callable[[int, int], None],
        *,
        background: bool,
    ) -> _core.SpotCheckSession:
        return _core.spot_check_guard(
            socket,
            key=self._key,
            job=self._job.core.text,
            training=self._guarded,
            checker=CoarseGradients(self._checking, self._job),
            probabilities=self._plan.probabilities.tolist(),
            clip=self._clip,
            tolerance=self._tolerance,
            segment=self._segment,
            lag=self._lag,
            timeout=self._timeout,
            until=until,
            background=background,
            told=told,
        )

    def _report(self, found: _core.SpotCheckSession, stopped_before: int) -> Report:
        options: dict[str, object] = {
            "probability": self._plan.certificate.probability,
            "clip": self._clip,
            "tolerance": self._tolerance,
            "segment": self._segment,
            "lag": self._lag,
        }
        return Report(
            _core.spot_check_report(
                found,
                job=self._job.core,
                certificate=self._plan.certificate,
                stopped_before=stopped_before,
                context={
                    "software": f"potl {_core.version()}",
                    "seconds": found.check_seconds,
                    "costs": {"spot_check": found.check_seconds},
                    "checks": [{"check": "spot_check", "options": options}],
                },
            )
        )

    def _settle(self) -> None:
        settle_statistics(self._session, _STATISTICS_STEPS)
        self._guarded.replace_final()

    def _require_weights_alone(self, gradients: Gradients) -> None:
        """Refuses a task whose step reads an average, running statistics, or what else a step
        changes beside the parameters: neither a worker nor a check has it, and both would be wrong
        alike.
        """
        if self._job.steps < 2:
            return
        session = self._session
        first, buffers = session.capture(), [*session.task.model.buffers()]
        kept = [one.clone() for one in buffers]
        loss, found = session.gradients(1, session.sample_ids(1))
        session.apply(1, found, loss)
        _, found = session.gradients(2, session.sample_ids(2))
        for buffer, before in zip(buffers, kept, strict=True):
            buffer.copy_(before)  # which no update changes
        apart = self._computed(2)
        session.restore(first)
        own = bytearray(len(apart))
        gradients.write(found, 2, memoryview(own))
        both = [torch.frombuffer(one, dtype=torch.float32) for one in (own, apart)]
        distance = float((clipped(both[0], self._clip) - clipped(both[1], self._clip)).norm())
        # Both are computed here, in the same way: they differ by less than another machine's.
        if own != apart and not distance <= self._tolerance / 4:
            raise UnsupportedError(
                "the gradient of step 2 depends on more than the weights that step 1 leaves",
                "a worker gets the weights only: let no step read an average, running statistics, "
                "an optimizer, or a number that another step left",
            )

    def _computed(self, step: int) -> bytearray:
        """The gradient that the checker has, at the present weights."""
        out = bytearray(4 * sum(elements for _, elements in self._checking.tensors))
        self._checking.gradient(step, self._weights(), 0, memoryview(out))
        return out

    def _weights(self) -> memoryview:
        return memoryview(b"".join(bytes_of(weights_of(self._session.task))))

    def _measured(self) -> float:
        """The tolerance of this job: 0 where bits are the same everywhere."""
        if self._checker.is_reproducible:
            return 0.0
        weights = self._weights()
        steps = range(1, min(_MEASURED_STEPS, self._job.steps) + 1)
        furthest = max(spread(self._checking, one, weights, self._clip)[1] for one in steps)
        if not MARGIN * furthest <= _MOST_SHARE * self._clip:
            raise UnsupportedError(
                f"two honest ways of computing move gradients of this task {furthest:.3g} apart, "
                f"and {MARGIN} times that is more than a quarter of the clip, {self._clip:g}: a "
                "check would pass much that nobody computed",
                'agree on arithmetic="auto", in which bits are compared; or keep norms out of '
                "autocast, sort with stable=True, and give pack_padded_sequence what is sorted so, "
                "with enforce_sorted=True; or pass tolerance=, and read in the plan what stays "
                "below it",
            )
        return max(LEAST_SHARE * self._clip, MARGIN * furthest)


def _connected(address: str) -> _core.SpotCheckSocket:
    try:
        return _core.SpotCheckSocket.connect(address, _PATIENCE_SECONDS)
    except StorageError:
        _log.warning("waiting for a worker at %s", address)
        return _core.SpotCheckSocket.connect(address, _START_SECONDS)


def _agreed_clip(job: Job, clip: float | None) -> float:
    agreed = clip_of_job(job)
    if clip is None and agreed is None:
        raise UsageError(
            "nothing limits the gradients",
            "pass clip= (--clip), the largest norm of a step's gradient, or agree grad_clip= in "
            "the task",
        )
    if clip is not None and agreed is not None and clip != agreed:
        raise UsageError(f"clip is {clip}, and the job agreed {agreed}", "leave clip out")
    found = agreed if clip is None else clip
    assert found is not None
    return found


def _require_sgd(task: Task) -> None:
    for optimizer in task.optimizers:
        if type(optimizer) is not torch.optim.SGD:
            raise UnsupportedError(
                f"there is no certificate for {type(optimizer).__name__}",
                "train with torch.optim.SGD itself",
            )
        hooks = (
            *optimizer._optimizer_step_pre_hooks.values(),
            *optimizer._optimizer_step_post_hooks.values(),
        )
        if any(not isinstance(getattr(hook, "__self__", None), GradientNorm) for hook in hooks):
            raise UnsupportedError(
                "there is no certificate for an optimizer with hooks: they come after the clip",
                "remove them: gradients may be changed in Task.compute_loss or in hooks of the "
                "parameters, and a loop of your own may log",
            )
    # What two updates move goes twice as far as the plan counts.
    moved = [
        parameter
        for optimizer in task.optimizers
        for group in optimizer.param_groups
        for parameter in group["params"]
    ]
    spans = sorted((one.data_ptr(), one.data_ptr() + one.nbytes) for one in moved)
    if any(end > begin for (_, end), (begin, _) in pairwise(spans)):
        raise UnsupportedError(
            "there is no certificate for weights that a step moves twice",
            "give each parameter to one optimizer, once, and let no two share memory",
        )
