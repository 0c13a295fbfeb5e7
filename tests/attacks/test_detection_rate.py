# SPDX-License-Identifier: Apache-2.0
"""A cheat in a share of the segments is found at the rate that the report states.

The forger moves the weights at the end of some segments and goes on from there, so exactly those
segments do not follow from their own start. Every segment is replayed once; each of many nonces
then draws from the real plan and is judged on those measurements.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import random
import secrets
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from potl import Replay, Task, _core
from potl._attacks import Forgery, Scene, _tasks as tasks
from potl._job._session import Session
from potl._remote._remote import Place
from potl._verify._answers import Answers

STEPS_PER_SEGMENT = 2
SEGMENTS = 100
SAMPLES = 12
NONCES = 1000
# That the rate of a correct draw falls outside the accepted counts.
FALSE_ALARM = 1e-6


def build() -> Task:
    task = tasks.plain()
    task.epochs = SEGMENTS * STEPS_PER_SEGMENT // 8
    return task


@dataclass(frozen=True)
class Judged:
    """A run whose segments were all replayed once."""

    evidence: _core.Evidence
    measured: dict[tuple[int, int], _core.SegmentMeasurement]

    def findings(self, nonce: bytes) -> tuple[set[int], list[_core.Finding]]:
        """The drawn segments, by number from 1, and what is found in them."""
        options = Replay(samples=SAMPLES, top_q=0, reach=0).options()  # chance alone
        plan = _core.plan_check("replay", self.evidence, options, nonce)
        answers = []
        for one in plan:
            assert isinstance(one, _core.SegmentRequest)
            answer = copy.copy(self.measured[one.start, one.end])
            answer.request = one
            answers.append(answer)
        drawn = {answer.request.end // STEPS_PER_SEGMENT for answer in answers}
        return drawn, _core.judge_check("replay", self.evidence, options, nonce, answers)


def replayed(scene: Scene, forgery: Forgery) -> Judged:
    job, note = scene.job, forgery.commitment
    evidence = _core.Evidence.open(str(forgery.run), job=job.core, commitment=note)
    everything = Replay(samples=SEGMENTS, top_q=0, reach=0).options()
    plan = _core.plan_check("replay", evidence, everything, bytes(32))
    # Any of them may be among the few that a draw measures in full.
    for one in plan:
        assert isinstance(one, _core.SegmentRequest)
        one.noise_repeats = 2
    place = Place.of(forgery.run)
    with Answers(place, evidence, job=job, note=note, task=build, progress=False) as answers:
        measurements = answers.to(plan)
    measured = {(m.request.start, m.request.end): m for m in measurements}
    assert len(measured) == SEGMENTS
    return Judged(evidence, measured)


def nonces(seed: int) -> list[bytes]:
    return [hashlib.sha256(f"{seed} {number}".encode()).digest() for number in range(NONCES)]


def rejects(findings: list[_core.Finding]) -> bool:
    return any(finding.result == "reject" for finding in findings)


def tails(successes: int, probability: float) -> tuple[float, float]:
    """P(X <= successes) and P(X >= successes) of a binomial variable over all nonces."""
    terms = [
        math.comb(NONCES, k) * probability**k * (1 - probability) ** (NONCES - k)
        for k in range(NONCES + 1)
    ]
    return math.fsum(terms[: successes + 1]), math.fsum(terms[successes:])


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    directory: Path = tmp_path_factory.mktemp("rates")
    return Scene(directory, build, checkpoint_every=STEPS_PER_SEGMENT, samples=SAMPLES)


def moved_at(scene: Scene, bad: set[int]) -> Forgery:
    """A run whose weights are moved at the end of the segments in `bad`, which are counted from
    1.
    """

    def move(session: Session, step: int) -> None:
        if step // STEPS_PER_SEGMENT in bad:
            with torch.no_grad():
                for parameter in session.task.model.parameters():
                    parameter.add_(1e-2 * parameter.abs().mean())

    return scene.forged(f"moved-{len(bad)}", rewrite=move)


@pytest.mark.parametrize("share", [0.01, 0.05, 0.20])
def test_a_partial_cheat_is_found_at_the_predicted_rate(scene: Scene, share: float) -> None:
    seed = secrets.randbits(32)
    count = round(share * SEGMENTS)
    # The first and the last segment are always replayed; the best cheat avoids them.
    bad = set(random.Random(seed).sample(range(2, SEGMENTS), count))
    run = replayed(scene, moved_at(scene, bad))

    found = 0
    for nonce in nonces(seed):
        drawn, findings = run.findings(nonce)
        assert rejects(findings) == bool(drawn & bad), (seed, nonce.hex())
        found += rejects(findings)

    pool = SEGMENTS - 2
    predicted = 1 - math.comb(pool - count, SAMPLES) / math.comb(pool, SAMPLES)
    low, high = tails(found, predicted)
    print(
        f"seed {seed}: {count} of {SEGMENTS} segments cheated, {found} of {NONCES} draws of "
        f"{SAMPLES} found it ({found / NONCES:.4f}, predicted {predicted:.4f}); tails {low:.2g} "
        f"and {high:.2g}, accepted above {FALSE_ALARM / 2:.1g}"
    )
    assert min(low, high) > FALSE_ALARM / 2

    report = json.loads(_core.conclude(run.evidence, findings, policy={}, context={}))
    stated = {row["cheat_fraction"]: row for row in report["strength"]["table"]}[share]
    assert stated["bad_segments"] == count
    assert stated["probability"] == pytest.approx(predicted, rel=1e-9)


def test_an_honest_run_is_never_suspected_whatever_is_drawn(scene: Scene) -> None:
    seed = secrets.randbits(32)
    run = replayed(scene, scene.honest)
    results = {finding.result for nonce in nonces(seed) for finding in run.findings(nonce)[1]}
    print(f"seed {seed}: results {sorted(results)} over {NONCES} draws")
    assert results <= {"pass", "note"}
