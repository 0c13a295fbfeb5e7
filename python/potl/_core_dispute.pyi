# SPDX-License-Identifier: Apache-2.0
"""Types of potl._core, continued: audits and disputes (docs/format/dispute.md). No module of its
own: everything here is in potl._core.

Times are milliseconds by the referee's clock. Pairs are of the trainer and the auditor. Lines have
no newline.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ._core import Job, PublicKey, ReadableBuffer, SigningKey, State

DisputeParty: TypeAlias = Literal["trainer", "auditor"]
DisputeLevel: TypeAlias = Literal["steps", "operators", "chunks"]
DisputeRulingReason: TypeAlias = Literal["opening", "structure", "value", "referee"]
DisputeReason: TypeAlias = Literal[
    DisputeRulingReason,
    "agreement",
    "silence",
    "garbage",
    "other_run",
    "other_parent",
    "other_place",
    "contradiction",
    "commitment",
]

class Repetition:
    """A run and its repetition by an auditor, compared as both logs grow."""

    def __init__(self, job: Job) -> None: ...
    def hear(self, more: ReadableBuffer) -> None:
        """Bytes of the run's log from `position` on. MalformedError, UnsupportedError,
        MismatchError: they are not the continuation of this job's log.
        """
    def hear_own(self, more: ReadableBuffer) -> None:
        """The same of the auditor's log. InternalError: a step came out in two ways."""
    @property
    def position(self) -> int: ...
    @property
    def own_position(self) -> int: ...
    @property
    def heard_steps(self) -> int: ...
    @property
    def is_closed(self) -> bool: ...
    @property
    def agreed_steps(self) -> int: ...
    @property
    def difference(self) -> tuple[int, str, str] | None:
        """Step, field and sentence of the first one."""

    def rounding_of(self, step: int) -> tuple[int, int, int, bytes] | None:
        """Branch, offset, size and digest of the log of a step that is repeated next (log64)."""

    @property
    def other_rounding(self) -> int | None:
        """The first step that was recorded with another rounding log than was followed."""

WORK_HEADER_BYTES: int

def work_code(
    nonce: ReadableBuffer, job_id: ReadableBuffer, step: int, before: State, after: State
) -> tuple[bytes, int]:
    """The code of a step, and how many chunks of the state it changed."""

def work_file_header(job_id: ReadableBuffer, nonce: ReadableBuffer) -> bytes: ...
def read_work_file(
    data: ReadableBuffer, job_id: ReadableBuffer, nonce: ReadableBuffer, max_steps: int
) -> list[bytes]:
    """The codes of steps 1, 2, ... MalformedError, MismatchError, LimitError."""

def sign_work_note(
    job_id: ReadableBuffer,
    nonce: ReadableBuffer,
    commitment: ReadableBuffer | None,
    codes: Iterable[bytes],
    key: SigningKey,
) -> str: ...
def verify_work_note(
    text: str | bytes,
    job_id: ReadableBuffer,
    nonce: ReadableBuffer,
    codes: Iterable[bytes],
    key: PublicKey,
) -> bytes | None:
    """The SHA-256 of the trainer's commitment, if the note names one. MalformedError: it is none;
    MissingError, MismatchError: the key did not sign these codes.
    """

@dataclass(frozen=True, init=False)
class DisputeNext:
    """The next bisection, inside what both opened: inner_bisection."""

    kind: DisputeLevel
    size: int
    subject: int
    claimed: tuple[bytes, bytes]
    def __init__(
        self,
        kind: DisputeLevel,
        size: int,
        *,
        subject: int = 0,
        length: int = 0,
        claimed: tuple[bytes, bytes] | None = None,
    ) -> None: ...
    @property
    def length(self) -> int:
        """Of chunks: the bytes of the result."""

class DisputeQuestion:
    """What the referee asks both for."""

    def __init__(self, text: bytes, max_bytes: int) -> None: ...
    @property
    def text(self) -> bytes: ...
    @property
    def max_bytes(self) -> int: ...

@dataclass(frozen=True, init=False)
class DisputeRuling:
    """The end, as far as the referee decides it."""

    why: DisputeRulingReason
    trainer_wrong: bool
    auditor_wrong: bool
    evidence: bytes
    def __init__(
        self,
        why: DisputeRulingReason,
        *,
        trainer_wrong: bool = False,
        auditor_wrong: bool = False,
        evidence: bytes = b"",
    ) -> None: ...

DisputeDecision: TypeAlias = DisputeNext | DisputeQuestion | DisputeRuling

class DisputeClaim:
    """A digest, and between steps the record of the party's log that holds it."""

    def __init__(
        self,
        value: bytes,
        *,
        record: bytes | None = None,
        index: int = 0,
        proof: Iterable[bytes] = (),
    ) -> None: ...

@dataclass(frozen=True, init=False)
class DisputeOpening:
    """A leaf, and its inclusion proof in the tree that ends with it."""

    leaf: bytes
    proof: list[bytes]
    def __init__(self, leaf: bytes, proof: Iterable[bytes]) -> None: ...

class DisputeVerdict:
    """Who lost, and why."""

    @property
    def winner(self) -> DisputeParty | None: ...
    @property
    def trainer_wrong(self) -> bool: ...
    @property
    def auditor_wrong(self) -> bool: ...
    @property
    def why(self) -> DisputeReason: ...

class DisputeJudged:
    """What a stored transcript says."""

    @property
    def verdict(self) -> DisputeVerdict: ...
    @property
    def believed(self) -> int:
        """Decisions of the referee that were not recomputed."""

    @property
    def step(self) -> int:
        """The disputed step, 0 when it was not found."""

class DisputeSetting:
    """What everybody knows before a dispute."""

    def __init__(
        self, job: Job, *, trainer: PublicKey, auditor: PublicKey, referee: PublicKey
    ) -> None: ...

@dataclass(frozen=True, init=False)
class DisputeBisection:
    """The parties agree at `low` and differ at `high`."""

    kind: DisputeLevel
    size: int
    low: int
    high: int
    agreed: bytes
    claimed: tuple[bytes, bytes]
    asked: bool

class DisputeTurn:
    """What a party is expected to do."""

    @property
    def who(self) -> DisputeParty: ...
    @property
    def level(self) -> int: ...
    @property
    def index(self) -> int: ...
    @property
    def what(self) -> Literal["claim", "opening", "answer"]: ...
    @property
    def deadline(self) -> int: ...

class DisputeProceedings:
    """A transcript as far as it goes."""

    def __init__(self, setting: DisputeSetting, first_line: str) -> None: ...
    def append(self, line: str) -> None:
        """MalformedError, LimitError, MismatchError: it is not the next line; nothing changes."""

    @property
    def verdict(self) -> DisputeVerdict | None: ...
    @property
    def expected(self) -> DisputeTurn | None:
        """None in the referee's turn, and after the verdict."""

    @property
    def is_referees_turn(self) -> bool: ...
    @property
    def bisections(self) -> list[DisputeBisection]: ...
    @property
    def moves(self) -> int: ...
    @property
    def head(self) -> bytes: ...
    @property
    def step(self) -> int:
        """The disputed step, from 1; 0 as long as it is not found."""

    def final_state(self, party: DisputeParty) -> bytes:
        """The digest of a party's state at the end of the job."""

    @property
    def inner(self) -> DisputeNext | None:
        """The bisection that is being played, as the referee opened it. None between steps."""

    @property
    def openings(self) -> tuple[DisputeOpening, DisputeOpening]: ...
    @property
    def asked(self) -> DisputeQuestion: ...
    @property
    def answers(self) -> tuple[bytes, bytes]: ...
    @property
    def message_bytes(self) -> int:
        """The most bytes that a message can have here and now."""

    def trainers_rounding(
        self, shown: Iterable[tuple[bytes, int, Sequence[bytes]]]
    ) -> tuple[bytes, int] | None:
        """Digest and size of the rounding log of the disputed step; None if its record binds none.
        `shown`: record, index and proof of the step's last record, and of all resumes behind it.
        MismatchError, MalformedError: they are not those of the trainer's commitment.
        """

class DisputeReferee:
    """The referee's desk. What it returns is the line to store, and then to send to both."""

    @staticmethod
    def open(
        setting: DisputeSetting,
        *,
        trainer: str,
        auditor: str,
        turn_ms: int,
        key: SigningKey,
        at: int,
    ) -> DisputeReferee:
        """`trainer` and `auditor`: the texts of their commitments. MismatchError: one is not."""

    @staticmethod
    def resume(
        setting: DisputeSetting, transcript: str, *, key: SigningKey, at: int
    ) -> DisputeReferee: ...
    def receive(self, sender: DisputeParty, text: bytes, *, at: int) -> str | None:
        """None: it changes nothing."""

    def tick(self, *, at: int) -> str | None: ...
    def decide(self, decision: DisputeDecision, *, at: int) -> str:
        """MismatchError: it is not the time for it, or it does not fit what was opened."""

    def author(self, text: bytes) -> DisputeParty | None: ...
    @property
    def proceedings(self) -> DisputeProceedings:
        """A copy of what it knows now."""

    @property
    def transcript(self) -> str: ...

class DisputePlayer:
    """A party that says what it computed. The functions are asked about the expected move."""

    def __init__(
        self,
        setting: DisputeSetting,
        party: DisputeParty,
        *,
        key: SigningKey,
        first_line: str,
        claim: Callable[[DisputeProceedings], DisputeClaim],
        opening: Callable[[DisputeProceedings], DisputeOpening],
        answer: Callable[[DisputeProceedings], bytes],
    ) -> None: ...
    def follow(self, line: str) -> None: ...
    def next_message(self) -> str | None:
        """The message to send until a line answers it; given once."""

    @property
    def proceedings(self) -> DisputeProceedings: ...

def judge_dispute(
    setting: DisputeSetting,
    transcript: str,
    again: Callable[[DisputeProceedings, DisputeDecision], str | None] | None = None,
) -> DisputeJudged:
    """Judges a stored transcript. `again` computes a decision of the referee from what was opened
    before it, and says what is wrong with it, or None. MissingError: there is no verdict.
    MismatchError, MalformedError, LimitError: it is not a transcript of this setting.
    """

MAX_ROUNDING_LOG_BYTES: int
"""Of a step."""

def part_of_rounding_log(
    log: ReadableBuffer, *, bits: int, first: int, count: int, place: int, values: int
) -> bytes:
    """The entries of `count` values from `first` on, from `place` on in a log of `values`. Bytes
    that are not a log of so many bits count as one without entries.
    """
