# SPDX-License-Identifier: Apache-2.0
"""Rounding logs of log64 in audits and disputes: an auditor follows the trainer's while it repeats
a run, and each party follows its own when it shows what a step computed.
"""

from __future__ import annotations

import base64
import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from .. import _core
from .._arithmetic import _rounded_steps
from .._base._errors import MalformedError

Difference = tuple[int, str, str]

FIELD = "rounding log"
# Differences that lie before what a log is about.
_CAUSES = ("initial state", "samples", "learning rates")
_FAULT, _FORMAT, _MOST_FAULT = "rounding_fault.json", "potl-rounding-fault-v1", 16 << 20
_POLL_SECONDS = 0.2

Read = Callable[[str, int, int], bytes]


class OwnLogs:
    """The logs that a run holds, for its own steps."""

    def __init__(self, run: _core.Evidence) -> None:
        self._run = run
        self._follower = _rounded_steps.Follower()

    def of(self, step: int) -> _rounded_steps.Follower:
        """For the next step."""
        committed = self._run.rounding_digest(step)
        log = b"" if committed is None else self._run.load_rounding_log(step)
        self._follower.expect(log, committed)
        return self._follower


def own_logs(run: _core.Evidence) -> Callable[[int], _rounded_steps.Follower | None]:
    """What a step of a run follows: nothing but in log64."""
    return OwnLogs(run).of if run.job.arithmetic == _rounded_steps.LOG64 else lambda step: None


class TrainersLogs:
    """The logs of a run that is repeated: found, bounded, followed, judged.

    Args:
        both: Has heard the steps, and says where their logs lie.
        read: Bytes of a file of the run: name, position and size. Fewer where there are no more.
        own: The auditor's directory: a fault is kept there, with its proof.
    """

    def __init__(self, both: _core.Repetition, read: Read, own: Path) -> None:
        self._both, self._read, self._own = both, read, own
        self._follower = _rounded_steps.Follower()
        self._withheld: Difference | None = None
        self._fault = _kept(own / _FAULT)

    # ------------------------------------------------------------------ a step that is repeated

    def fetch(self, step: int, timeout: float) -> bool:
        """Brings the log of the step that is repeated next. Without it nobody can go on: the
        trainer could show later whatever log its record binds.
        """
        place = self._both.rounding_of(step)
        if place is None:  # the step binds no log: whatever comes now is late
            self._follower.expect(b"", None)
            return self._both.heard_steps >= step
        branch, offset, size, digest = place
        name = f"rounding/branch-{branch}.log"
        until = time.monotonic() + timeout
        while len(log := self._read(name, offset, size)) < size and time.monotonic() < until:
            time.sleep(_POLL_SECONDS)
        if _core.rounding_log_digest(log) != digest:
            lacks = "is not there" if len(log) < size else "is not the one that its record binds"
            self._withheld = step, FIELD, f"step {step}: the rounding log in {name} {lacks}"
            return False
        self._follower.expect(log, digest)
        return True

    @contextlib.contextmanager
    def around(self, step: int) -> Iterator[None]:
        """As in Rounding."""
        with self._follower.around(step):
            yield
        audit = self._follower.audit
        if audit["rejected"]:
            first = audit["rejections"][0]
            self._keep(step, first["fault"], first["message"], first["proof"])

    @property
    def values(self) -> int:
        """As in Rounding."""
        return self._follower.values

    @property
    def log(self) -> bytes:
        """What the last step followed."""
        return self._follower.log

    # ------------------------------------------------------------------ what was wrong

    def difference(self) -> Difference | None:
        """The first one of the steps, and of their logs."""
        found = [one for one in (self._both.difference, self._withheld, self._fault) if one]

        def order(one: Difference) -> tuple[int, int]:
            return one[0], 0 if one[1] in _CAUSES else 1 if one[1] == FIELD else 2

        return min(found, key=order, default=None)

    def settle(self) -> None:
        """Both logs were read: what follows another difference is not a fault."""
        if self._fault is not None and self.difference() != self._fault:
            (self._own / _FAULT).unlink(missing_ok=True)
            self._fault = None

    def _keep(self, step: int, fault: str, message: str, proof: bytes | None) -> None:
        """Remembers the first fault before the step is recorded: logs that are followed again
        would not tell.
        """
        before = self.difference()
        if before is not None and before[0] < step:
            return  # nobody's log fits another state
        sentence = f"step {step}: the rounding log of the run does not fit: {fault}, {message}"
        self._fault = step, FIELD, sentence
        document = {
            "format": _FORMAT,
            "step": step,
            "fault": fault,
            "sentence": sentence,
            "proof": None if proof is None else base64.b64encode(proof).decode(),
        }
        _core.write_file(str(self._own / _FAULT), json.dumps(document).encode())


def _kept(path: Path) -> Difference | None:
    """The fault that an audit found before it was interrupted."""
    if not path.exists():
        return None
    try:
        found = json.loads(_core.read_file(str(path), max_bytes=_MOST_FAULT))
        step, sentence = found["step"], found["sentence"]
        if type(step) is not int or type(sentence) is not str:
            raise TypeError
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise MalformedError(f"{path} is not what an audit keeps of a fault", "") from error
    return step, FIELD, sentence
