# SPDX-License-Identifier: Apache-2.0
"""The knife of a forger: takes transcript.log apart and puts it together again (layout:
docs/format/transcript.md).
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from pathlib import Path

_FILE_HEADER = 16
_STEP_KIND = 3
_CLOSE_STATE = slice(42, 74)
_STEP_NUMBER = 34
_DURATION = 102


@dataclass
class Frames:
    """The records of a log: payloads and, for each, the chain value that was written after it."""

    header: bytes
    payloads: list[bytes]
    chains: list[bytes]

    @staticmethod
    def read(run: Path) -> Frames:
        """Reads an intact log."""
        data = (run / "transcript.log").read_bytes()
        frames = Frames(data[:_FILE_HEADER], [], [])
        at = _FILE_HEADER
        while at < len(data):
            (size,) = struct.unpack_from("<I", data, at)
            frames.payloads.append(data[at + 4 : at + 4 + size])
            frames.chains.append(data[at + 4 + size : at + 36 + size])
            at += 36 + size
        return frames

    def write(self, run: Path, *, chained: bool) -> None:
        """Writes the log back, with a chain made anew or with the chain values as they were."""
        out = bytearray(self.header)
        chain = hashlib.sha256(self.header).digest()
        for index, payload in enumerate(self.payloads):
            chain = hashlib.sha256(chain + payload).digest() if chained else self.chains[index]
            out += struct.pack("<I", len(payload)) + payload + chain
        (run / "transcript.log").write_bytes(out)

    @staticmethod
    def final_state(payloads: list[bytes]) -> bytes:
        """The state digest in the close record."""
        return payloads[-1][_CLOSE_STATE]

    def _a_step(self) -> int:
        """Index of a step record in the middle that no checkpoint follows at once."""
        steps = [i for i, p in enumerate(self.payloads) if p[0] == _STEP_KIND]
        middle = steps[len(steps) // 2]
        (number,) = struct.unpack_from("<Q", self.payloads[middle], _STEP_NUMBER)
        return middle if number % 2 else middle - 1

    def repeat_a_step(self) -> None:
        """The same step twice."""
        at = self._a_step()
        self.payloads.insert(at, self.payloads[at])
        self.chains.insert(at, self.chains[at])

    def drop_a_step(self) -> None:
        """One step fewer."""
        at = self._a_step()
        del self.payloads[at], self.chains[at]

    def edit_duration(self) -> None:
        """Another duration in one record: nothing that is recomputed tells it from the original."""
        at = self._a_step()
        payload = bytearray(self.payloads[at])
        payload[_DURATION] ^= 1
        self.payloads[at] = bytes(payload)
