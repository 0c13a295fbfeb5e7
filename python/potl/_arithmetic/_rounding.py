# SPDX-License-Identifier: Apache-2.0
"""The two sides of log64: one logs how it rounded near ties, the other follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ._library import module

if TYPE_CHECKING:
    from .. import _core


@dataclass(frozen=True)
class RoundingLog:
    """What a trainer's step rounded against the default, or could have.

    Attributes:
        step: The number given to `begin_step`.
        content: The canonical bytes, to be kept for the auditor.
        digest: Their digest, to be committed before any challenge.
        values: Results that were rounded.
        entries: Those near a tie, whose direction the log holds.
    """

    step: int
    content: bytes
    digest: bytes
    values: int
    entries: int


class _Side:
    """What both sides of a log have."""

    def __init__(self, role: str, *, bits: int, **options: Any) -> None:
        self.bits = bits
        self.is_open = False
        self.session: Any = module().RoundingSession(role, bits=bits, **options)

    def cancel_step(self) -> None:
        """Forgets the step, after an error in it."""
        self.session.cancel_step()
        self.is_open = False

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """Values, near ties and corrections so far, by kind of operator."""
        counts: dict[str, dict[str, int]] = self.session.counts
        return counts


class RoundingTrainer(_Side):
    """Logs the directions of one training.

    Args:
        bits: What products are rounded to, 23 to 32.
        order: 0 for the default order of summation; others stand in for another device.

    >>> trainer = potl.RoundingTrainer() # doctest: +SKIP
    >>> trainer.begin_step(1) # doctest: +SKIP
    >>> with potl.deterministic("log64", log=trainer): # doctest: +SKIP
    ...     loss = model(x).sum(); loss.backward(); optimizer.step()
    >>> log = trainer.end_step() # doctest: +SKIP
    """

    def __init__(self, *, bits: int = 32, order: int = 0) -> None:
        super().__init__("trainer", bits=bits, order=order)

    def begin_step(self, step: int) -> None:
        """From here results are logged."""
        self.session.begin_step(step)
        self.is_open = True

    def end_step(self) -> RoundingLog:
        """The log of the step."""
        log = self.session.end_step()
        self.is_open = False
        return RoundingLog(log["step"], log["bytes"], log["digest"], log["values"], log["entries"])


class RoundingAuditor(_Side):
    """Follows a trainer's logs, and rejects logs that no honest trainer writes.

    Args:
        bits: The trainer's.
        order: Its own order of summation; any will do.
    """

    def __init__(self, *, bits: int = 32, order: int = 0) -> None:
        super().__init__("auditor", bits=bits, order=order)

    def begin_step(self, step: int, *, log: bytes, committed: bytes | None = None) -> None:
        """From here results follow the log. `committed` is the digest that the trainer committed
        to; None when there is none.
        """
        self.session.begin_step(step, log=log, committed=committed)
        self.is_open = True

    def end_step(self) -> _core.StepAudit:
        """What was found: "rejections" is empty for an honest trainer, else each has a fault, a
        message and a proof.
        """
        audit: _core.StepAudit = self.session.end_audit()
        self.is_open = False
        return audit
