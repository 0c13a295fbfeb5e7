# SPDX-License-Identifier: Apache-2.0
"""Types of potl._core: commitments, transcripts and every decision, in C++.

Sections: errors and rules; crypto and randomness; parsing; state and recording; evidence; checks;
report.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any  # Any: a caller's buffers, and trees of states

from ._core_arithmetic import *
from ._core_checks import *
from ._core_dispute import *
from ._core_documents import *
from ._core_extra_task import *
from ._core_keys import *
from ._core_spot_check import *
from ._core_statistics import *

# ---------------------------------------------------------------------------- parsing

def canonical_json(obj: object) -> bytes:
    """RFC 8785. Takes None, bool, int, float, str, list, tuple and dict with str keys; TypeError
    for anything else.

    UsageError for NaN, infinity, integers beyond 2^53-1 (write them as strings) and nesting beyond
    64. A float with an integral value is written, and read back, as that integer.
    """

def parse_json(data: Buffer, *, max_bytes: int = ...) -> JsonValue:
    """A strict JSON text: UTF-8, no repeated names, no number that a double cannot carry, nothing
    after the value.

    MalformedError or LimitError otherwise; memory and time are bounded by max_bytes.
    """

class SafetensorsFile:
    """A safetensors file, read and checked: its tensors cover the data exactly."""

    @staticmethod
    def open(path: str, *, max_bytes: int = ...) -> SafetensorsFile: ...
    @staticmethod
    def parse(data: Buffer) -> SafetensorsFile:
        """The same for bytes (which are copied)."""
    @property
    def metadata(self) -> dict[str, str]: ...
    def names(self) -> list[str]:
        """Names of the tensors in byte order."""
    def tensor(self, name: str) -> tuple[str, tuple[int, ...], memoryview]:
        """Dtype ("F32"), shape and read-only little-endian bytes, which keep the file in memory.
        KeyError if not there.
        """

def read_file(path: str, *, max_bytes: int) -> bytes:
    """A whole regular file that the caller named; LimitError when it is longer."""

def read_entry(directory: str, name: str, *, max_bytes: int) -> bytes:
    """The same of a directory that somebody else filled: no link is followed beneath it.

    MissingError: it is not there; StorageError: the directory itself is not.
    """

def write_file(path: str, data: Buffer) -> None:
    """Replaces a file, atomically and durably."""

def create_directory(path: str) -> None:
    """Makes a directory and those above it, durably; fine when it is there."""

class DirectoryLock:
    """Holds a directory for one program at a time, until it is released or goes.

    UsageError: another has it, said in these words; UnsupportedError: there are no locks.
    """

    def __init__(self, path: str, elsewhere: str, remedy: str) -> None: ...
    def release(self) -> None:
        """Lets go, also where a forked process has it, too; in that one, only of its own hold.
        Later calls do nothing.
        """

def sync_directory(path: str) -> None:
    """Makes the names in a directory durable."""

def write_safetensors(
    path: str,
    tensors: Sequence[tuple[str, str, Sequence[int], Buffer]],
    metadata: Mapping[str, str],
) -> None:
    """Writes (name, dtype, shape, bytes) tensors, atomically and durably. Equal contents give equal
    files.
    """

# ---------------------------------------------------------------------------- state and recording

class Tensor:
    """A caller's tensor at the moment of capture: a dtype name, dims and contiguous little-endian
    memory.

    `data` is the address of `nbytes` bytes in logical order, alive until capture returns (`owner`
    is kept until then). Two tensors with the same address, dtype and shape are the same tensor
    (tied weights) and become an alias. dtype: "float32", "float64", "float16", "bfloat16", "int8"
    ... "int64", "uint8" ... "uint64", "bool", "float8_e4m3fn", "float8_e5m2", "complex64".
    """

    def __init__(
        self,
        dtype: str,
        shape: Sequence[int],
        memory_format: str,
        data: int,
        nbytes: int,
        owner: object,
        *,
        elsewhere: bool = False,
    ) -> None:
        """`elsewhere`: `data` is an address in a device's memory, for `State.digest_of` alone."""

    def not_trained(self, version: int) -> None:
        """Says that training should not write this tensor, and torch's count of writes. While the
        count stays, a capture compares a part with the copy of an earlier one instead of copying.
        """

@dataclass(frozen=True, init=False)
class TensorView:
    """A tensor inside a State. `data` is a read-only memoryview that keeps the state alive."""

    dtype: str
    shape: tuple[int, ...]
    memory_format: str
    path: str
    data: memoryview

class Alias:
    """A tensor that shares the memory of the tensor at `path`."""

    def __init__(self, path: str) -> None: ...
    @property
    def path(self) -> str: ...

class Reference:
    """Where an operand of an operator comes from. No state holds one."""

    def __init__(self, path: str) -> None: ...

class Outline:
    """A tensor by its form and content root alone."""

    def __init__(
        self, dtype: str, shape: Sequence[int], memory_format: str, root: Buffer
    ) -> None: ...

def encode_tree(tree: object) -> bytes:
    """The bytes of a state whose tensors are outlines and aliases, or of an operator, which may
    hold references. TypeError names the path of an unsupported value.
    """

def digest_of_encoding(encoding: Buffer) -> bytes:
    """The digest of the state with these bytes."""

def safetensors_dtype(torch_name: str) -> str:
    """The safetensors name of torch's: "float32" is "F32", "uint8" is "U8"."""

class State:
    """An immutable copy of a training state: a tree of None, bool, int, float, str, bytes, list,
    tuple, dict, tensors.
    """

    @staticmethod
    def capture(tree: object, *, whole: bool = True) -> State:
        """Copies every `Tensor` in `tree` (memcpy without the GIL). TypeError names the path of an
        unsupported value.

        Those that are not trained are compared with their copy, wholly or in a part. UsageError
        names one that was written in places that torch did not count.
        """

    @staticmethod
    def adopt(tree: object, owner: object) -> State:
        """The same without a copy: a state over the memory of `tree`'s tensors, which `owner` keeps
        and nobody writes any more.
        """

    @staticmethod
    def digest_of(tree: object, roots: Callable[[list[tuple[int, int]]], Iterable[bytes]]) -> bytes:
        """The digest that a capture of `tree` would have, whose tensors may be elsewhere.

        `roots` is asked once, for the address and number of bytes of each of those, and returns
        their content roots. Copies nothing.
        """

    def would_equal(self, tree: object) -> bool:
        """Whether a capture of `tree` would have this digest. Copies and hashes nothing."""

    @staticmethod
    def load(path: str, expected: bytes, *, max_bytes: int = ...) -> State: ...
    @staticmethod
    def load_unverified(path: str, *, max_bytes: int = ...) -> State:
        """For the prover's own files (resume, init): the digest is computed, not compared."""
    def save(self, path: str) -> None: ...
    def digest(self, threads: int = 1) -> bytes: ...
    def roots(self, threads: int = 1) -> dict[str, bytes]:
        """The content roots of the tensors, aliases left out, by path."""

    def tree(self) -> Any:
        """The tree with `TensorView` and `Alias` leaves."""
    @property
    def nbytes(self) -> int: ...

class Job:
    """A parsed, validated job (canonical JSON). The fields: include/potl/transcript/job.hpp."""

    @staticmethod
    def parse(text: Buffer) -> Job: ...
    @property
    def text(self) -> bytes: ...
    @property
    def id(self) -> bytes: ...
    def fields(self) -> JobDocument:
        """The whole document as Python values."""

    def first_steps(self) -> list[str]:
        """The digests that a job in an exact arithmetic pins of where its first steps end.

        Raises:
            MalformedError: It pins something else.
        """
    @property
    def seed(self) -> int: ...
    @property
    def steps(self) -> int: ...
    @property
    def epochs(self) -> int: ...
    @property
    def steps_per_epoch(self) -> int: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def accumulate(self) -> int: ...
    @property
    def checkpoint_every(self) -> int: ...
    @property
    def max_segment(self) -> int: ...
    @property
    def store_every(self) -> int:
        """0: every checkpoint is stored."""
    @property
    def segments(self) -> int:
        """How many there are: a function of the job alone."""
    @property
    def data_count(self) -> int: ...
    @property
    def data_root(self) -> bytes: ...
    @property
    def initial_state(self) -> bytes: ...
    @property
    def arithmetic(self) -> str: ...
    @property
    def trainer(self) -> bytes | None: ...
    def epoch_of(self, step: int) -> int: ...
    def sample_ids(self, step: int) -> list[int]: ...
    def rates_at(self, step: int) -> list[float] | None: ...
    def is_checkpoint(self, step: int) -> bool: ...

def holds_run(directory: str) -> bool:
    """Whether a directory holds the log of a run, to be resumed.

    Raises:
        UsageError: It is no directory, or holds no log and files that are not a run's.
    """

class Recorder:
    """Appends to a run directory. Hashing and writing happen on a background thread.

    `append_step` returns at once unless more than two captured states wait; an error of
    the background thread (full disk) is raised by the next call. `acknowledged()` is the last step
    that fdatasync has confirmed.
    """

    @staticmethod
    def create(
        directory: str,
        job: Job,
        key: SigningKey,
        *,
        software: str,
    ) -> Recorder:
        """A new run: writes job.json and the header. UsageError when the directory holds a run,
        or files that are not a run's.
        """

    @staticmethod
    def resume(
        directory: str,
        job: Job,
        key: SigningKey,
        *,
        software: str,
        past_limits: bool = False,
    ) -> tuple[Recorder, int, State]:
        """Recovers an interrupted run: drops a torn tail, picks the newest intact checkpoint,
        appends a signed resume record. Returns the recorder, the step to go on from and the state
        there. UsageError for another job's run, a closed run, a key other than the run's, or
        more than the job allows. `past_limits` is for forgers.
        """

    def append_initial(self, state: State) -> None: ...
    def append_step(
        self,
        state: State | bytes,
        *,
        step: int,
        epoch: int,
        sample_ids: Sequence[int],
        loss: float,
        rates: Sequence[float],
        random_draws: int,
        flags: int,
        duration_ns: int,
        checkpoint: bool,
        rounding_log: Buffer | None = None,
    ) -> None:
        """`state`: its digest suffices where the step is no checkpoint. `rounding_log`: its
        canonical bytes (log64).
        """

    def acknowledged(self) -> int: ...
    def flush(self) -> None:
        """Waits until everything appended is durable."""
    def publish(self) -> str:
        """A signed note of the log as it is now: an intermediate root, to be extended by the
        commitment.
        """
    def close(self) -> None:
        """Appends the close record (binding telemetry.log) and syncs."""
    def abandon(self) -> None:
        """Stops the thread after what is queued is durable, without a close record (a crash, an
        exception).
        """

MAX_JOB_BYTES: int
TOLERANCE_CAP: float  # largest tolerance of a replay, as a share of the segment's update
MAX_RESUMES: int  # both unless a job says otherwise
SKIPPED: int  # flags of a step record
NON_FINITE: int

LOG_NAME: str
JOB_NAME: str
TELEMETRY_NAME: str
COMMITMENT_NAME: str
KEY_NAME: str
CHECKPOINT_FOLDER: str
ROUNDING_FOLDER: str

def checkpoint_entry(step: int, branch: int) -> str:
    """The file of the state after a step, in a run directory."""

def rounding_entry(branch: int) -> str:
    """The file of a branch's rounding logs."""

FIRST_STEPS: str
"""The member of a job's "task" that says where its first steps end."""

def pins_first_steps(arithmetic: str) -> bool:
    """Whether a job in this arithmetic says where its first steps end."""

def end_of_step(state: bytes, loss: float) -> str:
    """The digest of a step's end: of the digest of its state, and the loss that it reports."""

def digest_of_order(steps: Iterable[Buffer]) -> bytes:
    """Over the samples of every step of a job, each a contiguous buffer of int64."""

def affordable_stride(segments: int, state_bytes: int) -> int:
    """A run of so many segments keeps the state of one end in how many, unless its job says
    otherwise.
    """

def commit_run(directory: str, key: SigningKey) -> str:
    """The signed note over a closed run; also written to <directory>/commitment. Refuses a second,
    different one.
    """

def inspect_run(directory: str) -> RunFacts:
    """What a run directory holds, for people; a JSON document. Damage is shown, not refused."""

def prune_plan(directory: str, *, max_bytes: int, archive: bool = False) -> PrunePlan:
    """Which checkpoints can go so that the run stays verifiable (job.max_segment), or can at least
    be derived again.
    """

# ---------------------------------------------------------------------------- evidence

@dataclass(frozen=True, init=False)
class Violation:
    """What a recorded state has that no honest one does. str() gives path and reason."""

    rule: str
    reason: str
    @property
    def path(self) -> str:
        """Of the value, keys joined by "/"."""

def unlawful(state: State, laws: object) -> Violation | None: ...
def copies_of(states: Sequence[State], places: Sequence[Sequence[str]]) -> dict[str, list[str]]:
    """The tensors that start with the values of a parameter, or as zeros, and then move as an
    average of it does, with the parameters that each may be of; and those of `ema=`.

    Args:
        states: The initial one, and those after each of the first steps.
        places: Of each parameter, the paths of what belongs to it: what its optimizer keeps first.
    """

def rough_sums() -> list[str]:
    """The operators whose results `roughen` moves, as torch names them."""

def roughness(seed: int) -> float:
    """How far, in units of roundoff of the typical element of a row."""

def with_copies(
    still: Sequence[tuple[list[str], bytes]], copies: dict[str, list[str]], roundings: int
) -> list[tuple[list[str], bytes, int]]:
    """What `StillElements.found` gives, with the copies of parameters. An element of a copy that
    may be of several counts if none of these had a gradient there.

    Args:
        still: Paths of what belongs to a parameter, and a mask of its elements.
        copies: From `copies_of`.
        roundings: How often an average was taken.

    Returns:
        Paths, mask, and how often every element was rounded: only those of an average are.
    """

def averages_squares(momentum: float | None, first: TensorView) -> bool:
    """Whether a running variance that begins so cannot be below zero later."""

def not_finite(recorded: State, initial: State, masks: list[str] | None = None) -> str:
    """What `recorded` holds that no honest state does, such as "model/parameters/w holds NaN", or
    "". An infinity that `initial` has in the same place is a mask.
    """

def default_ledger(job: Buffer) -> str:
    """The ledger of a job in the user's state directory. UsageError: there is none."""

def recall(path: str, job: Buffer) -> tuple[list[LedgerChallenge], list[str]]:
    """The challenges and commitments in the ledger of a job; none where there is no file.

    UsageError: it is not the ledger of this job.
    """

def remember(
    path: str,
    job: Buffer,
    commitment: str | None,
    challenge: tuple[Buffer, Iterable[tuple[str, object]], float, Buffer | None] | None,
) -> tuple[list[LedgerChallenge], list[str]]:
    """Adds to it, durably and under a lock, and returns what was there before."""

class Evidence:
    """A run after the structural audit. Findings say what is wrong; only unreadable input and I/O
    raise.
    """

    @staticmethod
    def open(
        directory: str,
        *,
        job: Job | None,
        commitment: str | None,
        published: Sequence[str] = (),
        other_commitments: Sequence[str] = (),
        max_checkpoint_bytes: int | None = None,
        expected_log: bytes | None = None,
        fetch: Callable[[str, int, int], None] | None = None,
    ) -> Evidence:
        """Refuses any log but `expected_log`. `fetch(name, offset, size)` brings what is read."""
    @property
    def job(self) -> Job: ...
    @property
    def job_is_own(self) -> bool: ...
    @property
    def committed(self) -> bool: ...
    @property
    def closed(self) -> bool:
        """Whether the trainer closed the record: nothing is added to it any more."""
    @property
    def commitment_digest(self) -> bytes: ...
    @property
    def rejected(self) -> bool:
        """Whether the audit alone rejects the run, so that nothing of it is replayed."""
    def findings(self) -> list[Finding]:
        """The fields of include/potl/core/finding.hpp: "check", "rule", "result", "reason", ..."""
    def steps(self) -> StepColumns:
        """The effective history."""
    def has_diverged_by(self, step: int) -> bool:
        """Whether a loss or a gradient was not finite by the next step, and was not skipped."""
    def superseded_steps(self) -> StepColumns: ...
    def superseded(self) -> list[SupersededRange]: ...
    def checkpoints(self) -> list[StoredCheckpoint]:
        """Of the effective history, by step, only files that exist."""
    def missing_checkpoints(self) -> list[StoredCheckpoint]:
        """The same of those that a segment begins or ends with, and that are not stored."""
    def telemetry(self) -> bytes: ...
    @property
    def log_digest(self) -> bytes:
        """SHA-256 of transcript.log as it was read."""
    @property
    def log_bytes(self) -> int: ...
    def expect_state_bytes(self, initial: int) -> None:
        """The size of the verifier's own initial state; far larger checkpoints are not read
        (LimitError) unless `max_checkpoint_bytes` says otherwise.
        """
    def load_state(self, step: int, branch: int | None = None) -> State:
        """MissingError: withheld; MismatchError: tampered; StorageError, LimitError: the verifier's
        own trouble.
        """
    def load_rounding_log(self, step: int, branch: int | None = None) -> bytes:
        """What the step's leaf binds. MissingError: withheld, or none is bound; MismatchError."""

    def rounding_digest(self, step: int, branch: int | None = None) -> bytes | None: ...
    def not_finite(self, state: State) -> str:
        """What the state holds that no honest one does, such as a NaN in a weight; or nothing."""

    def state_digest(self, step: int) -> bytes: ...

# ---------------------------------------------------------------------------- checks

def strength(segments: int, sampled: int, cheat_fraction: float) -> float:
    """Probability that `sampled` of `segments` hit one of
    max(1, floor(cheat_fraction * segments)) false ones."""

def samples_for(segments: int, *, probability: float, cheat_fraction: float) -> int:
    """The smallest sample with that strength."""

def storage_plan(
    *,
    steps: int,
    step_seconds: float,
    state_bytes: float,
    budget_bytes: float,
    probability: float = 0.95,
    cheat_fraction: float = 0.05,
    rederive: bool = False,
) -> StoragePlan:
    """The checkpoint interval that makes verification cheapest within a disk budget."""

class TelemetrySampler:
    """A thread that appends one line per interval to telemetry.log: NVML when there is a GPU, /proc
    otherwise.
    """

    def __init__(self, path: str) -> None: ...
    def start(self) -> None: ...
    def mark_step(self, step: int, epoch: int) -> None: ...
    def stop(self) -> None: ...

# ---------------------------------------------------------------------------- errors and rules

class PotlError(Exception):
    """Base of potl's errors. `remedy` says what the reader can do about it, or is empty."""

    message: str
    remedy: str
    def __init__(self, message: str = "", remedy: str = "") -> None: ...

class MalformedError(PotlError):
    """Bytes that do not follow the format."""

class LimitError(PotlError):
    """A declared size, count or depth beyond what is accepted."""

class MismatchError(PotlError):
    """Well-formed, but a digest, proof or signature does not fit."""

class MissingError(PotlError):
    """Something that should be there is not."""

class StorageError(PotlError):
    """The operating system refused a read or a write."""

class UsageError(PotlError):
    """The caller's mistake."""

class UnsupportedError(PotlError):
    """A valid request that this build or version cannot serve."""

class InternalError(PotlError):
    """A defect of potl itself."""

def version() -> str: ...
def rules() -> list[tuple[str, str]]:
    """Every rule that a verification applies: id and meaning."""

def rule_enabled(rule: str) -> bool: ...

# ---------------------------------------------------------------------------- hashes and trees

CONTENT_CHUNK_BYTES: int

def sha256(data: ReadableBuffer) -> bytes: ...
def sha512(data: ReadableBuffer) -> bytes: ...
def hmac_sha256(key: ReadableBuffer, data: ReadableBuffer) -> bytes: ...
def hmac_sha512(key: ReadableBuffer, data: ReadableBuffer) -> bytes: ...
def equal_constant_time(a: ReadableBuffer, b: ReadableBuffer) -> bool: ...
def content_root(data: ReadableBuffer) -> bytes:
    """RFC 6962 root of the bytes in chunks of CONTENT_CHUNK_BYTES; releases the GIL."""

def open_chunk(data: ReadableBuffer, index: int) -> list[bytes]:
    """Inclusion proof of one chunk. UsageError when there is no such chunk."""

def verify_chunk(
    root: Buffer, length: int, index: int, chunk: ReadableBuffer, proof: Sequence[Buffer]
) -> None:
    """Returns when `chunk` is chunk `index` of `length` bytes under `root`.

    MismatchError: it is not shown to be; MalformedError: it cannot be.
    """

def leaf_hash(data: ReadableBuffer) -> bytes: ...

class MerkleTree:
    """RFC 6962 tree over leaf hashes; every earlier size stays available. UsageError beyond the
    tree.
    """

    def __init__(self) -> None: ...
    def append(self, leaf_hash: Buffer) -> int:
        """Returns the index of the new leaf."""
    def __len__(self) -> int: ...
    @property
    def size(self) -> int: ...
    def leaf(self, index: int) -> bytes: ...
    def root(self) -> bytes: ...
    def root_at(self, size: int) -> bytes: ...
    def inclusion_proof(self, index: int, size: int) -> list[bytes]: ...
    def consistency_proof(self, old_size: int, new_size: int) -> list[bytes]: ...

def verify_inclusion(
    index: int, size: int, leaf_hash: Buffer, proof: Sequence[Buffer], root: Buffer
) -> None:
    """MismatchError: not shown to be in the tree.

    MalformedError: no such leaf, or a proof of wrong length.
    """

def verify_consistency(
    old_size: int, new_size: int, proof: Sequence[Buffer], old_root: Buffer, new_root: Buffer
) -> None:
    """MismatchError: the new tree is not shown to extend the old one.

    MalformedError: impossible sizes (an old size of 0 included), or a proof of wrong length.
    """

def verify_subtree_inclusion(
    index: int, start: int, end: int, leaf_hash: Buffer, proof: Sequence[Buffer], root: Buffer
) -> None: ...
def verify_subtree_consistency(
    start: int, end: int, size: int, proof: Sequence[Buffer], subtree_root: Buffer, root: Buffer
) -> None: ...

# ------------------------------------------------------------------------ challenges and randomness

def fresh_nonce() -> bytes: ...
def draw_without_replacement(
    nonce: Buffer, commitment: Buffer, label: str, population: int, count: int
) -> list[int]:
    """`count` different indices below `population`, in the order drawn."""

def derive_key(seed: int, label: str, *indices: int) -> bytes:
    """32 bytes that are a function of all arguments."""

def permutation(key: Buffer, count: int) -> bytes:
    """A random permutation of range(count) as little-endian int64 values."""

# ---------------------------------------------------------------------------- environment

def fp_environment() -> dict[str, tuple[bool, str]]:
    """What holds in the calling thread: name -> (whether, meaning or cause); see
    include/potl/numeric/detail/fp_environment.hpp.
    """

def build_info() -> BuildInfo: ...
def processor_name() -> str:
    """As the processor calls itself; "unknown" if it does not."""
