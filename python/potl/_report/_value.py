# SPDX-License-Identifier: Apache-2.0
"""The report of a verification as a value. What it says was concluded in C++; this is only access
to it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from .._base._errors import Inconclusive, Rejected, UsageError
from ._document import MOST_BYTES, Cost, FindingEntry, ReportDocument, Strength, Verdict, parse
from ._page import write_page

if TYPE_CHECKING:
    from .. import _core

SIGNED_AT = "%Y-%m-%dT%H:%M:%SZ"
_EXIT_CODES = {"accepted": 0, "rejected": 1, "inconclusive": 3}


@dataclass(frozen=True)
class Finding:
    """One piece of evidence.

    Attributes:
        check: Which check found it: "transcript", "telemetry", "pev", "replay", "model" or
            "verifier".
        rule: The rule that decided (include/potl/core/rules.hpp lists them); empty for
            notes.
        result: "pass", "reject", "inconclusive" or "note".
        reason: One sentence with the numbers in it.
        first_step: First step that it speaks about, or None.
        last_step: Last step that it speaks about, or None.
        statistic: What was measured, when it is one number.
        threshold: What it was compared with.
        error_probability: How often an honest run gives this outcome, when that can be stated.
        details: Further names and values.
    """

    check: str
    rule: str
    result: str
    reason: str
    first_step: int | None = None
    last_step: int | None = None
    statistic: float | None = None
    threshold: float | None = None
    error_probability: float | None = None
    details: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @staticmethod
    def _of(entry: FindingEntry) -> Finding:
        details = entry.get("details") or {}
        return Finding(
            check=entry["check"],
            rule=entry.get("rule", ""),
            result=entry["result"],
            reason=entry["reason"],
            first_step=entry.get("first_step"),
            last_step=entry.get("last_step"),
            statistic=entry.get("statistic"),
            threshold=entry.get("threshold"),
            error_probability=entry.get("error_probability"),
            details=MappingProxyType(dict(details)),
        )


class Report:
    """What a verification found: one verdict, all findings, strength and cost.

    Example:
        >>> report = potl.verify(
        ...     "runs/1", job=job, commitment=commitment, task=build
        ... )  # doctest: +SKIP
        >>> report.verdict  # doctest: +SKIP
        'accepted'
    """

    def __init__(self, text: bytes) -> None:
        self._text = bytes(text)
        self._document = parse(self._text)

    @staticmethod
    def read(path: str | os.PathLike[str]) -> Report:
        """Reads what `write("report.json")` wrote.

        Raises:
            MalformedError: It is not a report.
            LimitError: It is longer than any report.
            MissingError: There is no such file.
        """
        from .. import _core

        return Report(_core.read_file(os.fspath(path), max_bytes=MOST_BYTES))

    @property
    def verdict(self) -> Verdict:
        """ "accepted", "rejected" or "inconclusive"."""
        return self._document["verdict"]

    @property
    def sentence(self) -> str:
        """The verdict and why, in one sentence."""
        return self._document["sentence"]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings, those that decided first."""
        return tuple(Finding._of(entry) for entry in self._document["findings"])

    @property
    def strength(self) -> Strength:
        """How likely a cheat was to be seen: segments, samples, probability for the worst
        placement. It cannot be changed.
        """
        # No type says "TypedDict, read only" before Python 3.13.
        return cast(Strength, MappingProxyType(self._document["strength"]))

    @property
    def cost(self) -> Cost:
        """Seconds that verification and training took, and their ratio. It cannot be changed."""
        return cast(Cost, MappingProxyType(self._document["cost"]))

    @property
    def exit_code(self) -> int:
        """0 accepted, 1 rejected, 3 inconclusive: what the command line exits with."""
        return _EXIT_CODES[self.verdict]

    @property
    def document(self) -> ReportDocument:
        """A copy of the whole document (schema: docs/format/report.schema.json)."""
        return parse(self._text)

    def json(self) -> str:
        """The document as canonical JSON."""
        return self._text.decode("utf-8")

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes the report; the suffix chooses the form: .json, .html or .xml (JUnit).

        Raises:
            UsageError: Another suffix, or a file that is no report.
            StorageError: It cannot be written.
        """
        target = Path(path)
        if target.suffix == ".json":
            text = self.json()
        elif target.suffix in (".html", ".htm"):
            from ._report import render_html

            text = render_html(self.document)
        elif target.suffix == ".xml":
            from ._report import render_junit

            text = render_junit(self.document)
        else:
            raise UsageError(
                f"a report is written as .json, .html or .xml, not as {target.name}", ""
            )
        write_page(target, text)

    def attest(
        self, path: str | os.PathLike[str], *, key: _core.SigningKey | str | os.PathLike[str]
    ) -> None:
        """Signs the report for others, who read it with `Attestation.read`.

        Args:
            path: A new file.
            key: Your private key, of which they know the public half.

        Raises:
            UsageError: The file exists, there is no such key, it is the trainer's, or no run could
                be opened.
        """
        from .. import _core
        from .._base._durable import write_new
        from .._record._keys import existing

        target = Path(path)
        if target.exists():
            raise UsageError(f"{target} exists and is not replaced", "choose another name")
        if not isinstance(key, _core.SigningKey):
            key = existing(key, "make one: potl keygen verifier")
        now = datetime.now(timezone.utc).strftime(SIGNED_AT)
        text = _core.sign_attestation(self._text, key, signed_at=now)
        write_new(target, text.decode(), mode=0o644)

    def raise_for_verdict(self) -> None:
        """Does nothing when accepted.

        Raises:
            Rejected: There is evidence of a cheat.
            Inconclusive: The run could not be judged.
        """
        if self.verdict == "rejected":
            raise Rejected(self.sentence)
        if self.verdict != "accepted":
            raise Inconclusive(self.sentence)

    def __repr__(self) -> str:
        return f"Report({self.verdict}: {self.sentence})"
