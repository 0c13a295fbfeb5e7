# SPDX-License-Identifier: Apache-2.0
"""Reports that a verifier has signed, for those who trust the verifier and verify nothing again."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from .. import _core
from .._base._public_key import public_key
from .._record._inputs import as_job, as_note, require_file
from ._value import SIGNED_AT, Report

if TYPE_CHECKING:
    from .._job._job import Job


@dataclass(frozen=True, kw_only=True)
class Attestation:
    """A report with the signature of the verifier who made it: an in-toto statement in a DSSE
    envelope (docs/format/attestation.md).

    Example:
        >>> potl.Attestation.read(
        ...     "attestation.json", key="verifier.pub", model="delivered.safetensors"
        ... ).report.verdict  # doctest: +SKIP
        'accepted'

    Attributes:
        report: What the signer says.
        signer: The key that signed it, 64 hexadecimal digits.
        signed_at: When, in UTC, by the signer's word.
        compared: What it was compared with: "model", "job", "commitment".
    """

    report: Report
    signer: str
    signed_at: datetime
    compared: tuple[str, ...]

    @staticmethod
    def read(
        path: str | os.PathLike[str],
        *,
        key: _core.PublicKey | str | os.PathLike[str],
        model: str | os.PathLike[str] | None = None,
        job: Job | str | os.PathLike[str] | None = None,
        commitment: object = None,
    ) -> Attestation:
        """Reads what `Report.attest` wrote, and compares it with what you hold: at least one
        thing, because the signer may have signed reports of other trainings too.

        Args:
            path: The file.
            key: The verifier's public key, as you know it.
            model: The delivered file, of which the SHA-256 is compared.
            job: What was agreed.
            commitment: The prover's commitment: the whole signed note.

        Raises:
            UsageError: There is nothing to compare it with.
            MalformedError: It is not an attestation, or the commitment is not one.
            MismatchError: The key has not signed it, it is the key of the run's trainer, or it is
                about something else.
            MissingError: It says nothing about what it is compared with.
        """
        for file, what in ((path, "attestation"), (model, "model")):
            if file is not None:
                require_file(file, what)
        signer = public_key(key)
        held = {"model": model, "job": job, "commitment": commitment}
        agreed = None if job is None else as_job(job).core
        text, signed_at = _core.open_attestation(
            _core.read_file(os.fspath(path), max_bytes=_core.MAX_ATTESTATION_BYTES),
            signer,
            model=None if model is None else os.fspath(model),
            job=None if agreed is None else agreed.id,
            commitment=None if commitment is None else as_note(commitment),
            trainer=None if agreed is None else agreed.trainer,
        )
        return Attestation(
            report=Report(text),
            signer=signer.raw.hex(),
            signed_at=datetime.strptime(signed_at, SIGNED_AT).replace(tzinfo=timezone.utc),
            compared=tuple(name for name, one in held.items() if one is not None),
        )
