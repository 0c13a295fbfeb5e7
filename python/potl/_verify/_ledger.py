# SPDX-License-Identifier: Apache-2.0
"""What a verifier remembers about a job: the challenges it drew and the commitments it was shown.

A prover that may ask for another draw passes sooner or later (a 10 % cheat against 12 samples
passes once in 28 %), so every verification repeats all earlier challenges of its job. The same file
shows when a prover presents a second commitment for a job. It is the verifier's own small file;
losing it loses that memory and nothing else.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import _core
from .._base._errors import MissingError, StorageError, UsageError


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
    return Path(_core.default_ledger(job_id))


def remember(
    path: Path, *, job_id: bytes, commitment: str | None, challenge: Challenge | None
) -> Memory:
    """Adds a commitment and a challenge, durably, and returns what was known before.

    It is called before anything is asked of the prover, so that an aborted verification counts.

    Raises:
        UsageError: The file is not a ledger of this job.
        StorageError: It cannot be read or written.
    """
    asked = None
    if challenge is not None:
        document = None if challenge.document is None else bytes.fromhex(challenge.document)
        nonce = bytes.fromhex(challenge.nonce)
        asked = (nonce, challenge.checks, challenge.time, document)
    try:
        return _memory(_core.remember(str(path), job_id, commitment, asked))
    except (StorageError, MissingError, UsageError) as error:
        # Its folder may be missing because it cannot be made, or be a file.
        if isinstance(error, UsageError) and path.parent.is_dir():
            raise
        remedy = "name another file with --ledger, in Python ledger="
        if path == default_path(job_id):
            remedy += ", or set XDG_STATE_HOME"
        what = f"the challenge cannot be remembered: {error.message}"
        raise StorageError(what, remedy) from error


def recall(path: Path, *, job_id: bytes) -> Memory:
    """What is known about a job, without adding to it."""
    return _memory(_core.recall(str(path), job_id))


def _memory(found: tuple[list[_core.LedgerChallenge], list[str]]) -> Memory:
    challenges, commitments = found
    return Memory(tuple(Challenge(*one) for one in challenges), tuple(commitments))


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
