# SPDX-License-Identifier: Apache-2.0
"""Types of potl._core: the registry, requests, measurements, findings, the replayer, the report."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from ._core import Evidence, State
from ._core_documents import (
    CheckField,
    NewCheckField,
    Options,
    ReportContext,
    ScreenedSegment,
    StepAudit,
)

def check_fields(check: str) -> list[CheckField]:
    """The field table of a check, or of "policy"."""

def register_check(
    name: str,
    *,
    make: Callable[[Options], object],
    may_reject: bool,
    is_needed: bool,
    looks_at: str,
    cannot_see: Sequence[str],
    fields: Sequence[NewCheckField],
    cost: str,
) -> None:
    """Makes a check of Python's known; `make` gives it, from its options."""

Outcome: TypeAlias = Literal["pass", "reject", "inconclusive", "note"]
Status: TypeAlias = Literal[
    "ok",
    "withheld",
    "tampered",
    "verifier_error",
    "unrepeatable",
    "unknown_form",
    "unlawful",
    "prover_error",
]

class Finding:
    """One piece of evidence (include/potl/core/finding.hpp)."""

    check: str
    rule: str
    result: Outcome
    reason: str
    first_step: int | None
    last_step: int | None
    statistic: float | None
    threshold: float | None
    error_probability: float | None
    facts: list[tuple[str, str | bool | int | float]]
    details: dict[str, str | bool | int | float]
    def __init__(
        self,
        *,
        check: str = "",
        rule: str = "",
        result: Outcome = "note",
        reason: str = "",
        first_step: int | None = None,
        last_step: int | None = None,
        statistic: float | None = None,
        threshold: float | None = None,
        error_probability: float | None = None,
        facts: Sequence[tuple[str, str | bool | int | float]] = (),
    ) -> None: ...

class TensorDistance:
    """How far one tensor is off (include/potl/checks/request.hpp)."""

    path: str
    count: float
    l2: float
    excess: float
    rounding: float
    update_l2: float
    replayed_update_l2: float
    rounding_only: bool
    judged: Literal["floats", "alone", "unmoved", "steady", "codes", "code_places"]
    def __init__(self, **fields: str | float | bool) -> None: ...

class GroupDistance:
    """How far a group of tensors is off: "parameters", "buffers", "optimizer", "other", "next"."""

    group: str
    l1: float
    l2: float
    linf: float
    cosine: float
    update_l2: float
    replayed_update_l2: float
    weight_l2: float
    finite: bool
    structure_equal: bool
    excess_l2: float
    rounding_l2: float
    count: float
    tensors: list[TensorDistance]
    worst_relative: float
    worst_tensor: str
    def __init__(self, **fields: str | float | bool | list[TensorDistance]) -> None: ...

class Request(Protocol):
    """What can be asked of a replayer: the three classes below, and `potl.Request`."""

    @property
    def kind(self) -> str: ...
    @property
    def from_step(self) -> int: ...
    @property
    def steps(self) -> int: ...
    def place(self) -> str: ...
    def key(self) -> str: ...

@dataclass(kw_only=True)
class SegmentRequest:
    """Restore the state at `start`, run the agreed steps to `end`, compare."""

    start: int = 0
    end: int = 0
    why: str = ""
    branch: int = 0
    start_branch: int = 0
    superseded: bool = False
    noise_repeats: int = 0
    noise_if_equal: bool = False
    rough_repeats: int = 0
    @property
    def kind(self) -> str: ...
    @property
    def from_step(self) -> int: ...
    @property
    def steps(self) -> int: ...
    def place(self) -> str: ...
    def key(self) -> str: ...

@dataclass(kw_only=True)
class LossRequest:
    """Recompute the loss of a step's recorded batch."""

    step: int = 0
    noise_repeats: int = 0
    loss_floor: float = 0
    @property
    def kind(self) -> str: ...
    @property
    def from_step(self) -> int: ...
    @property
    def steps(self) -> int: ...
    def place(self) -> str: ...
    def key(self) -> str: ...

@dataclass(kw_only=True)
class SubsetLossRequest:
    """The mean loss over these samples at the weights of `step`."""

    step: int = 0
    sample_ids: list[int] = ...
    @property
    def kind(self) -> str: ...
    @property
    def from_step(self) -> int: ...
    @property
    def steps(self) -> int: ...
    def place(self) -> str: ...
    def key(self) -> str: ...

@dataclass(kw_only=True)
class RoundingRejection:
    """What the auditor of a step's rounding log rejected; the proof is base64."""

    step: int = 0
    fault: str = ""
    message: str = ""
    proof: str = ""

@dataclass(kw_only=True)
class RoundingSummary:
    """What the auditor of a segment's rounding logs saw, added up."""

    values: int = 0
    entries: int = 0
    corrections: int = 0
    rejected: int = 0
    moved_l2: float = 0.0
    reachable_l2: float = 0.0
    rejections: list[RoundingRejection] = ...
    def add(self, audit: StepAudit) -> None:
        """What an auditor found in one more step. The first rejections are listed."""

class AnyMeasurement(Protocol):
    """How a request ended. The other members are those of its kind."""

    @property
    def request(self) -> Any: ...
    @property
    def status(self) -> Status: ...
    @property
    def message(self) -> str: ...
    @property
    def not_finite(self) -> str: ...
    @property
    def spent(self) -> float: ...

class SegmentMeasurement:
    """segment_measurement (include/potl/checks/request.hpp)."""

    request: SegmentRequest
    status: Status
    message: str
    not_finite: str
    digest_equal: bool
    first_differing_step: int | None
    first_differing_operator: str | None
    rounding: RoundingSummary | None
    losses: list[float]
    rates: list[list[float]]
    skipped: list[bool]
    finite: list[bool]
    distances: list[GroupDistance]
    noise: list[list[GroupDistance]]
    other_arithmetic: bool
    noise_losses: list[list[float]]
    rough: list[list[GroupDistance]]
    rough_losses: list[list[float]]
    repeat_skipped: list[list[bool]]
    gradient_norm_mean: float
    load_seconds: float
    replay_seconds: float
    noise_seconds: float
    def __init__(self, **fields: object) -> None: ...
    @property
    def spent(self) -> float: ...

class LossMeasurement:
    """loss_measurement (include/potl/checks/request.hpp)."""

    request: LossRequest
    status: Status
    message: str
    not_finite: str
    loss: float
    noise: list[float]
    seconds: float
    def __init__(self, **fields: object) -> None: ...
    @property
    def spent(self) -> float: ...

class SubsetLossMeasurement:
    """subset_loss_measurement (include/potl/checks/request.hpp)."""

    request: SubsetLossRequest
    status: Status
    message: str
    not_finite: str
    mean: float
    standard_deviation: float
    seconds: float
    def __init__(self, **fields: object) -> None: ...
    @property
    def spent(self) -> float: ...

@dataclass(frozen=True, init=False)
class Measurement:
    """What a request of Python's was answered with, as `value`."""

    request: Any
    status: Status
    message: str
    not_finite: str
    value: Any
    seconds: float
    spent: float
    def __init__(
        self,
        request: object,
        *,
        status: Status = "ok",
        message: str = "",
        value: object = None,
        not_finite: str = "",
        seconds: float = 0.0,
    ) -> None: ...

def unanswered(request: Request, message: str) -> AnyMeasurement:
    """A measurement that says that the verifier could not answer, and why."""

class OperatorTrace:
    """What the operators of a step returned: names, and SHA-256 in hexadecimal digits."""

    def __init__(self, step: int, before: bytes, operators: Sequence[tuple[str, str]]) -> None: ...
    @property
    def step(self) -> int: ...
    @property
    def before(self) -> bytes: ...
    @property
    def operators(self) -> list[tuple[str, str]]: ...
    def first_difference(self, other: OperatorTrace) -> str | None: ...
    def write(self, directory: str) -> str:
        """traces/step-N.json in a run directory."""

    @staticmethod
    def read(directory: str, step: int) -> OperatorTrace | None:
        """MalformedError: what is there is no trace of that step."""

def returns_unset(operator: str) -> bool:
    """Whether an operator returns memory as it was."""

class Replayer:
    """Answers requests with a workload (include/potl/checks/replayer.hpp): an object with the
    methods of potl._verify._workload.Workload.
    """

    def __init__(
        self,
        evidence: Evidence,
        workload: object,
        *,
        timeout: float | None = None,
        derive: bool = False,
    ) -> None: ...
    def answer(self, request: Request) -> AnyMeasurement:
        """Interrupts propagate; every other exception becomes a status."""

    @property
    def workload(self) -> Any: ...
    @property
    def evidence(self) -> Evidence: ...
    @property
    def task(self) -> Any:
        """The verifier's own task, which holds the state that was restored last."""

    def load(self, step: int) -> State:
        """The recorded state after a step. What is wrong with it ends the request that asks."""

    def restore(self, step: int) -> None:
        """Makes the workload hold the recorded state after a step."""

    def run(self, start: int, end: int) -> State:
        """Runs the agreed steps from the recorded state after `start` to `end`."""

    def not_finite(self, state: State) -> str:
        """What of a state is not finite, or ""."""

def plan_check(
    check: str,
    evidence: Evidence,
    options: Options,
    nonce: bytes,
    *,
    screen: bool = True,
) -> list[Request]:
    """What a check asks for. `screen`: whether stored states are read to choose more than was
    drawn.
    """

def judge_check(
    check: str,
    evidence: Evidence,
    options: Options,
    nonce: bytes,
    answers: Sequence[AnyMeasurement],
) -> list[Finding]:
    """What the answers to a check amount to."""

class Questions:
    """What one verification asks (include/potl/checks/detail/question.hpp). `asked`: name, options
    and nonce; `earlier`: nonce, and names with options.
    """

    def __init__(
        self,
        evidence: Evidence,
        asked: Sequence[tuple[str, Options, bytes]],
        earlier: Sequence[tuple[bytes, list[tuple[str, Options]]]],
        *,
        screen: bool = True,
        from_log: bool = False,
    ) -> None: ...
    def listed(self) -> list[tuple[str, Options, bytes, bool, list[Request]]]:
        """Name, options, nonce, whether it was asked before, requests."""

    def requests(self) -> list[Request]:
        """All of them, each once, in the order in which they are cheapest to answer."""

    def settled_by(self, measurement: AnyMeasurement) -> bool:
        """Whether it alone rejects the run."""

    def answers(
        self,
        measured: Sequence[AnyMeasurement],
        more: Callable[[list[Request]], list[AnyMeasurement]],
    ) -> list[list[AnyMeasurement]]:
        """What each question got; `more` is asked where one wants to know more."""

    def judge(self, answers: Sequence[Sequence[AnyMeasurement]]) -> list[Finding]: ...
    @property
    def unknown(self) -> list[str]:
        """Names of earlier checks that are not registered."""

def compare_states(start: State, recorded: State, replayed: State) -> list[GroupDistance]:
    """Of "parameters", "buffers", "optimizer" and "other"."""

SUMS_OF_SQUARES: tuple[str, ...]
"""What torch's optimizers add up squares of gradients in, by name."""

OPTIONS_OF_RECIPES: tuple[str, ...]
"""Options of optimizers by the names that torch's give them."""

def screen_reach(evidence: Evidence, *, first_alone: bool = False) -> list[ScreenedSegment]:
    """How far stored states lie from the ones before, as a multiple of what is usual: by the first
    stretch, and unless `first_alone` by the median of all.
    """

def judge_model(
    evidence: Evidence, path: str | None, may_lack: list[str] | None = None
) -> list[Finding]:
    """Compares a delivered safetensors file with the last leaf's parameters and buffers, bit for
    bit. Without a file: a note with the digest of the last state's.
    """

def verifier_notes(
    evidence: Evidence,
    *,
    nonce_given: bool,
    ledger: str | None,
    verified_before: bool,
    unknown: Sequence[str],
    not_looked_at: int,
) -> list[Finding]:
    """What the report says of the verifier's own work. `verified_before`: the ledger at the path
    `ledger` knew commitments of the job; `unknown`: earlier checks that are not registered;
    `not_looked_at`: requests, after what rejects by itself.
    """

def conclude(
    evidence: Evidence | None,
    findings: Sequence[Finding],
    *,
    policy: Options,
    context: ReportContext,
) -> bytes:
    """The report as canonical JSON (docs/format/report.schema.json).

    `policy`: check_fields("policy").
    """
