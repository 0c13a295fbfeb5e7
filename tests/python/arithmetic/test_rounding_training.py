# SPDX-License-Identifier: Apache-2.0
"""A training in log64 on both sides, and what a trainer who rounds as it likes gets. Seeds are
fixed: outcomes do not vary.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from log64_mlp import Array, Mlp, Products, Steering, train

from potl import _core

STEPS, OTHER = 100, 5
Entries = list[tuple[int, bool]]


@pytest.fixture(scope="module")
def trained() -> tuple[Mlp, list[Any]]:
    return train(STEPS, 0)


@pytest.fixture(scope="module")
def first(trained: tuple[Mlp, list[Any]]) -> Any:
    return trained[1][0]


def audit_step(log: bytes, committed: bytes | None = None, **options: Any) -> tuple[Any, Products]:
    """The auditor's findings on step 1, and the operands that it has seen."""
    session = _core.RoundingSession("auditor", order=OTHER, **options)
    session.begin_step(1, log=log, committed=committed or _core.rounding_log_digest(log))
    products = Products(session)
    Mlp().step(products)
    return session.end_audit(), products


def encode(log: Any, entries: Iterable[tuple[int, bool]]) -> bytes:
    return _core.encode_rounding_log(bits=32, values=log["values"], entries=entries)


def entries_of(log: Any) -> Entries:
    entries: Entries = _core.decode_rounding_log(log["bytes"])["entries"]
    return entries


def is_proven(audit: Any, products: Products, log: bytes) -> bool:
    """Whether a third party with nothing but operands and the committed digest is convinced, and
    is not by the same proof about another log.
    """
    facts: dict[str, Any] = {
        "bits": 32,
        "values": products.values,
        "operands": products.operands,
    }
    proof = audit["rejections"][0]["proof"]
    _core.referee_rounding(proof, committed=_core.rounding_log_digest(log), **facts)
    with pytest.raises(_core.MismatchError):
        _core.referee_rounding(proof, committed=bytes(32), **facts)
    return True


def near_tie(products: Products, position: int) -> tuple[Fraction, Fraction, Fraction, Array]:
    """Second opinion, from docs/format/rounding_log.md: the exact sum, the tie next to it, E, and
    both neighbours of the tie.
    """
    a, b = products.operands(position)
    exact = sum(
        (Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a, b, strict=True)), Fraction()
    )
    low = np.float32(float(exact))
    if Fraction(float(low)) > exact:
        low = np.nextafter(low, np.float32(-np.inf))
    around = [np.nextafter(low, np.float32(-np.inf)), low]
    around += [np.nextafter(low, np.float32(np.inf))]
    around += [np.nextafter(around[2], np.float32(np.inf))]
    pairs = list(itertools.pairwise(around))
    middles = [(Fraction(float(x)) + Fraction(float(y))) / 2 for x, y in pairs]
    best = min(range(3), key=lambda i: abs(middles[i] - exact))
    terms = len(a)
    chunk = 128 if terms <= 32768 else 256
    depth = min(terms, chunk) - 1 + -(-terms // chunk) - 1
    squares = Fraction(float(np.dot(a.astype(float), a.astype(float)))) * Fraction(
        float(np.dot(b.astype(float), b.astype(float)))
    )
    error = Fraction((depth + 4) * float(squares) ** 0.5) / 2**53
    return exact, middles[best], error, np.array(pairs[best], np.float32)


def test_another_order_of_summation_follows_the_log_through_a_whole_training(
    trained: tuple[Mlp, list[Any]],
) -> None:
    model, logs = trained
    corrections = differing = 0
    for order in range(1, 5):
        other = Mlp()
        session = _core.RoundingSession("auditor", order=order)
        for log in logs:
            session.begin_step(log["step"], log=log["bytes"], committed=log["digest"])
            other.step(Products(session))
            audit = session.end_audit()
            assert audit["rejections"] == []
            corrections += audit["corrections"]
        assert other.bits() == model.bits()
        differing += train(STEPS, order, role="none")[0].bits() != model.bits()
    assert corrections > 0
    assert differing > 0, "without the log the orders make no difference here: a weak test"


@pytest.mark.parametrize("flips", [1, 10, None])
def test_directions_flipped_outside_of_the_window_are_rejected_every_time(
    first: Any, flips: int | None
) -> None:
    honest = entries_of(first)
    taken = {position for position, _ in honest}
    free = np.array([at for at in range(first["values"]) if at not in taken])
    for seed in range(10 if flips else 1):
        draw = np.random.default_rng(seed)
        chosen = free if flips is None else draw.choice(free, flips, replace=False)
        added = [(int(at), bool(draw.integers(2))) for at in chosen]
        forged = encode(first, sorted([*honest, *added]))
        audit, products = audit_step(forged)
        assert audit["rejected"] > 0
        assert audit["rejections"][0]["fault"] == "outside_window"
        assert is_proven(audit, products, forged)
        # A flood costs the auditor nothing: one exact dot product more than its own list.
        assert audit["exact_dots"] <= audit["own_ties"] + 1


def steered(choose: Callable[[int, float, bool], bool]) -> Steering:
    """The first step of a trainer that rounds near ties as `choose` says."""
    products = Steering(choose)
    Mlp().step(products)
    return products


def flip_one(which: int) -> Callable[[int, float, bool], bool]:
    return lambda number, _, up: up != (number == which)


def test_a_flipped_direction_is_rejected_or_reported_as_an_exact_sum_decides(first: Any) -> None:
    inside = outside = 0
    for flip in range(0, first["entries"], 12):
        trainer = steered(flip_one(flip))
        log, position = trainer.log(), trainer.flipped[0]
        audit, products = audit_step(log)
        exact, middle, error, pair = near_tie(products, position)
        up = dict(trainer.entries)[position]
        if up != (exact > middle) and abs(exact - middle) > error * Fraction(101, 100):
            outside += 1
            assert audit["rejections"][0]["fault"] == "wrong_direction"
            assert is_proven(audit, products, log)
        elif up != (exact > middle) and abs(exact - middle) < error * Fraction(99, 100):
            inside += 1
            assert audit["rejected"] == 0 and audit["corrections"] >= 1
            step = float(pair[1]) - float(pair[0])
            assert 0 < step <= audit["reachable_linf"]
            assert 0.99 * step <= audit["moved_l2"] <= audit["reachable_l2"]
    assert inside > 10 and outside > 10


def test_steering_inside_of_the_window_is_reported_with_what_it_could_reach() -> None:
    """Every entry that can be flipped is, both ways alike: no exact sum tells it from noise."""
    trainer = steered(lambda _, distance, up: up != (distance < 0.99))
    audit, _ = audit_step(trainer.log())
    assert audit["rejected"] == 0
    assert len(trainer.flipped) > 100
    assert audit["corrections"] == pytest.approx(len(trainer.flipped), rel=0.05)
    assert 0.5 * audit["reachable_l2"] < audit["moved_l2"] <= audit["reachable_l2"]


def test_a_log_that_points_one_way_accuses_nobody() -> None:
    """Honest ones may: no exact sum tells it from noise."""
    trainer = steered(lambda _, distance, up: up or distance < 0.99)
    audit, _ = audit_step(trainer.log())
    assert audit["rejected"] == 0
    assert 0 < audit["moved_l2"] <= audit["reachable_l2"]


def test_entries_that_are_left_out_are_rejected(first: Any) -> None:
    honest = entries_of(first)
    _, products = audit_step(first["bytes"])
    for i in range(0, len(honest), 25):
        exact, middle, error, _ = near_tie(products, honest[i][0])
        forged = encode(first, honest[:i] + honest[i + 1 :])
        audit, _ = audit_step(forged)
        # Between E and 2 E an honest trainer's own sum may be clear of the tie.
        if abs(exact - middle) < error * Fraction(99, 100):
            assert [each["fault"] for each in audit["rejections"]] == ["missing_entry"]
            assert is_proven(audit, products, forged)
    nothing = encode(first, [])
    audit, products = audit_step(nothing)
    assert audit["rejections"][0]["fault"] == "missing_entry"
    assert is_proven(audit, products, nothing)


def test_late_foreign_and_non_canonical_logs_are_rejected(
    trained: tuple[Mlp, list[Any]], first: Any
) -> None:
    session = _core.RoundingSession("auditor", order=OTHER)
    session.begin_step(1, log=first["bytes"], committed=None)  # the leaf binds none: it is late
    products = Products(session)
    Mlp().step(products)
    audit = session.end_audit()
    assert [each["fault"] for each in audit["rejections"]] == ["not_committed"]
    facts: dict[str, Any] = {"bits": 32, "values": 0, "operands": products.operands}
    _core.referee_rounding(audit["rejections"][0]["proof"], committed=None, **facts)

    audit, _ = audit_step(trained[1][1]["bytes"], first["digest"])
    assert [each["fault"] for each in audit["rejections"]] == ["other_log"]

    wider = bytearray(first["bytes"])
    wider[2] += 1  # another Rice parameter: not the log's one encoding
    for forged in (bytes(wider), first["bytes"] + b"\0", first["bytes"][:-1], b""):
        audit, products = audit_step(forged)
        assert [each["fault"] for each in audit["rejections"]] == ["malformed"]
        assert is_proven(audit, products, forged)

    longer = dict(first, values=first["values"] + 1)
    forged = encode(longer, entries_of(first))
    audit, products = audit_step(forged)
    assert [each["fault"] for each in audit["rejections"]] == ["wrong_size"]
    assert is_proven(audit, products, forged)


def test_honest_trainers_with_many_exact_ties_are_never_accused() -> None:
    """Averages of four and residual sums of numbers with few digits: many sums are ties."""
    draw = np.random.default_rng(9)
    pool = np.zeros((64, 16), np.float32)
    pool[np.arange(64), np.arange(64) // 4] = 0.25
    ties = 0
    for number in range(1, 51):
        images = draw.uniform(0.5, 1, (40, 64)).astype(np.float32)
        pairs = draw.uniform(0.5, 2, (2000, 2)).astype(np.float32)
        ones = np.ones((2, 1), np.float32)

        def run(session: Any, number: int = number) -> bytes:
            multiply = Products(session)
            out = multiply("pool", images, pool), multiply("residual", pairs, ones)  # noqa: B023
            return out[0].tobytes() + out[1].tobytes()

        trainer = _core.RoundingSession("trainer", order=number % 3)
        trainer.begin_step(number)
        ours = run(trainer)
        log = trainer.end_step()
        auditor = _core.RoundingSession("auditor", order=OTHER)
        auditor.begin_step(number, log=log["bytes"], committed=log["digest"])
        assert run(auditor) == ours
        audit = auditor.end_audit()
        assert audit["rejected"] == 0 and audit["entries"] == 0
        sums = pairs.astype(float).sum(1)
        near = sums.astype(np.float32).astype(float)
        ties += int(np.sum(np.abs(sums - near) * 2 == np.spacing(near.astype(np.float32))))
    assert ties > 10_000
