# SPDX-License-Identifier: Apache-2.0
"""A second implementation of the bytes of a rounding log, from docs/format/rounding_log.md with
struct and hashlib alone; and of where a run keeps them, from docs/format/transcript.md.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from pure_format import Resume, Run, Step

Entries = list[tuple[int, bool]]


def rice_parameter(values: int, entries: int) -> int:
    return (values * 31537 // 65536 // entries).bit_length() if entries else 0


def encode(bits: int, values: int, entries: Iterable[tuple[int, bool]]) -> bytes:
    listed = list(entries)
    k = rice_parameter(values, len(listed))
    word, length, before = 0, 0, -1
    for position, up in listed:
        gap = position - before - 1
        before = position
        length += gap >> k  # zeros
        word |= 1 << length
        word |= (gap & ((1 << k) - 1)) << (length + 1)
        word |= int(up) << (length + 1 + k)
        length += k + 2
    head = struct.pack("<BBBBQQ", 1, bits, k, 0, values, len(listed))
    return head + word.to_bytes((length + 7) // 8, "little")


def decode(log: bytes) -> tuple[int, int, Entries]:
    """Bits, values and entries; the encoding is compared, so anything else fails."""
    _, bits, k, _, values, count = struct.unpack_from("<BBBBQQ", log)
    word, at, position = int.from_bytes(log[20:], "little"), 0, -1
    entries: Entries = []
    for _ in range(count):
        quotient = 0
        while not word >> at & 1:
            quotient, at = quotient + 1, at + 1
        position += (quotient << k | word >> (at + 1) & ((1 << k) - 1)) + 1
        entries.append((position, bool(word >> (at + 1 + k) & 1)))
        at += k + 2
    assert encode(bits, values, entries) == log
    return bits, values, entries


def digest(log: bytes) -> bytes:
    return hashlib.sha256(b"potl.rounding_log.v1\0" + log).digest()


def logs_of(run: Run) -> Iterator[tuple[int, int, bytes]]:
    """Branch, step and log of every step record that binds one, in the order of the records."""
    branch, offset = 0, 0
    for record in run.records:
        if isinstance(record, Resume):
            branch, offset = record.number, 0
        if isinstance(record, Step) and record.rounding is not None:
            bound, size = record.rounding
            log = Path(run.path, "rounding", f"branch-{branch}.log").read_bytes()
            part = log[offset : offset + size]
            assert digest(part) == bound
            yield branch, record.step, part
            offset += size
