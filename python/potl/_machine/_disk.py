# SPDX-License-Identifier: Apache-2.0
"""Disk and clock, as `potl doctor` sees them."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from .._base._printable import size
from ._item import Item, problem, warning, well

_LITTLE_BYTES = 1 << 30
_TOO_LITTLE_BYTES = 64 << 20
# A write that takes longer to become durable slows recording down: each checkpoint waits for it.
_SLOW_SYNC_SECONDS = 0.25
_FIRST_OF_2025 = 1_735_689_600.0


def disk(directory: Path) -> Iterable[Item]:
    """Whether runs can be written to `directory`, durably, and how much fits."""
    try:
        with tempfile.NamedTemporaryFile(dir=directory, prefix=".potl-doctor-") as file:
            file.write(bytes(1 << 16))
            file.flush()
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            took = time.perf_counter() - began
        free = shutil.disk_usage(directory).free
    except OSError as error:
        remedy = "run from a folder that you may write to, or name one with --directory"
        yield problem("disk", f"{directory}: {error.strerror or error}", remedy)
        return
    shown = f"{directory}: {size(free)} free, durable after {took * 1e3:.1f} ms"
    if free < _TOO_LITTLE_BYTES:
        yield problem("disk", shown, "free some space: a run needs room for its checkpoints")
    elif free < _LITTLE_BYTES:
        yield warning("disk", shown, "free some space, or make checkpoints rarer")
    elif took > _SLOW_SYNC_SECONDS:
        yield warning("disk", shown, "record to a local disk: this one is slow to become durable")
    else:
        yield well("disk", shown)


def clock(now: Callable[[], float] = time.time) -> Iterable[Item]:
    """Dates in reports and certificates come from it; durations do not."""
    seconds = now()
    shown = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(max(seconds, 0.0)))
    if seconds < _FIRST_OF_2025:
        yield problem("clock", shown, "set the clock: it is before this software was written")
    else:
        yield well("clock", shown)
