# SPDX-License-Identifier: Apache-2.0
"""The extra task inside `verify`: asks the last committed model, in the verifier's process.

What goes wrong on the way is the verifier's own trouble, so it is inconclusive and never a
rejection; so is a run of data in which the extra samples are not. Nothing that leaves here holds
the key or a sample.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .. import _core
from .._checks._checks import Request
from .._extra_task._uploaded import look_for

if TYPE_CHECKING:
    from .._checks._checks import AnyCheck
    from .._extra_task._extra_task import ExtraTask
    from .._task._task import Task
    from ._answers import Answers

Judged = tuple[list[_core.Finding], float]


class _LastModel(Request):
    """What the last committed model says to the extra samples."""

    kind = "extra_task"

    def __init__(self, check: ExtraTask, step: int) -> None:
        self._check = check
        self.from_step = step

    def measure(self, replayer: _core.Replayer) -> list[_core.Finding]:
        replayer.restore(self.from_step)
        return _verified(self._check, replayer.task)


def judged(check: AnyCheck, evidence: _core.Evidence, answers: Answers) -> Judged:
    """Findings, and the seconds that they took."""
    from .._extra_task._extra_task import ExtraTask

    assert isinstance(check, ExtraTask)
    began = time.perf_counter()
    steps = evidence.steps()["step"]
    request = _LastModel(check, int(steps[-1]) if len(steps) else 0)
    # A worker of somebody's pool must not see the samples.
    if request.from_step:
        seen = answers.here(request)
    else:
        seen = _core.unanswered(request, "the run has no steps")
    assert isinstance(seen, _core.Measurement)
    if seen.status == "ok":
        return seen.value, time.perf_counter() - began
    reason = f"the model could not be asked about the extra samples: {seen.message}"
    return [_finding("inconclusive", reason)], time.perf_counter() - began


def costs(found: Sequence[Judged]) -> dict[str, float]:
    """Seconds, by name of the check."""
    return {"extra_task": sum(seconds for _, seconds in found)} if found else {}


def _verified(check: ExtraTask, task: Task) -> list[_core.Finding]:
    transform = check.transform
    if transform is None and check._reads_stored_images:
        transform = getattr(task.dataset, "transform", None)
    elif transform is None and task.transform is not None:
        # The task's transform takes items, and the label of a question is secret: any will do.
        of_item, items = task.transform, check._form.items

        def transform(value: Any) -> Any:
            return items.input_of(of_item(items.item(value, 0)))

    check._require_made()
    looked = look_for(check, task.dataset, check._as_asked(transform))
    if looked.absent:
        return [_finding("inconclusive", looked.reason)]
    result = check.verify(task.model, transform=transform)
    findings = list(result.findings)
    if looked.reason:
        # Who accuses must know that the samples were there; who knows them has seen them.
        for one in findings:
            if one.result == "reject":
                one.result = "inconclusive"
                one.reason = f"{one.reason}; {looked.reason}"
    if result.progress is not None:
        findings.append(_finding("note", f"progress: {result.progress.text}"))
    return findings


def _finding(result: _core.Outcome, reason: str) -> _core.Finding:
    return _core.Finding(check="extra_task", result=result, reason=reason)
