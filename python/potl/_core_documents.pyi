# SPDX-License-Identifier: Apache-2.0
"""Types of potl._core, continued: the dictionaries that it gives and takes. No module of its own,
and nothing here is there when potl runs: name these types in annotations alone.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias, TypedDict

Json: TypeAlias = bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None
"""A value of JSON, to be read or written."""

JsonValue: TypeAlias = bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None
"""The same as parse_json makes it."""

Options: TypeAlias = dict[str, object]
"""Options of a check, or of the policy, by name. C++ looks at each value."""

# ---------------------------------------------------------------------------- job

class JobData(TypedDict):
    count: int
    root: str

class JobInitialState(TypedDict):
    digest: str
    source: Literal["seed", "file"]

class JobRates(TypedDict):
    """Learning rates of so many steps, each as the hexadecimal digits of a double."""

    steps: int
    rates: list[str]

class JobLimits(TypedDict):
    max_resumes: int
    max_superseded: int

class JobOrder(TypedDict):
    """What binds an order that the task brings."""

    samples: int
    steps: str

class JobAlways(TypedDict):
    format: str
    seed: int
    steps: int
    epochs: int
    batch_size: int
    accumulate: int
    drop_last: bool
    checkpoint_every: int
    max_segment: int
    data: JobData
    initial_state: JobInitialState
    learning_rates: list[JobRates] | None
    arithmetic: str
    tolerance_cap: float
    limits: JobLimits
    trainer: str | None
    task: Mapping[str, Json]
    environment: Mapping[str, Json]

class JobDocument(JobAlways, total=False):
    """A job. What `task` and `environment` hold is the framework's."""

    order: JobOrder
    store_every: int

# ---------------------------------------------------------------------------- a run

class StepColumns(TypedDict):
    """Steps of a history, in columns."""

    step: list[int]
    epoch: list[int]
    loss: list[float]
    rates: list[list[float]]
    flags: list[int]
    duration_ns: list[int]
    random_draws: list[int]
    state: list[bytes]

class SupersededRange(TypedDict):
    """`start_branch`: of the state of `from_step`."""

    branch: int
    from_step: int
    last_step: int
    start_branch: int

class StoredCheckpoint(TypedDict):
    step: int
    branch: int
    state: bytes
    file_bytes: int

class StoredFile(TypedDict):
    name: str
    step: int
    branch: int
    bytes: int

class StepGap(TypedDict):
    first_step: int
    last_step: int

class ResumeRange(TypedDict):
    from_step: int
    last_step: int

class RunFacts(TypedDict):
    """run_facts: `losses` are at most 512 means."""

    job: str | None
    trainer: str | None
    software: str
    agreed_steps: int | None
    steps: int
    superseded_steps: int
    records: int
    root: str
    log_bytes: int
    telemetry_bytes: int
    checkpoint_bytes: int
    rounding_logs: int
    rounding_bytes: int
    closed: bool
    committed: bool
    seconds: float
    checkpoints: list[StoredFile]
    unused: list[str]
    losses: list[float | None]
    gaps: list[StepGap]
    resumes: list[ResumeRange]
    damage: list[str]

class PrunePlan(TypedDict):
    """Files that go and stay; bytes and longest distance between states, in steps, afterwards."""

    remove: list[str]
    keep: list[str]
    bytes: int
    segment: int

class StoragePlan(TypedDict):
    """Intervals in steps; the fractions are of the training time."""

    checkpoint_every: int
    store_every: int
    segments: int
    samples: int
    bytes: float
    verification_fraction: float
    rederivation_fraction: float

class BuildInfo(TypedDict):
    openssl: str
    compiler: str
    hashes_chunks_together: bool
    assertions: bool

# ---------------------------------------------------------------------------- checks

class NewCheckField(TypedDict):
    """An option of a check, as Python describes it."""

    name: str
    type: str
    default: bool | int | float | str | list[str] | None
    doc: str

class CheckField(NewCheckField):
    """The same as the tables have it: with bounds and choices. `type`: "boolean", "integer",
    "number", "optional number", "string" or "strings"."""

    low: float | None
    high: float | None
    choices: list[str]

class ScreenedSegment(TypedDict):
    """`ratio`: of the tensor that is furthest from its usual movement."""

    start: int
    end: int
    ratio: float
    tensor: str

# Nonce, checks with their options, seconds since 1970, digest of what the trainer was handed.
LedgerChallenge: TypeAlias = tuple[
    str, tuple[tuple[str, dict[str, object]], ...], float, str | None
]

class AskedCheck(TypedDict):
    check: str
    options: Options

class ReportContext(TypedDict, total=False):
    """What a report says beside the findings: `nonce` is hexadecimal, `reproduce` the command
    line, `costs` are seconds by check."""

    nonce: str
    reproduce: str
    software: str
    seconds: float
    costs: dict[str, float]
    checks: list[AskedCheck]

# ---------------------------------------------------------------------------- rounding logs

class StepLog(TypedDict):
    """A trainer's log of one step."""

    step: int
    bytes: bytes
    digest: bytes
    values: int
    entries: int

class LogRejection(TypedDict):
    fault: str
    message: str
    proof: bytes | None

class WatchedElement(TypedDict):
    """What a referee finds at an element of a rounding log."""

    fault: str
    value: float
    distance: float
    window: float
    step: float

class StepAudit(TypedDict):
    """What an auditor found in a step; `rejections` are the first of `rejected`."""

    step: int
    values: int
    entries: int
    own_ties: int
    corrections: int
    exact_dots: int
    moved_l2: float
    reachable_l2: float
    reachable_linf: float
    rejected: int
    rejections: list[LogRejection]

class DecodedLog(TypedDict):
    bits: int
    values: int
    entries: list[tuple[int, bool]]

class Threshold(TypedDict):
    tau: float
    mismatches: int
    uncovered: int
    logged: float
