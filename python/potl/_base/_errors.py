# SPDX-License-Identifier: Apache-2.0
"""Exceptions. Every one derives from `PotlError` and carries a `message` and, where there is one, a
`remedy`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .._core import (
    InternalError,
    LimitError,
    MalformedError,
    MismatchError,
    MissingError,
    PotlError,
    StorageError,
    UnsupportedError,
    UsageError,
)

__all__ = [
    "Inconclusive",
    "InternalError",
    "JobMismatch",
    "LimitError",
    "MalformedError",
    "MismatchError",
    "MissingError",
    "NotReplayable",
    "NotReproducible",
    "PotlError",
    "PredictionError",
    "Problem",
    "Rejected",
    "StorageError",
    "UnsupportedError",
    "UsageError",
]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Something in a task that prevents a replay, or an exact one."""

    what: str
    """What is wrong, in one sentence."""
    where: str
    """The object or path, for example "model/buffers/running"."""
    remedy: str
    """What to do about it."""
    prevents: str = "replay"
    """"replay": the task is refused. "exact": it is trained in stock arithmetic, and replays are
    compared within a tolerance. "dispute": no referee could decide a dispute about it.
    """

    def __str__(self) -> str:
        return f"{self.where}: {self.what} ({self.remedy})"


class NotReplayable(UsageError):
    """A task that cannot be replayed.

    Attributes:
        problems: Everything that was found, each with its remedy.
    """

    problems: tuple[Problem, ...]

    def __init__(self, problems: Sequence[Problem] | Problem) -> None:
        self.problems = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__("; ".join(str(problem) for problem in self.problems))

    def __reduce__(self) -> tuple[type[NotReplayable], tuple[tuple[Problem, ...]]]:
        return type(self), (self.problems,)


class NotReproducible(UsageError):
    """Something inside `potl.deterministic` whose result would depend on the machine.

    Attributes:
        message: What it is: for an operator, with its name.
        remedy: What to do instead.
    """

    def __init__(self, message: str = "", remedy: str = "") -> None:
        if not remedy:  # from C++ both come in one text
            message, _, remedy = message.partition(":\x1f ")
        super().__init__(message, remedy)


class JobMismatch(UsageError):
    """The task, or what this machine makes of it, does not match the job.

    Attributes:
        differences: One sentence per difference.
    """

    differences: tuple[str, ...]

    def __init__(self, differences: Sequence[str] | str, remedy: str = "") -> None:
        self.differences = (differences,) if isinstance(differences, str) else tuple(differences)
        super().__init__("the task does not match the job: " + "; ".join(self.differences), remedy)

    def __reduce__(self) -> tuple[type[JobMismatch], tuple[tuple[str, ...], str]]:
        return type(self), (self.differences, self.remedy)


class PredictionError(PotlError):
    """A predict function raised. That is the verifier's own trouble, and gives no verdict."""


class Rejected(PotlError):
    """A report that says: rejected. `Report.raise_for_verdict` raises it."""


class Inconclusive(PotlError):
    """A report that says: inconclusive. `Report.raise_for_verdict` raises it."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether Python or torch found no memory."""
    # torch reports memory as RuntimeError on the CPU and as its subclass OutOfMemoryError on a GPU.
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError)
        and ("out of memory" in str(error) or "can't allocate memory" in str(error))
    )


def is_own_trouble(error: BaseException) -> bool:
    """Whether an exception speaks of this machine, whatever a state or a task holds."""
    return is_out_of_memory(error) or isinstance(error, (OSError, TimeoutError, StorageError))
