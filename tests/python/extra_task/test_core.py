# SPDX-License-Identifier: Apache-2.0
"""The extra task's decisions in C++, against exact rationals, scipy-free definitions and numpy."""

from __future__ import annotations

import ast
import hmac
import itertools
import random
import struct
from fractions import Fraction
from math import comb, isqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import potl
from potl import _core

KEY = bytes(range(32))
CIFAR = {"family": "image", "height": 32, "width": 32, "channels": 3}


def samples(content: dict[str, Any] = CIFAR, **changes: Any) -> _core.ExtraSamples:
    settings: dict[str, Any] = {"samples": 400, "classes": 10, "options": {}} | changes
    return _core.ExtraSamples(KEY, content, **settings)


def exact_needed(count: int, classes: int, alpha: Fraction, epsilon: Fraction) -> int:
    """min{k : P(X > k) <= alpha} + 1 in integers."""
    chance = epsilon + (1 - epsilon) / classes
    hit, miss = chance.numerator, chance.denominator - chance.numerator
    limit = alpha * chance.denominator**count
    term = hit**count  # C(n, k) hit^k miss^(n-k), from k = n down
    tail, k = 0, count
    while tail + term <= limit:
        tail += term
        term = term * k * miss // ((count - k + 1) * hit)
        k -= 1
    return k + 1


def test_the_thresholds_of_200_random_settings_are_those_of_exact_rationals() -> None:
    draw = random.Random(5)
    for _ in range(200):
        count, classes = (
            draw.randint(5, 1500),
            draw.choice([2, 3, 4, 10, 100, draw.randint(2, 999)]),
        )
        alpha, epsilon = (
            draw.randint(1, 200_000),
            draw.choice([0, 30_000, draw.randint(0, 300_000)]),
        )
        found = _core.extra_needed_hits(
            samples=count, classes=classes, alpha=alpha / 1e6, epsilon=epsilon / 1e6
        )
        exact = exact_needed(count, classes, Fraction(alpha, 10**6), Fraction(epsilon, 10**6))
        assert found == exact, (count, classes, alpha, epsilon)


def test_plans_and_judgements_have_the_members_that_the_stub_declares() -> None:
    stub = ast.parse(Path(str(potl.__file__)).with_name("_core_extra_task.pyi").read_text())
    declared = {
        node.name: [one.target.id for one in node.body
                    if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)]
        for node in stub.body if isinstance(node, ast.ClassDef)
    }  # fmt: skip
    plan = _core.plan_extra_task(training_samples=50_000, classes=10, options={})
    curve = [(0.1, 0.1), (1.0, 0.9)]
    found = _core.judge_extra_task(
        options={}, samples=400, classes=10, extra=np.zeros(400), control=np.zeros(1600),
        curves=[(grade, curve) for grade in plan["grades"]], measured=[0] * len(plan["grades"]),
    )  # fmt: skip
    for name, values in [
        ("ExtraPlanned", plan),
        ("ExtraPower", plan["powers"][0]),
        ("ExtraPower", plan["acceptance"][0]),
        ("ExtraAccuracy", plan["accuracy"]),
        ("ExtraJudged", found),
        ("ExtraGrade", found["grades"][0]),
        ("ExtraShare", found["progress"]),
    ]:
        assert sorted(declared[name]) == sorted(values or ()), name


def test_submissions_divide_alpha_exactly() -> None:
    for number in (2, 3, 7):
        exact = exact_needed(400, 10, Fraction(1, 100 * number), Fraction(3, 100))
        assert _core.extra_needed_hits(samples=400, classes=10, submissions=number) == exact


def test_regions_are_integer_square_roots_of_decimals() -> None:
    for side in (8, 10, 28, 32, 64, 224):
        for percent in range(1, 100):
            exact = isqrt((100 - percent) * side * side // 100)
            assert _core.extra_region(side, percent / 100) == exact
            assert _core.extra_words(side, percent / 100) == (100 - percent) * side // 100


def test_samples_fill_arrays_of_their_type() -> None:
    extra = samples()
    assert (extra.count("extra"), extra.count("control"), extra.elements) == (400, 1600, 3072)
    assert extra.grades == ["0.6", "0.75", "0.85"]
    images = np.zeros((400, 32, 32, 3), np.uint8)
    extra.fill("extra", 0, images)
    one = np.zeros((32, 32, 3), np.uint8)
    extra.fill("extra", 17, one)
    assert (one == images[17]).all()
    assert extra.label(17) == 7
    assert extra.grade(17) == 1
    words = np.zeros((3, 50), np.int64)
    samples({"family": "tokens", "length": 50, "vocabulary": 1000}).fill("control", 9, words)
    assert words.min() >= 0 and words.max() < 1000 and len(set(words.flat)) > 50
    rows = np.zeros((3, 9), np.float64)
    samples({"family": "table", "categories": [0, 0, 4, 0, 0, 0, 0, 0, 0]}).fill("extra", 9, rows)
    assert rows.min() >= 0 and rows[:, 2].max() < 4


def keyed_bytes(purpose: bytes, index: int, count: int) -> bytes:
    """The stream of one sample as docs/reference/extra_task_samples.md defines it."""
    place = struct.pack("<QQ", index, 0)
    seed = hmac.digest(KEY, b"potl.extra_task.v1\0" + purpose + b"\0" + place, "sha256")
    blocks = (hmac.digest(seed, struct.pack("<Q", block), "sha256") for block in itertools.count())
    return b"".join(itertools.islice(blocks, count // 32 + 1))[:count]


def test_samples_of_the_published_layout_are_bytes_of_hmac_streams() -> None:
    extra = samples(options={"layout": "paper"})
    pattern = np.frombuffer(keyed_bytes(b"pattern", 0, 3072), np.uint8).reshape(32, 32, 3)
    for which in ("extra", "control"):
        found = np.zeros((32, 32, 3), np.uint8)
        extra.fill(which, 9, found)
        wanted = pattern.copy()
        corner = np.frombuffer(keyed_bytes(which.encode(), 9, 768), np.uint8)
        wanted[:16, :16] = corner.reshape(16, 16, 3)
        assert (found == wanted).all()


def test_buffers_that_do_not_fit_and_unknown_sets_are_refused() -> None:
    extra = samples()
    for wrong in (
        np.zeros(3071, np.uint8),
        np.zeros(3072, np.float32),
        np.zeros((2, 3072), np.uint8)[:, ::2],
        np.zeros(3072, np.int64),
    ):
        with pytest.raises(_core.UsageError):
            extra.fill("extra", 0, wrong)
    with pytest.raises(_core.UsageError, match="no set"):
        extra.fill("train", 0, np.zeros(3072, np.uint8))
    with pytest.raises(_core.UsageError):
        extra.fill("extra", 400, np.zeros(3072, np.uint8))
    with pytest.raises(_core.UsageError, match="32 bytes"):
        _core.ExtraSamples(b"short", CIFAR, samples=400, classes=10, options={})


def test_the_order_is_a_permutation_of_real_samples_and_uploads() -> None:
    extra = samples(options={"grades": ["noisy:0.75"]})
    uploads = extra.uploads()
    assert len(uploads) == 1200
    assert uploads[0] == (0, 0, 0)
    order = np.frombuffer(extra.order(1000), np.int64)
    assert sorted(order) == list(range(2200))


def test_a_plan_states_sizes_thresholds_and_what_must_be_learned() -> None:
    plan = _core.plan_extra_task(training_samples=25_000, classes=2, options={})
    assert (plan["samples"], plan["needed"], plan["controls"]) == (200, 120, 800)
    assert [row["power"] for row in plan["powers"]] == [0.5, 0.9, 0.99]
    assert len(plan["warnings"]) == 1  # of what guesses among two classes hide
    small = _core.plan_extra_task(training_samples=1000, classes=10, options={})
    assert small["samples"] == 200
    assert len(small["warnings"]) == 2


def test_the_learned_share_of_a_plan_passes_that_often() -> None:
    # 2,000 simulated models; 5 standard deviations: false alarm below 1e-6. Seed 11.
    plan = _core.plan_extra_task(training_samples=50_000, classes=10, options={})
    generator = np.random.default_rng(11)
    against = {}
    for row in plan["powers"]:
        hits = row["learned"] + generator.binomial(400 - row["learned"], 0.1, 2000)
        controls = generator.binomial(1600, 0.1, 2000)
        passed = 0
        for hit, control in zip(hits.tolist(), controls.tolist(), strict=True):
            if hit < plan["needed"]:
                continue
            if (hit, control) not in against:
                p_value = _core.difference_p_value(hit, 400, control, 1600, 0.03)
                against[hit, control] = p_value <= 0.01
            passed += against[hit, control]
        share, power = passed / 2000, row["power"]
        assert share > power - 5 * (power * (1 - power) / 2000) ** 0.5
        assert share < min(1.0, power + 0.05) + 5 * (power * (1 - power) / 2000) ** 0.5


def answers(learned: int, count: int, classes: int, seed: int) -> np.ndarray[Any, Any]:
    generator = np.random.default_rng(seed)
    out = generator.integers(0, classes, count).astype(np.float64)
    out[:learned] = np.arange(learned) % classes
    return out


def judge(extra: Any, control: Any, **changes: Any) -> dict[str, Any]:
    settings: dict[str, Any] = {"options": {}, "samples": 400, "classes": 10} | changes
    return _core.judge_extra_task(extra=extra, control=control, **settings)


def test_a_judgement_says_hits_needed_and_verdict() -> None:
    control = answers(0, 1600, 10, 1)
    good = judge(answers(300, 400, 10, 2), control)
    assert good["verdict"] == "accepted"
    assert good["hits"] >= 300
    assert good["needed"] == 68
    assert {finding.rule for finding in good["findings"]} == {
        "extra_task.hits",
        "extra_task.control",
    }
    bad = judge(answers(0, 400, 10, 2), control)
    assert bad["verdict"] == "rejected"
    assert good["hash"] != bad["hash"]
    with pytest.raises(_core.UsageError):
        judge(answers(0, 400, 10, 2), control[:-1])
    with pytest.raises(_core.UsageError):
        judge(answers(0, 400, 10, 2).astype(np.float32), control)


def test_a_model_that_learned_a_share_of_epsilon_passes_no_more_often_than_alpha() -> None:
    # 3 % known and the rest guessed; alpha 0.05, 200 models. P(more than 28 pass) < 1e-6.
    passed = 0
    for seed in range(200):
        extra, control = answers(12, 400, 10, 2 * seed), answers(0, 1600, 10, 2 * seed + 1)
        found = judge(extra, control, options={"alpha": 0.05})
        passed += found["verdict"] == "accepted"
    assert passed <= 28


def test_submissions_are_counted_by_their_hashes() -> None:
    control = answers(0, 1600, 10, 1)
    first = judge(answers(300, 400, 10, 2), control)
    second = judge(answers(300, 400, 10, 3), control, earlier=[first["hash"]])
    assert (second["submission"], second["verdict"]) == (2, "inconclusive")
    again = judge(answers(300, 400, 10, 2), control, earlier=[first["hash"]])
    assert (again["submission"], again["verdict"]) == (1, "accepted")


def test_progress_comes_with_reference_curves() -> None:
    curves = [("0.75", [(0.0, 0.1), (0.5, 0.1), (1.0, 0.9)])]
    found = judge(
        answers(300, 400, 10, 2),
        answers(0, 1600, 10, 1),
        options={"grades": ["0.75"]},
        curves=curves,
    )
    hits = found["hits"] / 400
    assert found["progress"]["share"] == pytest.approx(0.5 + (hits - 0.1) / 1.6, abs=0.01)
    assert found["progress"] == _core.extra_progress([("0.75", 400, found["hits"])], curves)
    assert judge(answers(300, 400, 10, 2), answers(0, 1600, 10, 1))["progress"] is None


def test_the_interval_of_progress_holds_the_truth_although_the_curve_is_measured() -> None:
    draw = np.random.default_rng(0)
    shares, samples, trials = np.array([0, 0.25, 0.5, 0.75, 1]), 200, 1000
    covered = {0: 0, samples: 0}
    for _ in range(trials):
        truth = draw.uniform(0.1, 0.9)
        rates = draw.binomial(samples, 0.1 + 0.8 * shares) / samples
        hits = int(draw.binomial(samples, 0.1 + 0.8 * truth))
        curve = [("0.75", list(zip(shares.tolist(), rates.tolist(), strict=True)))]
        for measured in covered:
            counts = [("0.75", samples, hits)]
            found = _core.extra_progress(counts, curve, measured=[measured])
            covered[measured] += found["low"] <= truth <= found["high"]
    # Five standard deviations below 95 %: false alarms below 1e-6. An exact curve it would not be.
    least = 0.95 * trials - 5 * (trials * 0.95 * 0.05) ** 0.5
    assert covered[0] < least < covered[samples], covered


def test_the_difference_test_agrees_with_a_sum_over_all_tables_in_rationals() -> None:
    # 6 of 8 against 2 of 12, margin 0: the supremum over p on a line, in exact arithmetic.
    def probability(hits: int, count: int, share: Fraction) -> Fraction:
        return comb(count, hits) * share**hits * (1 - share) ** (count - hits)

    def score(first: int, second: int) -> float:
        p, q, pooled = first / 8, second / 12, (first + second) / 20
        variance = pooled * (1 - pooled) * (1 / 8 + 1 / 12)
        return 0.0 if variance == 0 else (p - q) / variance**0.5

    seen = score(6, 2) - 1e-9
    tables = [(a, b) for a in range(9) for b in range(13) if score(a, b) >= seen]
    worst = max(
        sum(probability(a, 8, p) * probability(b, 12, p) for a, b in tables)
        for p in (Fraction(i, 400) for i in range(401))
    )
    found = _core.difference_p_value(6, 8, 2, 12, 0.0)
    assert float(worst) <= found <= float(worst) * 1.001


def test_ranks_agree_with_counting_pairs() -> None:
    generator = np.random.default_rng(4)
    first, second = generator.normal(size=60), generator.normal(0.3, size=90)
    u, p_value, exact = _core.mann_whitney_less(first, second)
    assert u == (first[:, None] > second[None, :]).sum()
    assert not exact
    assert 0 < p_value < 0.5


def test_the_published_layout_shares_regions_and_the_default_does_not() -> None:
    for layout, shared in (("paper", 400), ("jittered", 0)):
        images = np.zeros((400, 32, 32, 3), np.uint8)
        samples(options={"layout": layout}).fill("extra", 0, images)
        counts, windows = _core.shared_regions(images, window=(8, 8), stride=4)
        assert windows == 49
        assert sum(count > 0 for count in counts) == shared
    with pytest.raises(_core.UsageError, match="window"):
        _core.shared_regions(images, window=8)
    with pytest.raises(_core.UsageError):
        _core.shared_regions(images.astype(np.float32), window=(8, 8))
