# SPDX-License-Identifier: Apache-2.0
"""What one verification asks: the present checks and all earlier challenges of the job.

Who asks what, and what is asked again, is decided in C++ (include/potl/checks/detail/question.hpp).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from .. import _core
from ._ledger import Memory

Asked = tuple[str, Mapping[str, object]]
"""A check's name and its options."""


@dataclass(frozen=True)
class Question:
    """A check with its options, under one nonce.

    Attributes:
        check: Name of the check.
        options: Its options; those that are None are left out.
        nonce: What its draw depends on, beside the commitment.
        earlier: Whether it is here only because it was asked before.
        plan: Its requests.
    """

    check: str
    options: Mapping[str, object]
    nonce: bytes
    earlier: bool
    plan: Sequence[_core.Request]


class Questions:
    """All questions of one verification.

    Args:
        evidence: The run.
        asked: What is asked now.
        nonce: Under which.
        known: What was asked before.
        screen: Whether the stored states are looked at for what else should be replayed; a
            challenge does not, since it comes before them.
        from_log: Whether a run is asked about that is rejected for nothing but missing files.

    Attributes:
        all: The questions, the present ones first.
        requests: What they ask for, each once, in the order in which it is cheapest to answer.
        unknown: Names of earlier checks that are not registered here, and are not asked again.

    Raises:
        UsageError: Options of a check are wrong.
    """

    def __init__(
        self,
        evidence: _core.Evidence,
        asked: Sequence[Asked],
        nonce: bytes,
        known: Memory,
        *,
        screen: bool,
        from_log: bool = False,
    ) -> None:
        self._core = _core.Questions(
            evidence,
            [(name, dict(options), nonce) for name, options in asked],
            [
                (bytes.fromhex(then.nonce), [(name, dict(o)) for name, o in then.checks])
                for then in known.challenges
            ],
            screen=screen,
            from_log=from_log,
        )
        self.all = [
            Question(name, given(options), drawn, earlier, plan)
            for name, options, drawn, earlier, plan in self._core.listed()
        ]
        self.requests = self._core.requests()
        self.unknown = list(dict.fromkeys(self._core.unknown))

    def settled_by(self, measurement: _core.AnyMeasurement) -> bool:
        """Whether a measurement alone rejects the run, whatever the others will be."""
        return self._core.settled_by(measurement)

    def answers(
        self,
        measured: Sequence[_core.AnyMeasurement],
        more: Callable[[list[_core.Request]], list[_core.AnyMeasurement]],
    ) -> list[list[_core.AnyMeasurement]]:
        """What each question got; where one wants to know more, `more` is asked."""
        return self._core.answers(list(measured), more)

    def judge(self, answers: list[list[_core.AnyMeasurement]]) -> list[_core.Finding]:
        """What the answers amount to."""
        return self._core.judge(answers)


def given(options: Mapping[str, object]) -> dict[str, object]:
    """Options without those that are None."""
    return {name: value for name, value in options.items() if value is not None}
