# SPDX-License-Identifier: Apache-2.0
"""Types of potl._core, continued: the extra task (include/potl/checks/extra_task*.hpp). No
module of its own: everything here is in potl._core.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, TypedDict

from ._core_checks import Finding

ReadableBuffer: TypeAlias = Any  # contiguous, of the dtype that is stated, if any; a key: 32 bytes
WritableBuffer: TypeAlias = Any
Curves: TypeAlias = Sequence[tuple[str, Sequence[tuple[float, float]]]]

class ExtraContent(TypedDict, total=False):
    """How inputs look, by "family":

    "image": uint8 arrays (count, height, width, channels).
    "tokens": int64 arrays (count, length) of indices into the caller's vocabulary.
    "table": float64 arrays (count, columns); a category of 0: a place in [0, 1] among the column's
        sorted training values, else the index of one of so many categories. `values`: how many
        different values a place can become, 0 where that is not known.
    """

    family: str
    height: int
    width: int
    channels: int
    length: int
    vocabulary: int
    categories: list[int]
    values: list[int]

class ExtraPower(TypedDict):
    """What must have been learned, as a number and as a share of the extra samples, so that a test
    is passed with this probability."""

    power: float
    learned: int
    share: float

class ExtraAccuracy(TypedDict):
    """Points of accuracy that the extra samples cost by experience, and whether experiments had as
    many."""

    expected: float
    most: float
    measured: bool

class ExtraPlanned(TypedDict):
    """`eta`: N over the training samples; `level`: alpha over submissions; `needed`: 0 without
    labels; `powers`: not to be rejected, for 0.5, 0.9 and 0.99, empty without labels; `acceptance`:
    the same, to be accepted; `needed_for_acceptance`: hits, where controls are hit by chance;
    `needed_effect`: without labels.
    """

    training_samples: int
    classes: int
    samples: int
    uploads: int
    controls: int
    eta: float
    chance: float
    level: float
    needed: int
    grades: list[str]
    powers: list[ExtraPower]
    acceptance: list[ExtraPower]
    needed_for_acceptance: int
    needed_effect: float
    accuracy: ExtraAccuracy
    warnings: list[str]

class ExtraGrade(TypedDict):
    grade: str
    samples: int
    hits: int

class ExtraShare(TypedDict):
    """Of a converged training."""

    share: float
    low: float
    high: float
    text: str

class ExtraJudged(TypedDict):
    """`verdict`: "accepted", "rejected" or "inconclusive"; `known`: estimated share; `effect`:
    without labels, the share of pairs of one grade in which the extra sample has the smaller error;
    `hash`: of the answers.
    """

    verdict: str
    reason: str
    samples: int
    controls: int
    classes: int
    hits: int
    control_hits: int
    invalid: int
    needed: int
    needed_against_control: int
    needed_for_acceptance: int
    known: float
    effect: float
    needed_effect: float
    p_value: float
    control_p_value: float
    acceptance_p_value: float
    level: float
    submission: int
    hash: bytes
    grades: list[ExtraGrade]
    progress: ExtraShare | None
    findings: list[Finding]
    limits: list[str]

class ExtraSamples:
    """The secret samples of one key.

    `samples` (at least 200, a multiple of the classes) comes from plan_extra_task; `classes` 0:
    no labels. `options`: check_fields("extra_task"). UsageError for what does not fit.
    """

    def __init__(
        self,
        key: ReadableBuffer,
        content: ExtraContent,
        *,
        samples: int,
        classes: int,
        options: Mapping[str, object],
    ) -> None: ...
    def count(self, which: str) -> int:
        """Samples in "extra" or "control"."""
    @property
    def classes(self) -> int: ...
    @property
    def elements(self) -> int:
        """Values in one sample."""
    @property
    def grades(self) -> list[str]: ...
    def label(self, index: int) -> int:
        """index % classes, in both sets; -1 without classes."""
    def grade(self, index: int) -> int:
        """Index into `grades`."""
    def fill(self, which: str, first: int, out: WritableBuffer, *, copy: int = 0) -> None:
        """Writes consecutive samples from `first` on into a C-contiguous array of the content's
        dtype, as many as it holds."""
    def fill_places(self, places: ReadableBuffer, out: WritableBuffer) -> None:
        """The same of any samples: int64 rows of set (0 extra, 1 control), index and copy."""
    def uploads(self) -> list[tuple[int, int, int]]:
        """(index, copy, label) of everything that is mixed into the data."""
    def order(self, real: int) -> bytes:
        """The secret order of `real` samples and all uploads, int64: values below `real` are real
        samples, real + i is uploads()[i]."""

def extra_needed_hits(
    *,
    samples: int,
    classes: int,
    alpha: float = 0.01,
    epsilon: float = 0.03,
    submissions: int = 1,
) -> int:
    """Hits that the binomial test asks for; samples + 1 when no number is enough."""

def extra_region(side: int, fixed: float) -> int:
    """Rows or columns of the random region: floor(sqrt(1 - fixed) side)."""

def extra_words(length: int, fixed: float) -> int:
    """Random words (columns of a table): floor((1 - fixed) length)."""

def plan_extra_task(
    *,
    training_samples: int,
    classes: int,
    options: Mapping[str, object],
    content: ExtraContent | None = None,
) -> ExtraPlanned:
    """Sizes and thresholds, with a warning for each grade that samples of `content` cannot be drawn
    with.
    """

def judge_extra_task(
    *,
    options: Mapping[str, object],
    samples: int,
    classes: int,
    extra: ReadableBuffer,
    control: ReadableBuffer,
    earlier: Sequence[bytes] = (),
    curves: Curves = (),
    measured: Sequence[int] = (),
) -> ExtraJudged:
    """`extra`, `control`: float64, classes answered (errors when `classes` is 0) in order of
    indices. What is not a class, or not finite, makes the result inconclusive.

    `earlier`: `hash` of each different submission before this one. `curves`: reference curves
    [(grade, [(share of a converged training, hit rate), ...])]; without them no progress.
    `measured`: with how many samples each curve was measured; 0: it is exact.
    """

def extra_progress(
    counts: Sequence[tuple[str, int, int]],
    curves: Curves,
    *,
    measured: Sequence[int] = (),
) -> ExtraShare:
    """From (grade, samples, hits) of every grade."""

def shared_regions(
    samples: ReadableBuffer,
    *,
    window: int | tuple[int, int],
    stride: int = 1,
    dropped_bits: int = 0,
    least: int = 2,
    anywhere: bool = False,
) -> tuple[list[int], int]:
    """Windows of each sample that at least `least` samples share, and windows of a sample.

    `samples`: uint8 (count, height, width, channels) with window (rows, columns), or int64 (count,
    length) with a window of words.
    """

def difference_p_value(
    hits: int, samples: int, control_hits: int, controls: int, margin: float
) -> float:
    """Exact unconditional test of "the hit rates differ by at most `margin`"."""

def mann_whitney_less(first: ReadableBuffer, second: ReadableBuffer) -> tuple[float, float, bool]:
    """U, one-sided p-value of "values of `first` are not smaller", whether it is exact. float64."""
