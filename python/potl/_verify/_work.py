# SPDX-License-Identifier: Apache-2.0
"""What a verification will have to train, said before it does.

Steps follow from the job and the draw; seconds from steps that the verifier took itself.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from .. import _core
from .._base._printable import counted

_log = logging.getLogger("potl")


@dataclass(frozen=True, kw_only=True)
class Work:
    """Steps to train.

    Attributes:
        replayed: Of the segments that were drawn, each once.
        derived: Of the way to states that are not stored.
        measured: At most, where a replay ends in other bits and the verifier's own rounding has to
            be measured; 0 in a reproducible arithmetic.
    """

    replayed: int
    derived: int
    measured: int

    def label(self, step_seconds: float | None) -> str:
        """For a bar."""
        steps = counted(self.replayed + self.derived, "step")
        return f"replaying {steps}{self._duration(step_seconds)}"

    def announce(self, steps_in_all: int, step_seconds: float | None) -> None:
        """Logs it; as a warning where somebody else could do most of it.

        Args:
            steps_in_all: Of the job.
            step_seconds: What a step takes here; None where that is not known.
        """
        steps = self.replayed + self.derived
        if steps == 0:
            return
        text = (
            f"{steps:,} of {counted(steps_in_all, 'step')} {'is' if steps == 1 else 'are'} "
            "trained again"
            f"{self._duration(step_seconds)} on this machine"
        )
        if self.measured:
            text += f"; up to {self.measured:,} more where this machine rounds otherwise"
        if self.derived > self.replayed:
            text += (
                f". {self.derived:,} of them lead to states that are not stored: with a challenge "
                "(potl.challenge, potl.rederive) the trainer does these"
            )
        _log.log(logging.WARNING if self.derived > self.replayed else logging.INFO, "%s", text)

    def _duration(self, step_seconds: float | None) -> str:
        if step_seconds is None:
            return ""
        seconds = step_seconds * (self.replayed + self.derived)
        for unit, length in (("hours", 3600.0), ("minutes", 60.0)):
            if seconds >= 2 * length:
                return f", about {seconds / length:.2g} {unit}"
        return f", about {seconds:.2g} seconds"


def work_of(requests: Sequence[_core.Request], evidence: _core.Evidence, *, derive: bool) -> Work:
    """What requests cost, answered in this order by one process."""
    job = evidence.job
    missing = set()
    if derive and job.store_every != 0:
        missing = {int(one["step"]) for one in evidence.missing_checkpoints()}
    replayed = derived = measured = 0
    at = -1  # the last step whose state was derived or replayed

    for request in requests:
        segment = request if isinstance(request, _core.SegmentRequest) else None
        superseded = segment is not None and segment.superseded
        start = request.from_step
        if start in missing and not job.is_checkpoint(start) and not superseded:
            stored = next(
                s
                for s in range(start - job.checkpoint_every, -1, -job.checkpoint_every)
                if s not in missing or job.is_checkpoint(s)
            )
            derived += start - (at if stored <= at <= start else stored)
            at = start
        replayed += request.steps
        if segment is not None:
            repeats = segment.noise_repeats + segment.rough_repeats
            measured += (repeats + 1) * segment.steps if repeats else 0
            at = at if superseded else segment.end
    return Work(replayed=replayed, derived=derived, measured=measured)
