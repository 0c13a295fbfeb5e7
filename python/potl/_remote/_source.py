# SPDX-License-Identifier: Apache-2.0
"""Where a run can lie: what is there, and bytes of it.

What a source raises decides who answers for it
(docs/decisions/0008): MissingError says that a place that still has the log withholds a file;
everything else that can happen on the way is StorageError, the verifier's own trouble.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from .. import _core

LOG, JOB, TELEMETRY = _core.LOG_NAME, _core.JOB_NAME, _core.TELEMETRY_NAME
COMMITMENT = _core.COMMITMENT_NAME
CHECKPOINTS, ROUNDING = _core.CHECKPOINT_FOLDER, _core.ROUNDING_FOLDER

_NUMBER = re.compile("[0-9]{1,15}")

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


def state_of(name: str) -> tuple[int, int] | None:
    """Step and branch of a state's file; None for another name."""
    step, branch, *_ = [*map(int, _NUMBER.findall(name)), 0, 0]
    found = (step, branch)
    return found if name == _core.checkpoint_entry(*found) else None


def rounding_of(name: str) -> int | None:
    """The branch of a file of rounding logs; None for another name."""
    branch, *_ = [*map(int, _NUMBER.findall(name)), 0]
    return branch if name == _core.rounding_entry(branch) else None


def is_of_a_run(name: str) -> bool:
    """Whether a file of this name can belong to a run, and is read by a verifier."""
    return (
        name in (LOG, JOB, TELEMETRY) or state_of(name) is not None or rounding_of(name) is not None
    )


def known(sizes: Iterable[tuple[str, int]]) -> dict[str, int]:
    """What belongs to a run."""
    return {name: size for name, size in sizes if is_of_a_run(name)}
