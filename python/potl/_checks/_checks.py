# SPDX-License-Identifier: Apache-2.0
"""The checks as values: keyword-only classes with their options. Those of potl's own checks are the
field tables in C++ (a test compares them), which also plan and judge them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from .. import _core
from .._base._errors import UsageError


class AnyCheck:
    """Something to look at, with its options: a `Check`, or an `ExtraTask`."""

    name: ClassVar[str] = ""

    def options(self) -> dict[str, object]:
        """All options that are not None, by name."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Check(AnyCheck):
    """One thing to look at: `Telemetry`, `PEV`, `Replay`, or a check of your own.

    A check of your own is a frozen, keyword-only dataclass whose fields are its options (bool, int,
    float or str, each with a default) and which has `judge`, and `plan` where it asks the
    verifier's own training for something. docs/guide/adding_a_check.md walks through one.

    Attributes:
        name: In options, flags, findings and reports: lower case and underscores.
        may_reject: Whether its findings may reject a run; if not, what fails is a note that says
            "suspicious".
        is_needed: Whether what of it is inconclusive stands in the way of acceptance.
        looks_at: What it looks at, for the report.
        cannot_see: Sentences about what it cannot see, for the report.
        cost: What it costs, in a sentence.
    """

    name: ClassVar[str] = ""
    may_reject: ClassVar[bool] = True
    is_needed: ClassVar[bool] = True
    looks_at: ClassVar[str] = ""
    cannot_see: ClassVar[Sequence[str]] = ()
    cost: ClassVar[str] = ""

    def plan(self, run: _core.Evidence, nonce: bytes) -> Sequence[_core.Request]:
        """What it asks for, drawn by the nonce: nothing, unless a subclass says otherwise."""
        return ()

    def judge(
        self, run: _core.Evidence, nonce: bytes, answers: Sequence[_core.AnyMeasurement]
    ) -> Sequence[Any]:
        """What the answers amount to: values of `potl.Finding`."""
        raise NotImplementedError(f"{type(self).__name__} does not judge")

    def options(self) -> dict[str, object]:
        """All options, as the planner takes them."""
        return {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in asdict(self).items()
            if value is not None
        }


class Request:
    """What a check of your own asks of the verifier's training. Subclass it; instances are pickled
    for worker processes, and equal ones are asked once.

    Attributes:
        kind: What kind of request it is, e.g. "sharpness".
        from_step: The step whose recorded state it begins with.
        steps: How many steps it trains.
    """

    kind: ClassVar[str] = ""
    from_step: int = 0
    steps: int = 0

    def measure(self, replayer: _core.Replayer) -> object:
        """Answers it: `replayer.restore(step)` puts a recorded state into the verifier's task
        (`replayer.workload.session.task`). What it returns reaches `Check.judge` as the value of a
        measurement, and must be picklable.
        """
        raise NotImplementedError(f"{type(self).__name__} does not measure")

    def place(self) -> str:
        """What it is about, however thoroughly."""
        return str(self.from_step)

    def key(self) -> str:
        """Equal for requests that one answer serves."""
        return repr(sorted(vars(self).items()))


@dataclass(frozen=True, kw_only=True)
class Replay(Check):
    """Repeats recorded segments and compares losses and the state at their end (proof-of-learning).

    Attributes:
        samples: Segments drawn at random, beside the first, the last and superseded ones.
        top_q: Stored states of each epoch that are replayed because they moved furthest, and what
            led to them; at most a tenth of `samples` each.
        reach: States that moved more than this many times the usual distance are replayed with what
            led to them, at most twice `samples` more; 0: none.
        tolerance: "auto": exact when the job names a reproducible arithmetic, else calibrated by
            the verifier's own repeats. "exact", "calibrated", and the published ones, which never
            accept alone: "d_ref" (Jia et al.), "mean_grad_norm" (Lab Apex VMO).
        noise_repeats: Honest replays in other arithmetics of a segment whose noise decides.
        safety: How many times the largest distance among those repeats the tolerance is.
        margin: How many times what noise and rounding explain a difference must exceed to reject;
            smaller ones are inconclusive.
        loss_floor: Smallest tolerance of a logged loss, relative to 1 + |loss|.
        loss_cap: Largest tolerance of a logged loss, relative to 1 + |loss|.
        d_ref: l2 distance of the parameters of two independent trainings; tolerance "d_ref" is a
            hundredth of it.
        repeat: Nonces of earlier challenges, whose segments are replayed again; `verify` fills it
            from its ledger.

    Raises:
        UsageError: There is no such tolerance.
    """

    name: ClassVar[str] = "replay"

    samples: int = 12
    top_q: int = 1
    reach: float = 20.0
    tolerance: str = "auto"
    noise_repeats: int = 2
    safety: float = 8.0
    margin: float = 1024.0
    loss_floor: float = 1e-5
    loss_cap: float = 0.05
    d_ref: float | None = None
    repeat: Sequence[str] = ()

    def __post_init__(self) -> None:
        known = next(r["choices"] for r in _core.check_fields("replay") if r["name"] == "tolerance")
        if self.tolerance not in known:
            raise UsageError(
                f"replay: tolerance {self.tolerance!r} is not known",
                f"use one of {', '.join(known)}",
            )


@dataclass(frozen=True, kw_only=True)
class PEV(Check):
    """Recomputes logged losses at stored checkpoints. Adds evidence, never accepts alone.

    Attributes:
        mode: "default" recomputes the loss of the same recorded batch before its step; "apex" is
            the published comparison of an epoch's mean with a subset of the data, which rejects no
            loss, because honest means differ, too.
        fraction: Share of the checkpoints that are looked at (default), of the data (apex).
        per_epoch: Smallest number of checkpoints looked at in each epoch that has so many.
        noise_repeats: Perturbed recomputations of each loss.
        safety: How many times the largest difference among those repeats the tolerance is.
        loss_floor: Smallest tolerance, relative to 1 + |loss|.
        loss_cap: Largest tolerance, relative to 1 + |loss|.
    """

    name: ClassVar[str] = "pev"

    mode: str = "default"
    fraction: float = 0.1
    per_epoch: int = 2
    noise_repeats: int = 1
    safety: float = 8.0
    loss_floor: float = 1e-5
    loss_cap: float = 0.05


@dataclass(frozen=True, kw_only=True)
class Telemetry(Check):
    """What the machine did during the training. Alone it never rejects or accepts.

    Attributes:
        mode: "default": robust rules; "apex": the published ones.
        alpha: apex: share of the utilisation samples that must lie above their mean.
        busy_above: Utilisation from which the device counts as busy.
        busy_share: Share of the time for which the device must be busy.
        memory_spread: Largest variation of memory in the second half, relative to its largest
            value.
        rise_share: Share of the samples within which memory must have risen.
        energy_tolerance: Largest relative difference of energy counter and integrated power.
        flops_per_step: Floating-point operations of one step; with `peak_flops`, steps cannot be
            faster than their ratio.
        peak_flops: Most operations per second that the prover's hardware can do.
    """

    name: ClassVar[str] = "telemetry"

    mode: str = "default"
    alpha: float = 0.4
    busy_above: float = 0.05
    busy_share: float = 0.5
    memory_spread: float = 0.25
    rise_share: float = 0.25
    energy_tolerance: float = 0.2
    flops_per_step: float | None = None
    peak_flops: float | None = None


@dataclass(frozen=True, kw_only=True)
class Policy:
    """How strong the evidence must be before a run can be accepted.

    The defaults are the least that is called evidence; twelve random segments reach them in a run
    of any length.

    Attributes:
        min_random_segments: Randomly drawn segments that must have been judged, at least.
        probability: With which false transitions in `cheat_fraction` of the segments must have been
            seen; 0: no goal.
        cheat_fraction: Share of the segments that are false, wherever they are.

    Example:
        >>> Policy.for_detection(probability=0.99, cheat_fraction=0.01).probability
        0.99
    """

    min_random_segments: int = 1
    probability: float = 0.9
    cheat_fraction: float = 0.2

    @staticmethod
    def for_detection(*, probability: float, cheat_fraction: float) -> Policy:
        """See false transitions in this share of the segments, wherever they are, with this
        probability.
        """
        return Policy(probability=probability, cheat_fraction=cheat_fraction)

    def _checks(self, job: _core.Job) -> tuple[Check, ...]:
        """Telemetry, PEV and as many random replays as this policy needs for a run of `job`, and
        no fewer than `Replay` draws by default.
        """
        needed = _core.samples_for(
            job.segments, probability=self.probability, cheat_fraction=self.cheat_fraction
        )
        samples = max(self.min_random_segments, needed, Replay.samples)
        return Telemetry(), PEV(), Replay(samples=samples)

    def _options(self) -> dict[str, object]:
        """All fields, as the verdict takes them."""
        return asdict(self)
