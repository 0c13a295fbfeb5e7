# SPDX-License-Identifier: Apache-2.0
"""The rounding log from Python: a trainer and an auditor that add in different orders."""

from __future__ import annotations

import numpy as np
import pytest

from potl import _core

ROWS, TERMS, COLUMNS = 60, 300, 50


def operands(seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    a = random.standard_normal((ROWS, TERMS)).astype(np.float32)
    b = random.standard_normal((TERMS, COLUMNS)).astype(np.float32)
    return a, b


def trained(bits: int = 23) -> tuple[dict, np.ndarray]:
    session = _core.RoundingSession("trainer", bits=bits)
    session.begin_step(1)
    a, b = operands(1)
    out = np.empty((ROWS, COLUMNS), np.float32)
    session.multiply("matmul", a, b, out)
    return session.end_step(), out


def audited(log: bytes, committed: bytes | None, bits: int = 23) -> tuple[dict, np.ndarray]:
    session = _core.RoundingSession("auditor", bits=bits, order=5)
    session.begin_step(1, log=log, committed=committed)
    a, b = operands(1)
    out = np.empty((ROWS, COLUMNS), np.float32)
    session.multiply("matmul", a, b, out)
    return session.end_audit(), out


def test_an_auditor_with_another_order_agrees_bit_for_bit():
    log, ours = trained()
    audit, theirs = audited(log["bytes"], log["digest"])
    assert audit["rejected"] == 0 and audit["rejections"] == []
    assert audit["values"] == log["values"] == ROWS * COLUMNS
    assert ours.tobytes() == theirs.tobytes()


def test_a_forged_entry_is_rejected_with_a_proof_that_a_third_party_checks():
    log, _ = trained()
    decoded = _core.decode_rounding_log(log["bytes"])
    taken = {position for position, _ in decoded["entries"]}
    free = next(at for at in range(1000, 2000) if at not in taken)
    entries = sorted([*decoded["entries"], (free, True)])
    forged = _core.encode_rounding_log(bits=23, values=log["values"], entries=entries)
    digest = _core.rounding_log_digest(forged)
    audit, _ = audited(forged, digest)
    assert [each["fault"] for each in audit["rejections"]] == ["outside_window"]
    proof = audit["rejections"][0]["proof"]
    a, b = operands(1)

    def rows(position: int) -> tuple[np.ndarray, np.ndarray]:
        row, column = divmod(position, COLUMNS)
        return a[row], np.ascontiguousarray(b[:, column])

    facts = {"bits": 23, "values": log["values"], "operands": rows}
    _core.referee_rounding(proof, committed=digest, **facts)
    with pytest.raises(_core.MismatchError):
        _core.referee_rounding(proof, committed=log["digest"], **facts)
    b[0] += 1  # a third party with other operands is not convinced
    with pytest.raises(_core.MismatchError):
        _core.referee_rounding(proof, committed=digest, **facts)


def test_a_log_that_was_not_committed_is_late():
    log, _ = trained()
    audit, _ = audited(log["bytes"], None)
    assert [each["fault"] for each in audit["rejections"]] == ["not_committed"]


def test_buffers_of_another_kind_are_refused():
    session = _core.RoundingSession("trainer")
    session.begin_step(1)
    a, b = operands(1)
    out = np.empty((ROWS, COLUMNS), np.float32)
    with pytest.raises(_core.UsageError):
        session.multiply("matmul", a.astype(np.float64), b, out)
    with pytest.raises(_core.UsageError):
        session.multiply("matmul", a, b[:, ::2], out)
    with pytest.raises(_core.UsageError):
        session.multiply("matmul", a, b, out[:-1])
