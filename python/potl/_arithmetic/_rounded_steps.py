# SPDX-License-Identifier: Apache-2.0
"""The rounding logs of `log64` around the steps of a session: a trainer's makes them, an auditor's
follows them.

In C++ one session per side (include/potl/numeric/detail/rounding_session.hpp) sees every product of
the thread while it is installed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Protocol

from .. import _core

LOG64 = "log64"
BITS = 32


class Rounding(Protocol):
    """What a session does with the near ties of a step."""

    def around(self, step: int) -> contextlib.AbstractContextManager[None]:
        """Put around the computation of a step, in its thread."""

    @property
    def values(self) -> int:
        """Elements of the step so far that were rounded."""


class Logging(Rounding, Protocol):
    """One that has the log of the last step."""

    @property
    def log(self) -> bytes: ...


def around(rounding: Rounding | None, step: int) -> contextlib.AbstractContextManager[None]:
    """Nothing without a rounding: then near ties are rounded by default and not logged."""
    return contextlib.nullcontext() if rounding is None else rounding.around(step)


class Trainer:
    """Logs how each step rounded what was near a tie.

    Attributes:
        log: The canonical bytes of the last step's log.
    """

    def __init__(self, *, order: int = 0) -> None:
        self._session = _session("trainer", order)
        self.log = b""

    @property
    def values(self) -> int:
        """As in Rounding."""
        return self._session.values

    @contextlib.contextmanager
    def around(self, step: int) -> Iterator[None]:
        self._session.begin_step(step)
        with _installed(self._session):
            yield
        self.log = self._session.end_step()["bytes"]


class Auditor:
    """Follows the trainer's logs, and keeps what was wrong with them.

    `expect` comes before each step.
    """

    def __init__(self, *, order: int = 0) -> None:
        self._session = _session("auditor", order)
        self._log = b""
        self._committed: bytes | None = None
        self.forget()

    def expect(self, log: bytes, committed: bytes | None) -> None:
        """The trainer's log of the next step, and the digest in its leaf: None if there is none."""
        self._log, self._committed = log, committed

    def forget(self) -> None:
        """Begins a new summary."""
        self._summary = _core.RoundingSummary()

    @property
    def values(self) -> int:
        """As in Rounding."""
        return self._session.values

    @property
    def summary(self) -> _core.RoundingSummary:
        """Of the steps since `forget`."""
        return self._summary

    @contextlib.contextmanager
    def around(self, step: int) -> Iterator[None]:
        self._begin(step)
        with _installed(self._session):
            yield
        self._summary.add(self._session.end_audit())

    @property
    def beside(self) -> Rounding:
        """For a part of a step from its beginning, such as its loss: follows, judges nothing."""
        return _Beside(self)

    def _begin(self, step: int) -> None:
        self._session.begin_step(step, log=self._log, committed=self._committed)


class Follower:
    """Follows a log as an auditor does. What a step computes is then a function of the step and of
    the log's bytes alone, whatever they are.

    Attributes:
        log: What the last step followed: the given bytes, or a log without entries where they were
            none.
        audit: What was wrong with it.
    """

    log: bytes
    audit: _core.StepAudit

    def __init__(self, *, order: int = 0) -> None:
        self._session = _session("auditor", order)
        self._given: tuple[bytes, bytes | None] = (b"", None)

    def expect(self, log: bytes, committed: bytes | None) -> None:
        """The log of the next step, and the digest that binds it, if any."""
        self._given = (log, committed)

    @property
    def values(self) -> int:
        """As in Rounding."""
        return self._session.values

    @contextlib.contextmanager
    def around(self, step: int) -> Iterator[None]:
        log, committed = self._given
        self._session.begin_step(step, log=log, committed=committed)
        with _installed(self._session):
            yield
        self.audit = self._session.end_audit()
        faults = {one["fault"] for one in self.audit["rejections"]}
        is_log = faults.isdisjoint(("not_committed", "other_log", "malformed")) and log[1] == BITS
        self.log = log if is_log else without_entries(self.audit["values"])


class Excerpt:
    """Follows the log of a part of a step, and looks at one of its elements.

    Attributes:
        watched: What the log and the exact sum say of the element.
        values: How many elements were rounded.
    """

    def __init__(self, log: bytes, watch: int | None) -> None:
        self._log, self._watch = log, watch
        self.watched: _core.WatchedElement | None = None
        self.values = 0

    @contextlib.contextmanager
    def around(self, step: int) -> Iterator[None]:
        session = _session("auditor", 0)
        session.begin_step(step, log=self._log, committed=_core.rounding_log_digest(self._log))
        if self._watch is not None:
            session.watch(self._watch)
        with _installed(session):
            yield
        self.watched, self.values = session.watched, session.values
        session.cancel_step()


def without_entries(values: int) -> bytes:
    """The log of a step that rounds so many elements, none of them near a tie."""
    return _core.encode_rounding_log(bits=BITS, values=values, entries=())


class _Beside:
    def __init__(self, auditor: Auditor) -> None:
        self._auditor = auditor

    @property
    def values(self) -> int:
        return self._auditor.values

    @contextlib.contextmanager
    def around(self, step: int) -> Iterator[None]:
        self._auditor._begin(step)
        with _installed(self._auditor._session):
            yield
        self._auditor._session.cancel_step()


def _session(role: str, order: int) -> _core.RoundingSession:
    from ._library import module

    made: _core.RoundingSession = module().RoundingSession(role, order=order)
    return made


@contextlib.contextmanager
def _installed(session: _core.RoundingSession) -> Iterator[None]:
    """Products of this thread feed the session, whose step ends with the block if an error ends
    it.
    """
    from ._library import module

    before = module().install_rounding(session)
    try:
        yield
    except BaseException:
        session.cancel_step()
        raise
    finally:
        module().install_rounding(before)
