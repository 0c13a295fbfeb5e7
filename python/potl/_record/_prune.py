# SPDX-License-Identifier: Apache-2.0
"""`prune`: removes checkpoints so that a run fits a disk budget and stays verifiable."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from .. import _core
from .._base._errors import InternalError
from ._inputs import run_directory


@dataclass(frozen=True, kw_only=True)
class Pruning:
    """Which checkpoints go and which stay.

    Attributes:
        removed: Files that go, relative to the run directory.
        kept: Files that stay.
        bytes: Size of the run afterwards.
        segment: Longest distance between two stored checkpoints afterwards, in steps.
        applied: Whether the files are gone already.
    """

    removed: tuple[str, ...]
    kept: tuple[str, ...]
    bytes: int
    segment: int
    applied: bool


def prune(
    run: str | os.PathLike[str], *, max_bytes: int, archive: bool = False, dry_run: bool = False
) -> Pruning:
    """Removes checkpoints until the run fits, but never more than the job's `max_segment` allows.

    Args:
        run: The run directory.
        max_bytes: Disk budget of the whole directory.
        archive: Removes more than `max_segment` allows, if necessary. `rederive` has to restore
            what is missing before the run can be verified.
        dry_run: Only say what would be removed.

    Returns:
        What was removed, or would be, and the size of the run afterwards.

    Raises:
        UsageError: The run cannot be made that small, or it is still being recorded.
    """
    directory = run_directory(run)
    plan = _core.prune_plan(str(directory), max_bytes=max_bytes, archive=archive)
    paths = [_inside(directory, name) for name in plan["remove"]]
    if not dry_run:
        for path in paths:
            path.unlink()
    return Pruning(
        removed=tuple(plan["remove"]),
        kept=tuple(plan["keep"]),
        bytes=int(plan["bytes"]),
        segment=int(plan["segment"]),
        applied=not dry_run,
    )


def _inside(directory: Path, name: str) -> Path:
    """The path of a checkpoint; nothing outside the run's own folder is ever removed."""
    path = directory / name
    if (
        path.is_symlink()
        or path.resolve().parent != (directory / _core.CHECKPOINT_FOLDER).resolve()
    ):
        raise InternalError(f"the plan names {name!r}, which is not a checkpoint of {directory}")
    return path
