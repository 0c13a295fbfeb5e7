# SPDX-License-Identifier: Apache-2.0
"""`monitor`: replays drawn segments of a run while it is still trained.

Claims: the segments are drawn once among all of the job, by a nonce that stays here (decision 45),
and each is replayed as `verify` does as soon as it is recorded. Costs: the steps of those segments,
once. Cannot see: what is trained, or changed, after it looked; so it never accepts.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .. import _core
from .._arithmetic import _rounded_steps
from .._base import _executors, _imports
from .._base._errors import (
    MalformedError,
    MismatchError,
    MissingError,
    PotlError,
    StorageError,
    UsageError,
)
from .._base._printable import printable
from .._checks._checks import Replay
from .._job._agreement import open_checked
from .._record._inputs import as_own_job
from .._remote._growing import Growing, growing
from .._remote._remote import AnyRun, as_remote
from .._report._value import Finding, Report
from ._ledger import Memory
from ._questions import Questions, given
from ._schema import Schema
from ._verify import reproduce
from ._workload import Workload

if TYPE_CHECKING:
    from .._job._job import Job
    from .._job._session import Session
    from .._task._task import Task

_log = logging.getLogger("potl")

# Longer than any training, and what every system can wait.
_MOST_SECONDS = 100_000_000

# That a trainer can make in as many looks as it likes.
_MOST_DOUBTS = 100

# Tried once more.
_OWN_TROUBLE = ("verifier_error", "unrepeatable")

_Rejection = tuple[str, str, int | None, int | None]

_INTERIM = (
    "the run was looked at while it was trained, and its record can still change; when it has "
    "ended, verify it with the trainer's commitment (potl verify)"
)


@dataclass(frozen=True, kw_only=True)
class Look:
    """One look at a run.

    Attributes:
        step: The last step that is recorded; 0 before the first.
        steps: Steps of the job.
        judged: What came of the segments that were replayed in this look, with their cost in
            `details`.
        report: What all looks found so far; None if this one could not judge.
        waits_for: Why it could not, in a sentence; "" if it could.
    """

    step: int
    steps: int
    judged: tuple[Finding, ...] = ()
    report: Report | None = None
    waits_for: str = ""


def monitor(
    run: AnyRun,
    *,
    job: Job | str | os.PathLike[str],
    task: Callable[[], Task] | str,
    samples: int | None = None,
    every: float = 30.0,
    timeout: float | None = None,
    on_look: Callable[[Look], None] | None = None,
) -> Report:
    """Replays segments of a run while it is still trained.

    The first segment, the last one, superseded ones and `samples` others are replayed, each as soon
    as it is recorded. It ends when the trainer closes the run, or when a rejection is found twice:
    in two replays of what the log binds, or else in two looks and nothing was in order between
    them.

    Args:
        run: The run directory, a URL or a `potl.Remote`. It need not be there yet.
        job: The client's own copy of what was agreed.
        task: The client's own `build`, or "module:function".
        samples: Segments drawn at random, as of `Replay`; None: as many as `Replay` draws.
        every: Seconds between two looks.
        timeout: Seconds after which it ends, once a look that has begun is over. None: it watches
            to the end of the run, however long nobody answers.
        on_look: Is told of each look. None: what it waits for is logged.

    Returns:
        The report of the last look. It never accepts: the record can change until the trainer
        commits to it.

    Raises:
        JobMismatch: The task is not that of the job.
        UsageError: A number is out of range, or a server does not know who asks.
        MalformedError: In two looks in a row there was no log that can be read.
        LimitError: The run has more files, or a longer log, than its job can make.
        MissingError, StorageError: Nothing was recorded, or nobody answered, until `timeout`.
    """
    _executors.require_own_call("monitor a run")
    options = given(_chosen(samples).options())
    _require_seconds("every", every)
    if timeout is not None:
        _require_seconds("timeout", timeout)
    agreed = as_own_job(job, run)
    if as_remote(run) is None:
        _imports.close(Path(getattr(run, "path", run)))  # type: ignore[arg-type]
    build = _executors.load_task(task) if isinstance(task, str) else task
    until = None if timeout is None else time.monotonic() + timeout
    with growing(run, agreed.core) as place, open_checked(build, agreed) as session:
        again = reproduce(
            place.name,
            [
                *([] if place.remote is None else place.remote._flags()),
                ("--job", job),
                ("--commitment", object()),  # there is none yet
            ],
            task=task,
            more=[],
        )
        watch = _Watch(place, session, agreed.core, options, again)
        is_late, waits_for = False, ""
        while True:
            found = watch.look()
            if on_look is not None:
                on_look(found)
            elif found.waits_for not in ("", waits_for):
                _log.warning("the monitor waits: %s", printable(found.waits_for))
            waits_for = found.waits_for
            was_late, is_late = is_late, until is not None and time.monotonic() >= until
            # What may be wrong is looked at once more, however late it is.
            if watch.ended or (is_late and (was_late or not watch.is_undecided)):
                return watch.result()
            left = every if until is None or is_late else until - time.monotonic()
            time.sleep(max(0.0, min(every, left)))


class _Watch:
    """What is known of a run that grows."""

    def __init__(
        self,
        place: Growing,
        session: Session,
        job: _core.Job,
        options: dict[str, object],
        again: str,
    ) -> None:
        self._place, self._session, self._job = place, session, job
        self._asked, self._again = ("replay", options), again
        self._nonce = _core.fresh_nonce()
        # Of the last look that could judge.
        self._evidence: _core.Evidence | None = None
        self._findings: list[_core.Finding] = []
        self._report: Report | None = None
        self._workload: Workload | None = None
        self._schema: Schema | None = None
        self._known: dict[tuple[object, ...], _core.AnyMeasurement] = {}
        self._failed: set[tuple[object, ...]] = set()
        self._told: set[tuple[object, object]] = set()
        self._doubts: dict[_Rejection, _core.Finding] = {}
        self._suspected: dict[_Rejection, str] = {}
        self._trouble: PotlError | None = None
        self._step = 0
        self._seconds = self._spent = 0.0
        self.ended = False

    @property
    def is_undecided(self) -> bool:
        """Whether the next look decides about what the last one found."""
        return bool(self._suspected) or isinstance(self._trouble, (MalformedError, MismatchError))

    def result(self) -> Report:
        """What the looks came to."""
        if self._report is not None:
            return self._report
        raise self._trouble or StorageError(
            f"in each of two looks something else was wrong with {self._place.name}",
            "watch it again",
        )

    def look(self) -> Look:
        """Looks once."""
        began = time.perf_counter()
        try:
            evidence = self._opened()
        except (MissingError, StorageError) as error:
            self._trouble = error
        except (MalformedError, MismatchError) as error:
            if type(error) is type(self._trouble):
                self._end_with(error)
            self._trouble = error
        else:
            self._trouble = None
            return self._judged(evidence, began)
        return Look(
            step=self._step,
            steps=self._job.steps,
            report=self._report if self.ended else None,
            waits_for=str(self._trouble),
        )

    def _end_with(self, error: PotlError) -> None:
        if self._evidence is None or isinstance(error, MalformedError):
            raise error
        self._findings.append(_finding("inconclusive", str(error)))
        self._conclude()
        self.ended = True

    def _opened(self) -> _core.Evidence:
        here = self._place.look(afresh=bool(self._suspected))
        evidence = _core.Evidence.open(
            str(here.directory), job=self._job, commitment=None, fetch=here.fetch
        )
        self._place.keep(here, evidence.log_bytes)
        if not evidence.closed and not evidence.steps()["step"]:
            raise MissingError(f"no step of {self._place.name} is recorded yet", "")
        return evidence

    def _judged(self, evidence: _core.Evidence, began: float) -> Look:
        failed = len(self._failed)
        steps = evidence.steps()
        findings = self._found(evidence, steps)
        rejections = _rejections(findings)
        bound = {one: why for one, why in rejections.items() if self._is_bound(evidence, one)}
        if bound:
            # Replayed again from what is here: nobody gets out of it by serving no more.
            self._forget(bound)
            self._suspected = {**self._suspected, **bound}
            findings = self._found(evidence, steps)
            rejections = _rejections(findings)
        self._step = max(steps["step"], default=0)
        self._seconds += time.perf_counter() - began
        stands = not self._suspected.keys().isdisjoint(rejections)
        # Something else in each look is no doubt: a trainer may withhold a state in every second.
        is_over = stands or not rejections
        for gone in self._suspected.keys() - rejections.keys() if is_over else ():
            _, _, first, last = gone
            reason = (
                f"found once and not again: {self._suspected[gone]}. A file may have been read "
                "while it was written, or this machine computes the same in two ways"
            )
            if len(self._doubts) < _MOST_DOUBTS:
                self._doubts[gone] = _finding("inconclusive", reason, first, last)
        if stands:
            # What else rejects was not looked at twice.
            for one in findings:
                if one.result == "reject" and _named(one) not in self._suspected:
                    one.result = "inconclusive"
        self._suspected = {} if is_over else {**self._suspected, **rejections}
        if self._suspected:
            self._forget(rejections)
            reason = next(iter(rejections.values()))
            waits_for = f"what may be wrong is looked at once more: {reason}"
            return Look(step=self._step, steps=self._job.steps, waits_for=waits_for)
        self._evidence, self._findings = evidence, findings
        # What could not be judged for the first time is tried once more.
        self.ended = stands or (evidence.closed and len(self._failed) == failed)
        report = self._conclude()
        news = self._news(report)
        return Look(step=self._step, steps=self._job.steps, judged=news, report=report)

    def _found(self, evidence: _core.Evidence, steps: _core.StepColumns) -> list[_core.Finding]:
        """What the audit and the replays find."""
        questions = Questions(evidence, [self._asked], self._nonce, Memory(), screen=False)
        replayer: _core.Replayer | None = None

        def measured(request: _core.Request) -> _core.AnyMeasurement:
            nonlocal replayer
            # After a resume, the same segment may have other records, those of its start included.
            place = slice(max(request.from_step - 1, 0), request.from_step + request.steps)
            recorded: list[object] = [steps["state"][place], steps["loss"][place]]
            if isinstance(request, _core.SegmentRequest) and request.superseded:
                recorded += evidence.superseded_steps().values()
            key = (request.key(), _core.sha256(repr(recorded).encode()))
            if key in self._known:
                return self._known[key]
            with self._session.active():
                replayer = replayer or self._replayer(evidence)
                found = replayer.answer(request)
            self._spent += found.spent
            if found.status not in _OWN_TROUBLE or key in self._failed:
                self._known[key] = found
            else:
                self._failed.add(key)
            return found

        seen: list[_core.AnyMeasurement] = []
        for request in questions.requests:
            seen.append(measured(request))
            if questions.settled_by(seen[-1]):
                break
        answers = questions.answers(seen, lambda more: [measured(one) for one in more])
        return evidence.findings() + questions.judge(answers)

    def _replayer(self, evidence: _core.Evidence) -> _core.Replayer:
        if self._schema is None or self._workload is None:
            self._schema = Schema(self._session, evidence)
            follows = self._job.arithmetic == _rounded_steps.LOG64
            self._workload = Workload(
                self._session, self._schema, follows=follows, own_job=self._job
            )
        self._schema.go_on(evidence)
        return _core.Replayer(evidence, self._workload, timeout=None, derive=True)

    def _forget(self, rejections: Iterable[_Rejection]) -> None:
        """Replays of steps of which one rejects are not believed."""
        for one in rejections:
            for key in self._replays_of(one):
                del self._known[key]

    def _replays_of(self, rejection: _Rejection) -> dict[tuple[object, ...], _core.AnyMeasurement]:
        check, _, first, last = rejection
        # What the record itself lacks is no reason: a trainer may take it away at every look.
        if check != self._asked[0]:
            return {}
        return {
            key: one
            for key, one in self._known.items()
            if first is None
            or last is None
            or (first <= one.request.end and one.request.start < last)
        }

    def _is_bound(self, evidence: _core.Evidence, rejection: _Rejection) -> bool:
        """Whether what was read for it has the digests that the log binds: no other bytes will."""
        replays = self._replays_of(rejection).values()
        return bool(replays) and all(self._is_sound(evidence, one) for one in replays)

    def _is_sound(self, evidence: _core.Evidence, found: _core.AnyMeasurement) -> bool:
        if found.status != "tampered":
            return found.status != "withheld"
        # A file is not as recorded, or all are and a state that is derived is not.
        request = found.request
        if request.superseded or self._job.arithmetic == _rounded_steps.LOG64:
            return False
        stored = [one["step"] for one in evidence.checkpoints() if one["step"] <= request.end]
        begin = max((step for step in stored if step <= request.start), default=0)
        try:
            for step in stored:
                if step >= begin:
                    evidence.load_state(step)
        except PotlError:
            return False
        return True

    def _conclude(self) -> Report:
        assert self._evidence is not None
        name, options = self._asked
        context: _core.ReportContext = {
            # The nonce decides what is looked at from here on: nobody is told.
            "nonce": "",
            "reproduce": self._again,
            "software": f"potl {_core.version()}",
            "seconds": self._seconds,
            "costs": {name: self._spent},
            "checks": [{"check": name, "options": options}],
        }
        findings = [*self._findings, *self._doubts.values(), _finding("note", _INTERIM)]
        # It never accepts, so that no strength is missing.
        policy: _core.Options = {"min_random_segments": 1, "probability": 0}
        text = _core.conclude(self._evidence, findings, policy=policy, context=context)
        self._report = Report(text)
        return self._report

    def _news(self, report: Report) -> tuple[Finding, ...]:
        news = []
        for one in report.findings:
            place = (one.details.get("segment"), one.details.get("why"))
            if "replay_seconds" in one.details and place not in self._told:
                self._told.add(place)
                news.append(one)
        return tuple(sorted(news, key=lambda one: one.first_step or 0))


def _rejections(findings: Iterable[_core.Finding]) -> dict[_Rejection, str]:
    return {_named(one): one.reason for one in findings if one.result == "reject"}


def _named(one: _core.Finding) -> _Rejection:
    return one.check, one.rule, one.first_step, one.last_step


def _finding(
    result: _core.Outcome, reason: str, first: int | None = None, last: int | None = None
) -> _core.Finding:
    return _core.Finding(
        check="verifier", result=result, reason=reason, first_step=first, last_step=last
    )


def _chosen(samples: int | None) -> Replay:
    # What looks at all stored states looks at the whole run, in the end.
    if samples is None:
        return Replay(top_q=0, reach=0.0)
    most = next(f.get("high") for f in _core.check_fields("replay") if f["name"] == "samples")
    if not 0 <= samples <= (most or 0):
        raise UsageError(f"samples is {samples}", f"pass a number from 0 to {most:,.0f}")
    return Replay(samples=samples, top_q=0, reach=0.0)


def _require_seconds(name: str, seconds: float) -> None:
    if not 0 <= seconds <= _MOST_SECONDS:
        raise UsageError(f"{name} is {seconds}", f"pass seconds, from 0 to {_MOST_SECONDS:,}")
