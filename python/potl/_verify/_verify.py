# SPDX-License-Identifier: Apache-2.0
"""`verify`: asks a recorded run for evidence, recomputes, and reports."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING

from .. import _core
from .._base import _arguments, _flags, _imports
from .._base._errors import UsageError
from .._base._executors import require_own_call, task_name
from .._base._nonce import Nonce, or_fresh
from .._base._progress import Progress
from .._checks import _registry
from .._checks._checks import AnyCheck, Policy
from .._record._inputs import as_note, as_notes, as_own_job, require_file
from .._remote._remote import AnyRun, opened
from .._report._value import Report
from . import _challenge, _extra_verify, _ledger
from ._answers import Answers
from ._questions import Question, Questions, given

if TYPE_CHECKING:
    from .._job._job import Job
    from .._record._run import Commitment
    from .._task._task import Task
    from ._challenge import Challenge

# Bytes of a checkpoint, where nothing of the verifier's says how large a state is.
_WITHOUT_TASK = 4 << 30


def verify(
    run: AnyRun,
    *,
    job: Job | str | os.PathLike[str] | None = None,
    commitment: Commitment | str | os.PathLike[str] | None = None,
    task: Callable[[], Task] | str | None = None,
    model: str | os.PathLike[str] | None = None,
    checks: Sequence[AnyCheck] | None = None,
    policy: Policy | None = None,
    nonce: Nonce | None = None,
    challenge: Challenge | str | os.PathLike[str] | None = None,
    published: Sequence[Commitment | str | os.PathLike[str]] = (),
    other_commitments: Sequence[Commitment | str | os.PathLike[str]] = (),
    ledger: str | os.PathLike[str] | bool | None = True,
    workers: int = 0,
    executor: Executor | None = None,
    timeout: float | None = None,
    max_checkpoint_bytes: int | None = None,
    progress: Progress = None,
) -> Report:
    """Checks that a run was trained as agreed.

    Args:
        run: The run as the prover delivered it: a directory, the URL of what `potl serve` serves or
            of storage, or a `potl.Remote`. Nothing in it is trusted.
        job: The verifier's own copy of what was agreed. Without it a run is never accepted.
        commitment: The prover's commitment, received before this call: its text or a file. Without
            it a run is never accepted.
        task: The verifier's own `build`, or "module:function". Without it nothing can be replayed.
        model: The delivered safetensors file; compared with the last committed state, bit for bit.
        checks: What to look at; None chooses telemetry, PEV and as many replays as the policy
            needs, and so does an `ExtraTask` alone, which comes on top of them.
        policy: How strong the evidence must be before the run can be accepted.
        nonce: 32 bytes (their hexadecimal digits, or a file of those) that the challenge is drawn
            from; None draws them now, which is right except for reproducing a report.
        challenge: What `potl.challenge` drew and the trainer answered, or its file: the same checks
            under the same nonce. For jobs with `store_every`: without one, states that are not
            stored are derived here, at up to `store_every` steps for each drawn segment.
        published: Notes that the prover published during training, or their files; the commitment
            must extend them.
        other_commitments: Notes that the prover showed elsewhere for this job, or their files; a
            second one rejects.
        ledger: Where the verifier remembers the challenges of this job, all of which are repeated.
            True: a file in the user's state directory (`XDG_STATE_HOME`), unless this very process
            signed the commitment; None: nowhere.
        workers: Processes that replay in parallel; the task must then be importable. 0 replays in
            this process.
        executor: Replays there instead; anything but threads and forked processes.
        timeout: Seconds that one replay may take with its repeats; beyond it the verdict is at best
            inconclusive.
        max_checkpoint_bytes: Largest checkpoint that is read; beyond it the verdict is at best
            inconclusive. None: twice the largest of the task's own first states, plus 64
            MiB; 4 GiB without a task.
        progress: None for a bar when stderr is a terminal, a bool, or a function of (done, total).

    Returns:
        The report. A bad run is a verdict, not an exception.

    Raises:
        JobMismatch: The verifier's task is not that of its own job, or its machine makes other
            batches.
        UsageError: Arguments that contradict each other.
        MalformedError: The run, the job or the commitment cannot be read at all.
        StorageError: Nobody answers at the URL.
    """
    began = time.perf_counter()
    require_own_call("verify a run")
    if max_checkpoint_bytes is not None and max_checkpoint_bytes < 0:
        raise UsageError(f"max_checkpoint_bytes is {max_checkpoint_bytes}", "pass bytes, or None")
    if max_checkpoint_bytes is None and task is None:
        max_checkpoint_bytes = _WITHOUT_TASK
    if model is not None:
        require_file(model, "model")  # not after an hour of replays
    agreed = None if job is None else as_own_job(job, run)
    own_job = None if agreed is None else agreed.core
    with opened(run, own_job) as place:
        # Before anything is imported for the checks.
        _imports.close(place.directory)
        note = None if commitment is None else as_note(commitment)
        shown = as_notes(other_commitments, "other_commitments")
        policy = Policy() if policy is None else policy
        chosen, extra = _registry.split(checks)
        answered = None if challenge is None else _challenge.as_challenge(challenge)
        memory_path = _ledger.path_for(ledger, own_job, commitment)
        known = _ledger.known_of(memory_path, own_job)
        if answered is not None:
            _challenge.require_own(answered, own_job, note, known)
            if chosen or nonce is not None or (checks is not None and not extra):
                raise UsageError(
                    "the challenge says which checks, and which nonce", "leave them out"
                )
        evidence = _core.Evidence.open(
            str(place.directory),
            job=own_job,
            commitment=note,
            published=as_notes(published, "published"),
            other_commitments=[one for one in (*shown, *known.commitments) if one != note],
            max_checkpoint_bytes=max_checkpoint_bytes,
            fetch=place.fetch,
        )
        if checks is None or (extra and not chosen):
            chosen = list(policy._checks(evidence.job))
        wanted = [(check.name, given(check.options())) for check in chosen]
        if answered is not None:
            wanted = [(name, dict(options)) for name, options in answered.checks]
        with Answers(
            place,
            evidence,
            job=agreed,
            note=note,
            task=task,
            workers=workers,
            executor=executor,
            timeout=timeout,
            max_checkpoint_bytes=max_checkpoint_bytes,
            derive=answered is None,
            progress=progress,
        ) as answers:
            # Drawn only now: the commitment has been read, and nothing of the run can change any
            # more.
            drawn = or_fresh(nonce) if answered is None else answered.nonce
            # What cannot be asked is refused here: once remembered it would be asked for ever.
            Questions(evidence, wanted, drawn, _ledger.Memory(), screen=False)
            if memory_path is not None and own_job is not None and evidence.committed:
                # Written before anything is asked, so that an aborted verification counts.
                entry = _ledger.new_challenge(
                    drawn,
                    wanted,
                    None if answered is None else answered.digest(),
                )
                compared = {*known.commitments, note}
                known = _ledger.remember(
                    memory_path, job_id=own_job.id, commitment=note, challenge=entry
                )
                if not compared.issuperset(known.commitments):
                    raise _ledger.changed(memory_path)
            questions = Questions(evidence, wanted, drawn, known, screen=task is not None)
            if answered is not None and not evidence.rejected:
                _challenge.require_asked(answered, questions.all, evidence)
            measured = answers.to(questions.requests, until=questions.settled_by)
            findings = evidence.findings() + _core.verifier_notes(
                evidence,
                nonce_given=nonce is not None or (answered is not None and answered.given_nonce),
                ledger=None if memory_path is None else str(memory_path),
                verified_before=bool(known.commitments),
                unknown=questions.unknown,
                not_looked_at=len(questions.requests) - len(measured),
            )
            answered_all = questions.answers(measured, answers.to)
            judged = [
                _extra_verify.judged(check, evidence, answers)
                for check in extra
                if not evidence.rejected
            ]
        findings += questions.judge(answered_all)
        for found, _ in judged:
            findings += found
        findings += _core.judge_model(
            evidence, None if model is None else os.fspath(model), answers.non_persistent_buffers()
        )
        asked: list[_core.AskedCheck] = [
            {"check": one.check, "options": dict(one.options)} for one in questions.all
        ]
        asked += [{"check": one.name, "options": one.options()} for one in extra]
        context: _core.ReportContext = {
            "nonce": drawn.hex(),
            "reproduce": reproduce(
                place.name,
                [
                    *([] if place.remote is None else place.remote._flags()),
                    # A challenge brings its nonce and its checks.
                    ("--challenge", challenge),
                    ("--job", job),
                    ("--commitment", commitment),
                    ("--model", model),
                    *[("--extra-task", check) for check in extra],
                    *[("--published", note) for note in published],
                    *[("--other-commitment", note) for note in other_commitments],
                    ("--ledger", ledger if isinstance(ledger, (str, os.PathLike)) else None),
                ],
                task=task,
                more=[
                    *(["--no-ledger"] if memory_path is None else []),
                    *([] if answered else ["--nonce", drawn.hex()]),
                    *_flags.words(
                        []
                        if answered
                        else [(q.check, q.options) for q in questions.all if not q.earlier],
                        policy._options(),
                    ),
                ],
            ),
            "software": f"potl {_core.version()}",
            "seconds": time.perf_counter() - began - answers.loading_seconds,
            "costs": _costs(questions.all, answered_all) | _extra_verify.costs(judged),
            "checks": asked,
        }
        return Report(_core.conclude(evidence, findings, policy=policy._options(), context=context))


def _costs(
    questions: Sequence[Question], answers: Sequence[Sequence[_core.AnyMeasurement]]
) -> dict[str, float]:
    costs: dict[str, float] = {}
    for question, measured in zip(questions, answers, strict=True):
        spent = sum(one.spent for one in measured)
        costs[question.check] = costs.get(question.check, 0.0) + spent
    return costs


def reproduce(
    run: str,
    files: Sequence[tuple[str, object]],
    *,
    task: object,
    more: Sequence[str],
) -> str:
    """The command that gives this report again, in the same folder, with a note that its nonce was
    given. What was passed as an object has a placeholder, which a comment at the end tells to fill
    in.
    """
    missing: list[str] = []

    def named(value: object, placeholder: str) -> str:
        if isinstance(value, (str, os.PathLike)):
            text = str(os.fspath(value))
            if "\n" not in text:  # not the text of a note
                return text
        missing.append(placeholder)
        return placeholder

    words = ["potl", "verify", run]
    for option, value in files:
        if value is not None:
            words += [option, named(value, option[2:].upper().replace("-", "_"))]
    if task is not None:
        try:
            words += ["--task", task_name(task)]
        except UsageError:
            words += ["--task", named(None, "MODULE:FUNCTION")]
    words += more
    if _arguments.module_arguments:
        words += ["--", *_arguments.module_arguments]
    fill_in = f"  # fill in: {', '.join(missing)}" if missing else ""
    return shlex.join(words) + fill_in
