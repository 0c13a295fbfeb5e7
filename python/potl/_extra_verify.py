# SPDX-License-Identifier: Apache-2.0
"""The extra task inside of `verify`: asks the last committed model, in the verifier's process.

What goes wrong on the way is the verifier's own trouble, so it is inconclusive and never a
rejection. Nothing that leaves here holds the key or a sample.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._answers import Answers
    from ._checks import Check
    from ._extra_task import ExtraTask
    from ._task import Task

Judged = tuple[list[dict[str, Any]], float]


def judged(check: Check, answers: Answers) -> Judged:
    """Findings, and the seconds that they took."""
    from ._extra_task import ExtraTask

    assert isinstance(check, ExtraTask)
    began = time.perf_counter()
    try:
        result = answers.at_last_state(lambda task: _verified(check, task))
    except Exception as error:
        reason = f"the model could not be asked about the extra samples: {_what(error)}"
        return [_finding("inconclusive", reason)], time.perf_counter() - began
    findings = [dict(one) for one in result.findings]
    if result.progress is not None:
        findings.append(_finding("note", f"progress: {result.progress.text}"))
    return findings, time.perf_counter() - began


def costs(found: Sequence[Judged]) -> dict[str, float]:
    """Seconds, by name of the check."""
    return {"extra_task": sum(seconds for _, seconds in found)} if found else {}


def _verified(check: ExtraTask, task: Task) -> Any:
    transform = check.transform
    if transform is None and check.reads_stored_images:
        transform = getattr(task.dataset, "transform", None)
    elif transform is None and task.transform is not None:
        # The task's transform takes items, and the label of a question is secret: any will do.
        of_item, items = task.transform, check.form.items

        def transform(value: Any) -> Any:
            return items.input_of(of_item(items.item(value, 0)))

    return check.verify(task.model, transform=transform)


def _finding(result: str, reason: str) -> dict[str, Any]:
    return {"check": "extra_task", "rule": "", "result": result, "reason": reason}


def _what(error: Exception) -> str:
    message = str(getattr(error, "message", "") or error)
    return f"{type(error).__name__}: {message}"
