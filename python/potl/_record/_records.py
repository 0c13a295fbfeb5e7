# SPDX-License-Identifier: Apache-2.0
"""The records of a trainer's own log: where each lies, what it binds, and its proof.

A log may still grow: `Records.scan` goes on where it ended. The bytes are those of
docs/format/transcript.md; a frame that is not whole yet is not there yet.
"""

from __future__ import annotations

import os
import struct
from array import array
from dataclasses import dataclass

from .. import _core

HEAD, MAX_RECORD, CHAIN = 16, 65536, 32
_STEP, _RESUME = 3, 4
# Where fields begin: a step's number and samples, a resume's step and number.
_NUMBER, _SAMPLES, _RESUME_NUMBER = 34, 50, 50
_PIECE = 4 << 20


@dataclass
class Branch:
    """The steps recorded after a resume: numbers and records follow each other.

    Attributes:
        first: The first step.
        record: Index of its record.
        ends: Bytes of the branch's rounding logs up to each step's, where steps bind one.
    """

    first: int
    record: int
    steps: int
    ends: array[int]

    def index_of(self, step: int) -> int | None:
        """Index of a step's record."""
        at = step - self.first
        return self.record + at if 0 <= at < self.steps else None


class Records:
    """What a log holds.

    Args:
        file: Descriptor of the log.

    Attributes:
        bytes: Of the log without the record at its end that is not whole: it may still become so,
            or be taken back by a resume.
    """

    def __init__(self, file: int) -> None:
        self._file = file
        self._starts = array("Q")
        self._sizes = array("I")
        self._end = HEAD
        self._chain = b""  # of the last frame
        self._tree = _core.MerkleTree()
        self.bytes = HEAD
        self.branches = [Branch(1, 2, 0, array("Q"))]

    def __len__(self) -> int:
        return len(self._starts)

    def scan(self) -> None:
        """Takes in what was appended. A resume may have dropped what a crash left at the end."""
        if self._chain != os.pread(self._file, len(self._chain), self._end - len(self._chain)):
            self.__init__(self._file)  # type: ignore[misc]
        kept = b""
        while piece := os.pread(self._file, _PIECE, self._end + len(kept)):
            kept += piece
            at = 0
            while len(kept) - at >= 4:
                (size,) = struct.unpack_from("<I", kept, at)
                if not 34 <= size <= MAX_RECORD:
                    self.bytes = os.fstat(self._file).st_size
                    return
                if len(kept) - at < 4 + size + CHAIN:
                    break
                self._add(kept[at + 4 : at + 4 + size])
                self._chain = kept[at + 4 + size : at + 4 + size + CHAIN]
                at += 4 + size + CHAIN
                self._end += 4 + size + CHAIN
            kept = kept[at:]
        self.bytes = self._end

    def record(self, index: int) -> bytes:
        """One record. IndexError: there is none."""
        return os.pread(self._file, self._sizes[index], self._starts[index])

    def proof(self, index: int, size: int) -> list[bytes]:
        """That a record is among the first `size`. UsageError: it is not."""
        return self._tree.inclusion_proof(index, size)

    def root_at(self, size: int) -> bytes:
        """Root over the first `size` records."""
        return self._tree.root_at(size)

    def names_state(self, step: int, branch: int) -> bool:
        """Whether a record binds the state after this step of this branch."""
        if step == 0:
            return branch == 0 and len(self) > 1
        return self.index_of(step, branch) is not None

    def index_of(self, step: int, branch: int) -> int | None:
        """Index of the record of a step."""
        return self.branches[branch].index_of(step) if branch < len(self.branches) else None

    def samples_of(self, step: int) -> bytes | None:
        """The digest of the samples of a step, as its last record has it."""
        for branch in reversed(self.branches):
            if (index := branch.index_of(step)) is not None:
                return self.record(index)[_SAMPLES : _SAMPLES + 32]
        return None

    def rounding_log(self, step: int, branch: int) -> tuple[int, int] | None:
        """Where a step's rounding log lies in its branch's file: offset and size."""
        if self.index_of(step, branch) is None:
            return None
        one = self.branches[branch]
        at = step - one.first
        start = one.ends[at - 1] if at else 0
        return start, one.ends[at] - start

    def _add(self, record: bytes) -> None:
        index = len(self._starts)
        self._starts.append(self._end + 4)
        self._sizes.append(len(record))
        self._tree.append(_core.leaf_hash(record))
        branch = self.branches[-1]
        if record[0] == _STEP:
            # A step that binds a rounding log is of version 2, and ends with the size of it.
            size = struct.unpack_from("<Q", record, len(record) - 8)[0] if record[1] == 2 else 0
            branch.steps += 1
            branch.ends.append((branch.ends[-1] if branch.ends else 0) + size)
        elif record[0] == _RESUME:
            (before,) = struct.unpack_from("<Q", record, _NUMBER)
            self.branches.append(Branch(before + 1, index + 1, 0, array("Q")))
