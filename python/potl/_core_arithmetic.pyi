# SPDX-License-Identifier: Apache-2.0
"""Types of potl._core, continued: reproducible arithmetic, random numbers and rounding
logs. No module of its own: everything here is in potl._core.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ._core_documents import DecodedLog, StepAudit, StepLog, Threshold, WatchedElement

Buffer: TypeAlias = bytes | bytearray | memoryview
WritableBuffer: TypeAlias = Any  # contiguous float32, float64, int64 or uint8
Matrix: TypeAlias = Any  # two-dimensional float32, any strides

class ThreadPool:
    """Threads for kernels, the calling one included."""

    def __init__(self, threads: int) -> None: ...

def active_isa() -> str:
    """The level whose kernels run: the processor's, capped by POTL_ISA."""

MODES: tuple[str, ...]  # of products: ord32 first

def gemm(mode: str, a: Matrix, b: Matrix, c: Matrix, pool: ThreadPool | None = None) -> None:
    """c = a @ b in "ord32", "cr32", "xint24" or "xint16". UsageError when shapes do not fit."""

def gemm_log64(
    a: Matrix,
    b: Matrix,
    c: Matrix,
    bits: int = 32,
    order: int = 0,
    pool: ThreadPool | None = None,
) -> list[tuple[int, float, float]]:
    """c = a @ b, rounded to `bits` bits; (index, value, window) of what is near a tie."""

class RoundingSession:
    """log64 over a training, for one side: `role` is "trainer", "auditor" or "none"."""

    def __init__(self, role: str, *, bits: int = 32, order: int = 0) -> None: ...
    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """Values, near ties and corrections since the session began, by kind of operator."""

    def begin_step(
        self, step: int, *, log: Buffer | None = None, committed: Buffer | None = None
    ) -> None:
        """An auditor gives the trainer's log and the digest in the step's leaf, if any."""

    def multiply(self, kind: str, a: Matrix, b: Matrix, out: Matrix) -> None:
        """out = a b for contiguous float32 matrices; an auditor's result is what the log says."""

    def end_step(self) -> StepLog:
        """The trainer's log."""

    def end_audit(self) -> StepAudit:
        """The auditor's findings."""

    def cancel_step(self) -> None: ...
    def watch(self, position: int) -> None:
        """Auditor, in a step: looks at the element at this position of the log."""

    @property
    def watched(self) -> WatchedElement | None: ...
    @property
    def values(self) -> int:
        """Elements of the step so far that were rounded."""

def encode_rounding_log(
    *, bits: int, values: int, entries: Iterable[tuple[int, bool]]
) -> bytes: ...
def decode_rounding_log(log: Buffer, /) -> DecodedLog:
    """MalformedError unless it is the one encoding of a log."""

def rounding_log_digest(log: Buffer, /) -> bytes: ...
def referee_rounding(
    proof: Buffer,
    *,
    committed: Buffer | None,
    bits: int,
    values: int,
    operands: Callable[[int], tuple[Any, Any]],
) -> None:
    """Returns when the proof shows fraud; MismatchError when it does not. `operands(position)`
    gives the rows of operands that the third party has itself.
    """

def search_threshold(trainer: Any, auditor: Any, *, bits: int) -> Threshold:
    """The published threshold for float64 values of both."""

def fill_uniform(
    buffer: WritableBuffer, key: Buffer, counter: int, low: float, high: float
) -> None:
    """Element i is a function of (key, counter + i); as in the other fills. float32, float64."""

def fill_normal(
    buffer: WritableBuffer, key: Buffer, counter: int, mean: float, deviation: float
) -> None:
    """float32, float64."""

def fill_bernoulli(buffer: WritableBuffer, key: Buffer, counter: int, probability: float) -> None:
    """0 or 1; float32, float64, uint8, bool."""

def fill_exponential(buffer: WritableBuffer, key: Buffer, counter: int, rate: float) -> None:
    """float32, float64."""

def fill_integers(buffer: WritableBuffer, key: Buffer, counter: int, low: int, high: int) -> None:
    """int64 in [low, high)."""

def fill_permutation(buffer: WritableBuffer, key: Buffer) -> None:
    """int64; the permutation of `permutation`."""

def fill_gamma(buffer: WritableBuffer, key: Buffer, counter: int, shapes: Buffer) -> None:
    """Of a shape for each element. Here and in the next ones parameters are float64. float32,
    float64.
    """

def fill_dirichlet(
    buffer: WritableBuffer, key: Buffer, counter: int, shapes: Buffer, columns: int
) -> None:
    """Rows of so many shares, each of its shape; float32, float64."""

def fill_poisson(buffer: WritableBuffer, key: Buffer, counter: int, rates: Buffer) -> None:
    """Of a finite rate >= 0 for each element; float64."""

def fill_binomial(
    buffer: WritableBuffer, key: Buffer, counter: int, trials: Buffer, probabilities: Buffer
) -> None:
    """Of a whole number of trials and a probability for each element; float64."""

def fill_categories(buffer: WritableBuffer, key: Buffer, counter: int, weights: Buffer) -> None:
    """int64: numbers of categories that have such weights, with replacement."""

def fill_erfinv(buffer: WritableBuffer) -> None:
    """Replaces each element by its inverse error function; float32, float64."""

class FreivaldsResult:
    """What Freivalds' check found (checks/freivalds.hpp)."""

    @property
    def outcome(self) -> str:
        """ "consistent", "unusual" (worth a recomputation), "inconsistent" or "not finite"."""

    @property
    def holds(self) -> bool:
        """Consistent."""

    @property
    def rejected(self) -> bool:
        """Inconsistent or not finite. What is unusual neither holds nor is rejected."""

    @property
    def worst(self) -> float:
        """Largest residual, as a share of what float arithmetic can give."""

    @property
    def usual(self) -> float:
        """Largest residual, as a share of what it usually gives."""

    @property
    def row(self) -> int:
        """Where the worst residual is, counted through all products; -1 if there is none."""

    @property
    def rounding(self) -> float:
        """Root mean square of the residuals over |A| |B|: float32 gives about 2^-24."""

    @property
    def false_alarm(self) -> float:
        """Bound on the probability that an honest product is inconsistent."""

    @property
    def compared(self) -> int:
        """Residuals, over all rows and vectors."""

@dataclass(frozen=True, init=False)
class SegmentResult:
    """What a check of a whole segment found (checks/freivalds_segment.hpp)."""

    weights: FreivaldsResult
    columns: int
    @property
    def holds(self) -> bool:
        """Whether all three do."""

    @property
    def rejected(self) -> bool:
        """Whether one of the three is."""

    @property
    def first(self) -> FreivaldsResult:
        """Of the momentum buffer, or the first moment."""

    @property
    def second(self) -> FreivaldsResult:
        """Of Adam's second moment."""

    @property
    def sampled(self) -> int:
        """Columns that were computed again, of `columns`."""

def freivalds(
    a: Matrix,
    b: Matrix,
    c: Matrix,
    probes: int,
    false_alarm: float,
    stored: float,
    key: bytes | None,
    pool: ThreadPool | None = None,
    added: Matrix | None = None,
) -> FreivaldsResult:
    """Two dimensions, or three for a batch of float32. UsageError when shapes do not fit. `added`,
    float32 of C's shape: is C = A B + it?
    """

def freivalds_exact(
    a: Matrix, b: Matrix, c: Matrix, probes: int, key: bytes | None
) -> FreivaldsResult:
    """int32 operands and an int64 result, modulo 2^61 - 1."""

def freivalds_convolution(
    gradient: str,
    first: Matrix,
    second: Matrix,
    claimed: Matrix,
    batch: int,
    in_channels: int,
    out_channels: int,
    groups: int,
    sizes: Iterable[tuple[int, int, int]],
    probes: int,
    false_alarm: float,
    stored: float,
    key: bytes | None,
    pool: ThreadPool | None = None,
    bias: Matrix | None = None,
) -> FreivaldsResult:
    """Sizes: input, kernel, stride, padding, dilation."""

def channel_sums(
    x: Matrix, channels: int, pool: ThreadPool | None = None
) -> tuple[list[float], list[float]]:
    """float32, a row for each image and channel: the sum of each channel, and that of its squares,
    in float64. UsageError when the rows are not as many for each.
    """

def freivalds_segment(
    start: Iterable[Matrix | None],
    end: Iterable[Matrix | None],
    steps: Sequence[tuple[Matrix, Matrix, float, float]],
    update: str,
    weight_decay: float,
    momentum: float,
    dampening: float,
    nesterov: bool,
    beta1: float,
    beta2: float,
    epsilon: float,
    steps_before: int,
    sampled: int,
    probes: int,
    false_alarm: float,
    key: bytes | None,
    pool: ThreadPool | None = None,
) -> SegmentResult:
    """Steps: inputs, output gradients, rate, scale."""
