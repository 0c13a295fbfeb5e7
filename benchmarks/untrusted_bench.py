# SPDX-License-Identifier: Apache-2.0
"""How long hostile input takes to be refused. Tests bound bytes and counts; this is the time."""

from __future__ import annotations

import contextlib
import functools
import json
import statistics
import struct
from collections.abc import Callable
from typing import Any

import measuring

from potl import LimitError, MalformedError, MismatchError, UnsupportedError, _core

ROUNDS = 9
LIMIT_SECONDS = 0.1
CORPUS_LIMIT_SECONDS = 0.05


def safetensors(header: bytes, data: bytes = b"") -> bytes:
    """A file with this header."""
    return struct.pack("<Q", len(header)) + header + data


def job(**changes: object) -> bytes:
    """A job with everything in place but the changed fields."""
    document = {
        "format": "potl-job-v1",
        "seed": 7,
        "steps": 10,
        "epochs": 1,
        "batch_size": 1,
        "accumulate": 1,
        "drop_last": False,
        "checkpoint_every": 5,
        "max_segment": 5,
        "data": {"count": 10, "root": "00" * 32},
        "initial_state": {"digest": "00" * 32, "source": "seed"},
        "learning_rates": None,
        "arithmetic": "stock",
        "tolerance_cap": 0.1,
        "limits": {"max_resumes": 1, "max_superseded": 5},
        "trainer": None,
        "task": {},
        "environment": {},
    } | changes
    return _core.canonical_json(document)


def cases() -> dict[str, Callable[[], object]]:
    """Each raises a typed error of potl."""
    names = ",".join(f'"{number}":0' for number in range(1_000_000)).encode()
    tensors = json.dumps(
        {
            f"t{number}": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}
            for number in range(200_000)
        }
    ).encode()
    vast = (
        b'{"t":{"dtype":"F32","shape":[4611686018427387904],'
        b'"data_offsets":[0,18446744073709551615]}}'
    )
    long_run = job(steps=10**12, data={"count": 10**12, "root": "00" * 32})
    shifted = long_run.replace(b'"checkpoint_every":5', b'"checkpoint_every":0')
    return {
        "json.nesting": lambda: _core.parse_json(b"[" * 5_000_000),
        "json.million_names": lambda: _core.parse_json(b"{" + names + b"}"),
        "json.duplicate_names": lambda: _core.parse_json(b'{"a":0' + b',"a":0' * 200_000 + b"}"),
        "json.long_number": lambda: _core.parse_json(b"9" * 5_000_000),
        "safetensors.header_2_64": lambda: _core.SafetensorsFile.parse(b"\xff" * 8 + b"{}"),
        "safetensors.tensor_2_64": lambda: _core.SafetensorsFile.parse(safetensors(vast)),
        "safetensors.many_tensors": lambda: _core.SafetensorsFile.parse(safetensors(tensors)),
        "job.trillion_steps": lambda: _core.Job.parse(shifted),
        "note.long": lambda: _core.SignedNote.parse(b"a\n" * 5_000_000),
    }


def seconds_to_refuse(work: Callable[[], object]) -> float:
    """Median over the rounds."""

    def refused() -> None:
        try:
            work()
        except (MalformedError, LimitError, MismatchError, UnsupportedError):
            return
        raise AssertionError("hostile input was accepted")

    return statistics.median(measuring.timed(refused) for _ in range(ROUNDS))


def slowest_of_corpus() -> list[dict[str, Any]]:
    """The slowest verdict on the published safetensors files, where they lie beside the
    repository.
    """
    folder = measuring.ROOT.parent / "shared" / "vectors" / "safetensors-corpus"
    if not folder.is_dir():
        return []
    files = [
        (folder / case["file"]).read_bytes()
        for case in json.loads((folder / "manifest.json").read_text())["cases"]
    ]

    def verdict(file: bytes) -> None:
        with contextlib.suppress(MalformedError, LimitError, UnsupportedError):
            _core.SafetensorsFile.parse(file)

    slowest = max(
        statistics.median(measuring.timed(functools.partial(verdict, file)) for _ in range(ROUNDS))
        for file in files
    )
    limit = CORPUS_LIMIT_SECONDS * 1e3
    return [
        measuring.result(
            "untrusted.safetensors.corpus",
            slowest * 1e3,
            "ms",
            f"limit {limit:.0f} ms, {len(files)} files",
            at_most=limit,
        )
    ]


def main() -> None:
    """Measures and writes build/bench/untrusted.json."""
    refusals = [
        measuring.result(
            f"untrusted.{name}",
            seconds_to_refuse(work) * 1e3,
            "ms",
            f"limit {LIMIT_SECONDS * 1e3:.0f} ms",
            at_most=LIMIT_SECONDS * 1e3,
        )
        for name, work in cases().items()
    ]
    measuring.write("untrusted", [*slowest_of_corpus(), *refusals])


if __name__ == "__main__":
    main()
