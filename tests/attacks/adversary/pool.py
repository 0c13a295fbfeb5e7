# SPDX-License-Identifier: Apache-2.0
"""Lets another process play lies, and watches it: a verification that does not come back, or takes
the process with it, is a finding too.
"""

from __future__ import annotations

import dataclasses
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
# Seconds for one lie, or for the honest runs before the first, on a very busy machine; an idle one
# takes a tenth of a second, and three.
PATIENCE = 600.0


@dataclasses.dataclass
class Played:
    """What came of many lies."""

    verdicts: dict[str, int] = dataclasses.field(default_factory=dict)
    found: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    @property
    def count(self) -> int:
        return sum(self.verdicts.values())

    def add(self, row: dict[str, Any]) -> None:
        self.verdicts[row["verdict"]] = self.verdicts.get(row["verdict"], 0) + 1
        if row["findings"]:
            self.found.append(row)

    def __str__(self) -> str:
        rows = [f"{self.count} lies: {self.verdicts}, {len(self.found)} found"]
        for row in self.found:
            rows.append(f"{row['lie']}\n    {row['verdict']}: {'; '.join(row['findings'])}")
        return "\n".join(rows)


def play_many(first: int, last: int) -> Played:
    """Lies `first` to `last` - 1."""
    played = Played()
    while first < last:
        for row in _rows([str(first), str(last)]):
            if "verdict" in row:
                played.add(row)
            first = row["seed"] + 1
    return played


def minimised(seeds: list[int]) -> Played:
    """The same lies without what their findings do not need."""
    played = Played()
    for row in _rows(["--again", *map(str, seeds)]):
        if "verdict" in row:
            played.add(row)
    return played


def _rows(arguments: list[str]) -> Iterator[dict[str, Any]]:
    """What the player prints, until it ends; its last lie is found if it ends before its time."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", f"{__package__.rpartition('.')[2]}.play", *arguments]
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command, cwd=HERE, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        lines: queue.Queue[str] = queue.Queue()
        assert process.stdout is not None
        thread = threading.Thread(target=_read, args=(process.stdout, lines), daemon=True)
        thread.start()
        begun, why = None, ""
        while True:
            try:
                line = lines.get(timeout=PATIENCE)
            except queue.Empty:
                process.kill()
                why = f"time: no verdict within {PATIENCE:.0f} s"
                break
            if not line:
                break
            row = json.loads(line)
            if "began" in row:
                begun = row["began"]
                continue
            begun = None
            yield row
        status = process.wait()
        errors.seek(0)
        text = errors.read()[-2000:]
    if begun is not None:
        why = why or f"exception: the process ended with status {status}: {text}"
        yield {"seed": begun, "lie": str(begun), "verdict": "error", "findings": [why]}
    elif status or why:
        raise RuntimeError(f"the player ended with status {status} {why}: {text}")


def _read(stream: Any, lines: queue.Queue[str]) -> None:
    for line in stream:
        lines.put(line)
    lines.put("")
