# SPDX-License-Identifier: Apache-2.0
"""A recorded run that appears in pieces, as where somebody trains it, and is watched."""

from __future__ import annotations

import dataclasses
import os
import shutil
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import driver_tasks as tasks

import potl
from potl._attacks._frames import Frames
from potl._record._records import Records

STEP = 3  # kind of record, docs/format/transcript.md
Piece = int | None | Callable[[], None]
"""Up to which step the run is there; None: all of it. Or something that happens meanwhile."""


class Growing:
    """Shows a run in pieces.

    Args:
        whole: The run.
        place: Where it appears.
    """

    def __init__(self, whole: Path, place: Path) -> None:
        self.whole, self.place = whole, place

    def log(self, step: int) -> bytes:
        """The log before the first record of a later step."""
        frames, at = Frames.read(self.whole), 16
        for payload in frames.payloads:
            if payload[0] == STEP and struct.unpack_from("<Q", payload, 34)[0] > step:
                break
            at += 36 + len(payload)
        return (self.whole / "transcript.log").read_bytes()[:at]

    def rounding_bytes(self, step: int) -> int:
        """Where the rounding log of a step of the first branch ends."""
        with (self.whole / "transcript.log").open("rb") as file:
            records = Records(file.fileno())
            records.scan()
            place = records.rounding_log(step, 0)
        assert place is not None
        return sum(place)

    def show(self, step: int | None, more: bytes = b"") -> None:
        """The run as it was once it had a step, with a log that goes on with `more`."""
        (self.place / "checkpoints").mkdir(parents=True, exist_ok=True)
        for path in self.whole.rglob("*"):
            name = path.relative_to(self.whole)
            if not path.is_file() or name.name == "transcript.log":
                continue
            if name.suffix == ".safetensors":
                is_later = step is not None and int(name.name[5:].split(".")[0]) > step
                if is_later or (self.place / name).exists():
                    continue
            (self.place / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(path, self.place / name)
            if step and name.parent.name == "rounding":
                os.truncate(self.place / name, self.rounding_bytes(step))
        whole = (self.whole / "transcript.log").read_bytes()
        self.write_log(whole if step is None else self.log(step) + more)

    def write_log(self, log: bytes) -> None:
        """Into the same file, which a server has open."""
        path = self.place / "transcript.log"
        path.touch()
        with path.open("r+b") as file:
            file.write(log)
            file.truncate()


@dataclasses.dataclass
class Watched:
    """What came of watching."""

    report: potl.Report
    looks: list[potl.Look]

    def segments(self) -> list[list[str]]:
        """What each look judged."""
        return [[str(one.details["segment"]) for one in look.judged] for look in self.looks]

    def all(self) -> list[str]:
        """What all looks judged."""
        return [segment for look in self.segments() for segment in look]

    def rules(self, result: str) -> set[str]:
        """The rules of findings with this result."""
        return {one.rule for one in self.report.findings if one.result == result}


def watch(growing: Growing, pieces: Sequence[Piece], **options: Any) -> Watched:
    """Watches a run. Before each look after the first, the next piece of it appears; the look
    behind the last piece has to be the last one.
    """
    looks: list[potl.Look] = []

    def after(look: potl.Look) -> None:
        looks.append(look)
        assert len(looks) <= len(pieces) + 1, f"it does not end: {look}"
        if len(looks) <= len(pieces):
            piece = pieces[len(looks) - 1]
            if callable(piece):
                piece()
            else:
                growing.show(piece)

    chosen: dict[str, Any] = {"task": tasks.build, "samples": 100, "every": 0, "on_look": after}
    where = options.pop("run", growing.place)
    report = potl.monitor(where, **{**chosen, **options})
    return Watched(report, looks)
