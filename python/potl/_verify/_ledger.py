# SPDX-License-Identifier: Apache-2.0
"""What a verifier remembers about a job: the challenges it drew and the commitments it was shown.

A prover that may ask for another draw passes sooner or later (a 10 % cheat against 12 samples
passes once in 28 %), so every verification repeats all earlier challenges of its job. The same file
shows when a prover presents a second commitment for a job. It is the verifier's own small file;
losing it loses that memory and nothing else.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .. import _core
from .._base._durable import replace_private, state_folder
from .._base._errors import MissingError, StorageError, UsageError

_VERSION = 1
_MAX_BYTES = 1 << 30


@dataclass(frozen=True)
class Challenge:
    """One nonce that was used, and what was asked with it.

    Attributes:
        nonce: The nonce, hexadecimal.
        checks: Pairs of check name and options, as planned then.
        time: Seconds since the epoch.
        document: SHA-256, hexadecimal, of the challenge that was written for the trainer; None when
            it was asked at once.
    """

    nonce: str
    checks: tuple[tuple[str, Mapping[str, object]], ...]
    time: float
    document: str | None = None


@dataclass(frozen=True)
class Memory:
    """What was known before the present verification.

    Attributes:
        challenges: Earlier challenges, oldest first.
        commitments: Notes shown for this job, oldest first, without repetition.
    """

    challenges: tuple[Challenge, ...] = ()
    commitments: tuple[str, ...] = ()


def default_path(job_id: bytes) -> Path:
    """The ledger of a job in the user's state directory."""
    return state_folder() / "jobs" / f"{job_id.hex()}.json"


def remember(
    path: Path, *, job_id: bytes, commitment: str | None, challenge: Challenge | None
) -> Memory:
    """Adds a commitment and a challenge, durably, and returns what was known before.

    It is called before anything is asked of the prover, so that an aborted verification counts.

    Raises:
        UsageError: The file is not a ledger of this job.
        OSError: It cannot be read or written.
    """
    _core.create_directory(str(path.parent))
    with _locked(path):
        before = _read(path, job_id)
        commitments = list(before.commitments)
        if commitment is not None and commitment not in commitments:
            commitments.append(commitment)
        challenges = list(before.challenges)
        if challenge is not None and all(_question(c) != _question(challenge) for c in challenges):
            challenges.append(challenge)
        after = Memory(tuple(challenges), tuple(commitments))
        if after != before:
            _write(path, job_id, after)
    return before


def _question(challenge: Challenge) -> str:
    return json.dumps([challenge.nonce, challenge.checks, challenge.document], sort_keys=True)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.with_name(path.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _read(path: Path, job_id: bytes) -> Memory:
    try:
        text = _core.read_file(str(path), max_bytes=_MAX_BYTES)
    except MissingError:
        return Memory()
    try:
        document = json.loads(text)
        if document["version"] != _VERSION or document["job"] != job_id.hex():
            raise UsageError(
                f"{path} is the ledger of another job",
                "leave ledger= out, or name one file per job",
            )
        return Memory(
            tuple(_challenge(entry) for entry in document["challenges"]),
            tuple(str(note) for note in document["commitments"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{path} is not a ledger: {error}",
            "restore it from a backup; without it, earlier challenges of this job are forgotten",
        ) from error


# Any: it comes from a file. What is not as it should be raises here, and `_read` says so.
def _challenge(entry: Any) -> Challenge:
    bytes.fromhex(entry["nonce"])
    document = entry.get("document")
    if document is not None:
        bytes.fromhex(document)
    return Challenge(
        entry["nonce"],
        tuple((str(name), dict(o)) for name, o in entry["checks"]),
        float(entry["time"]),
        document,
    )


def _write(path: Path, job_id: bytes, memory: Memory) -> None:
    document = {
        "version": _VERSION,
        "job": job_id.hex(),
        "challenges": [asdict(challenge) for challenge in memory.challenges],
        "commitments": list(memory.commitments),
    }
    replace_private(path, json.dumps(document, indent=1))


def recall(path: Path, *, job_id: bytes) -> Memory:
    """What is known about a job, without adding to it."""
    return _read(path, job_id)


def new_challenge(
    nonce: bytes, checks: Sequence[tuple[str, Mapping[str, object]]], document: str | None = None
) -> Challenge:
    """A challenge of now."""
    asked = tuple((name, dict(o)) for name, o in checks)
    return Challenge(nonce.hex(), asked, time.time(), document)


def changed(path: Path) -> StorageError:
    """What to raise when somebody else wrote there since it was read for the present question."""
    return StorageError(
        f"{path} changed meanwhile: this job is being verified elsewhere", "do it again"
    )


def path_for(
    ledger: str | os.PathLike[str] | bool | None,
    job: _core.Job | None,
    commitment: object,
) -> Path | None:
    """Where the challenges of a job are remembered, or None for nowhere."""
    if ledger is None or ledger is False:
        return None
    if ledger is True:
        # Who trains and verifies in one process tries things out, and may record a job again.
        tried_out = getattr(commitment, "own", False)
        return None if job is None or tried_out else default_path(job.id)
    if job is None:
        raise UsageError("a ledger belongs to your own job", "pass job= as well")
    return Path(ledger)


def known_of(path: Path | None, job: _core.Job | None) -> Memory:
    """What is remembered there about the job."""
    if path is None or job is None:
        return Memory()
    return recall(path, job_id=job.id)
