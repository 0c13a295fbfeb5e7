# SPDX-License-Identifier: Apache-2.0
"""Types of potl._core, continued: guarded trainings. No module of its own: everything here is in
potl._core.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from ._core import Job
from ._core_documents import ReportContext
from ._core_statistics import DisplacementCertificate

class GradientSource(Protocol):
    """What computes gradients: checks/spot_check.hpp says what each member means."""

    @property
    def tensors(self) -> Sequence[tuple[str, int]]: ...
    @property
    def weights_bytes(self) -> int: ...
    @property
    def steps(self) -> int: ...
    def gradient(self, step: int, weights: memoryview, way: int, out: memoryview) -> float: ...

class GuardedTraining(Protocol):
    """What a guard trains."""

    @property
    def step(self) -> int: ...
    def weights(self) -> Iterable[memoryview]: ...
    def update(self, step: int, gradient: memoryview, norm: float, loss: float) -> None: ...
    def keep(self) -> None: ...
    def finalise(self, step: int) -> None: ...
    def roll_back(self) -> None: ...

class SpotCheckSocket:
    """A connection; a session uses it up."""

    @staticmethod
    def connect(address: str, seconds: float) -> SpotCheckSocket:
        """Tries for so long. StorageError: nobody listens; UsageError: no such address."""

    @staticmethod
    def pair() -> tuple[SpotCheckSocket, SpotCheckSocket]: ...
    def close(self) -> None: ...

class SpotCheckListener:
    """Waits for connections."""

    def __init__(self, address: str) -> None: ...
    @property
    def address(self) -> str:
        """With the port that was taken."""

    def accept(self, seconds: float) -> SpotCheckSocket:
        """StorageError: nobody came."""

class SpotCheckDoor:
    """Listens, and lets in who has the key: spot_check_door."""

    def __init__(self, address: str, *, key: bytes) -> None: ...
    @property
    def address(self) -> str:
        """With the port that was taken."""

    def next(self, seconds: float) -> SpotCheckSocket:
        """StorageError: nobody came with the key."""

@dataclass(frozen=True, init=False)
class SpotCheckSession:
    """What came of a session: spot_check_result."""

    end: Literal["finished", "paused", "caught", "doubtful", "diverged", "refused", "lost"]
    reason: str
    tensor: str
    step: int
    first_step: int
    final_step: int
    checked: int
    largest: float
    seconds: float
    check_seconds: float
    losses: list[float]
    norms: list[float]

SPOT_CHECK_WAYS: int  # of computing otherwise, which a check tries before it accuses

def spot_check_guard(
    socket: SpotCheckSocket,
    *,
    key: bytes,
    job: bytes,
    training: GuardedTraining,
    checker: GradientSource,
    probabilities: Sequence[float],
    clip: float,
    tolerance: float,
    segment: int,
    lag: int,
    timeout: float,
    until: int,
    background: bool,
    told: Callable[[int, int], None] | None = None,
) -> SpotCheckSession:
    """The trusted side of one session."""

def spot_check_serve(
    socket: SpotCheckSocket,
    *,
    key: bytes,
    make: Callable[[str], GradientSource],
    timeout: float,
) -> tuple[bool, str, int]:
    """The worker's side: whether the trusted side ended it, why, and gradients sent."""

def spot_check_report(
    session: SpotCheckSession,
    *,
    job: Job,
    certificate: DisplacementCertificate,
    stopped_before: int,
    context: ReportContext,
) -> bytes:
    """The report of a session."""
