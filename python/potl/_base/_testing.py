# SPDX-License-Identifier: Apache-2.0
"""The prover's story, for tests that switch a rule off.

Some rules say that the verifier uses its own word (its data, its batch order, its recipe). To prove
that such a rule is what stops a forgery, a test build can switch it off; the verifier then believes
the story told here. Without a rule switched off, which a release build cannot do, nothing here is
read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Story:
    """What a prover claims in place of what was agreed.

    Attributes:
        build: The prover's task, believed when "agreed.recipe" or "agreed.data" is off.
        sample_ids: Sample ids of a step, believed when "agreed.batch_order" is off.
    """

    build: Callable[[], Any] | None = None
    sample_ids: Callable[[int], Sequence[int]] | None = None


_story = Story()


def story() -> Story:
    """The story of the test that is running."""
    return _story


@contextlib.contextmanager
def told(what: Story | None) -> Iterator[None]:
    """Tells a story to verifications in this process."""
    global _story
    before, _story = _story, what or Story()
    try:
        yield
    finally:
        _story = before


def believe_order(session: Any, sample_ids: Callable[[int], Sequence[int]]) -> None:
    """Makes a session replay the samples of a story."""
    session._schedule = _ToldSchedule(session._schedule, sample_ids)


class _ToldSchedule:
    def __init__(self, agreed: Any, sample_ids: Callable[[int], Sequence[int]]) -> None:
        self._agreed = agreed
        self._sample_ids = sample_ids

    def sample_ids(self, step: int) -> list[int]:
        return list(self._sample_ids(step))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._agreed, name)
