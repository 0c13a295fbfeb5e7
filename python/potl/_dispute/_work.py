# SPDX-License-Identifier: Apache-2.0
"""What an auditor leaves behind that takes the work: a code over each state, under the client's
nonce (docs/format/audit_work.md). include/potl/transcript/work.hpp says what it shows.
"""

from __future__ import annotations

import os
from pathlib import Path

from .. import _core
from .._base._errors import MismatchError, MissingError, UsageError

CODES, NOTE = "work.codes", "work.note"


class WorkLog:
    """The codes in the directory of a repetition.

    Args:
        log: The directory.
        job: What is repeated.
        nonce: The client's.
    """

    def __init__(self, log: Path, job: _core.Job, nonce: bytes) -> None:
        self._log, self._job, self._nonce = log, job, nonce
        self._header = _core.work_file_header(job.id, nonce)
        self._file: int | None = None
        self._before: _core.State | None = None

    def see(self, step: int, state: _core.State) -> None:
        """Of each state in turn; the first one is where the repetition begins, or goes on."""
        if self._file is None:
            self._file = self._begin(step)
        else:
            assert self._before is not None
            code, _ = _core.work_code(self._nonce, self._job.id, step, self._before, state)
            os.pwrite(self._file, code, self._end_of(step - 1))
            if self._job.is_checkpoint(step):
                # Where an interrupted repetition goes on, the codes before it must be there.
                os.fdatasync(self._file)
        self._before = state

    def close(self) -> None:
        """Makes what is written durable."""
        if self._file is not None:
            os.fsync(self._file)
            os.close(self._file)
        self._file = self._before = None

    def sign(self, key: _core.SigningKey, commitment: str | None) -> None:
        """Signs all codes; `commitment` is the trainer's."""
        codes = read_codes(self._log, self._job, self._nonce)
        bound = None if commitment is None else _core.sha256(commitment.encode())
        note = _core.sign_work_note(self._job.id, self._nonce, bound, codes, key)
        _core.write_file(str(self._log / NOTE), note.encode())

    def _begin(self, step: int) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(self._log / CODES, flags, 0o644)
        try:
            if step == 0:
                os.ftruncate(file, 0)
                os.pwrite(file, self._header, 0)
            elif os.pread(file, len(self._header), 0) != self._header:
                raise UsageError(
                    f"the repetition in {self._log} was begun under another nonce, or none",
                    "pass the same nonce, or name another log",
                )
            elif os.fstat(file).st_size < self._end_of(step):
                raise MissingError(
                    f"codes of steps up to {step} are not in {self._log / CODES}",
                    "name another log",
                )
            os.ftruncate(file, self._end_of(step))
        except BaseException:
            os.close(file)
            raise
        return file

    def _end_of(self, step: int) -> int:
        return len(self._header) + 32 * step


def read_codes(log: Path, job: _core.Job, nonce: bytes) -> list[bytes]:
    """The codes of steps 1, 2, ... in an auditor's directory.

    Raises:
        MissingError: There are none.
        MalformedError, MismatchError, LimitError: The file is none of this job and nonce.
    """
    most = _core.WORK_HEADER_BYTES + 32 * job.steps
    try:
        data = _core.read_entry(str(log), CODES, max_bytes=most)
    except _core.MissingError as error:
        raise MissingError(
            f"{log} has no codes of work", "repeat the run with audit(..., nonce=)"
        ) from error
    return _core.read_work_file(data, job.id, nonce, job.steps)


def read_signed_codes(
    log: Path, job: _core.Job, nonce: bytes, key: _core.PublicKey, commitment: str | None
) -> tuple[list[bytes], bytes]:
    """The codes that an auditor signed, and their root.

    Raises:
        MissingError, MalformedError, MismatchError, LimitError: They are not whole, not signed by
            this key, or for another job, nonce or commitment.
    """
    codes = read_codes(log, job, nonce)
    try:
        text = _core.read_entry(str(log), NOTE, max_bytes=1 << 16)
    except _core.MissingError as error:
        raise MissingError(
            f"the codes of work in {log} are not signed", "let the audit come to its end"
        ) from error
    bound = _core.verify_work_note(text, job.id, nonce, codes, key)
    if None not in (bound, commitment) and bound != _core.sha256((commitment or "").encode()):
        raise MismatchError("the codes of work were signed for another commitment")
    return codes, _core.SignedNote.parse(text).note.root
