# SPDX-License-Identifier: Apache-2.0
"""Where a run can lie: what is there, and bytes of it.

Names are those of docs/format/transcript.md. What a source raises decides who answers for it
(docs/decisions/0008): MissingError says that a place that still has the log withholds a file;
everything else that can happen on the way is StorageError, the verifier's own trouble.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

LOG, JOB, TELEMETRY, COMMITMENT = "transcript.log", "job.json", "telemetry.log", "commitment"
CHECKPOINTS, ROUNDING = "checkpoints", "rounding"

_STATE = re.compile(r"checkpoints/step-(0|[1-9]\d{0,14})(?:\.b([1-9]\d{0,14}))?\.safetensors")
_ROUNDING = re.compile(r"rounding/branch-(0|[1-9]\d{0,14})\.log")

Sizes = Mapping[str, int]
"""Bytes of each file that is there, by its name."""

Write = Callable[[bytes], None]


class Source(Protocol):
    """A run elsewhere."""

    def sizes(self) -> Sizes:
        """What is there now. StorageError: it cannot be reached; MissingError, MalformedError: no
        run.
        """

    def read(self, name: str, offset: int, size: int, write: Write) -> None:
        """Gives bytes of a file, in order and in pieces."""

    def close(self) -> None:
        """Ends connections."""


def state_name(step: int, branch: int) -> str:
    """The file of the state after a step."""
    return f"{CHECKPOINTS}/step-{step}{f'.b{branch}' if branch else ''}.safetensors"


def rounding_name(branch: int) -> str:
    """The file of a branch's rounding logs."""
    return f"{ROUNDING}/branch-{branch}.log"


def state_of(name: str) -> tuple[int, int] | None:
    """Step and branch of a state's file; None for another name."""
    found = _STATE.fullmatch(name)
    return None if found is None else (int(found[1]), int(found[2] or 0))


def rounding_of(name: str) -> int | None:
    """The branch of a file of rounding logs; None for another name."""
    found = _ROUNDING.fullmatch(name)
    return None if found is None else int(found[1])


def is_of_a_run(name: str) -> bool:
    """Whether a file of this name can belong to a run, and is read by a verifier."""
    return (
        name in (LOG, JOB, TELEMETRY) or state_of(name) is not None or rounding_of(name) is not None
    )


def known(sizes: Iterable[tuple[str, int]]) -> dict[str, int]:
    """What belongs to a run."""
    return {name: size for name, size in sizes if is_of_a_run(name)}
