# SPDX-License-Identifier: Apache-2.0
"""What verifying costs: a whole verification of a 5,000-step digits run / the time its training
took.

The policy sees false transitions in 5 % of the segments with probability 0.95. Training time is
that of a plain PyTorch loop of as many steps; that of the recorded training is printed beside it.
`reach.cost` is the part of it that compares every stored state with the one before.
"""

from __future__ import annotations

import collections
import shutil
import tempfile
from pathlib import Path

import measuring
import workloads
from record_bench import plain_steps

import potl

STEPS = 5000
EPOCHS = -(-STEPS // 57)
ROUNDS = 5 if measuring.FULL else 3


def build() -> potl.Task:
    return workloads.digits_task(EPOCHS)


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="potl-verify-bench-"))
    try:
        job = potl.Job.create(build, seed=7, checkpoint_every=5)
        began = measuring.timed(
            lambda: potl.record(build, folder / "run", job=job, key=folder / "trainer.pem")
        )
        commitment = potl.Run(folder / "run", key=folder / "trainer.pem").commit()
        policy = potl.Policy.for_detection(probability=0.95, cheat_fraction=0.05)
        reports = []

        def ours() -> None:
            reports.append(
                potl.verify(
                    folder / "run",
                    job=job,
                    commitment=commitment,
                    task=build,
                    policy=policy,
                    ledger=None,
                )
            )

        def theirs() -> None:
            collections.deque(plain_steps(build(), job.core.steps), maxlen=0)

        def screened() -> float:
            evidence = potl._core.Evidence.open(
                str(folder / "run"), job=job.core, commitment=str(commitment)
            )
            return measuring.timed(lambda: potl._core.screen_reach(evidence))

        ratio = measuring.interleaved(ours, theirs, rounds=ROUNDS)
        reach = measuring.paired(screened, lambda: measuring.timed(theirs), rounds=ROUNDS)
        assert all(report.verdict == "accepted" for report in reports), reports[-1].json()
        measuring.write(
            "verify",
            [
                measuring.result(
                    "verify.fraction",
                    ratio.seconds,
                    "s",
                    "plain PyTorch training of as many steps",
                    ratio,
                    at_most=0.12,
                    steps=job.core.steps,
                    recorded_seconds=began,
                    strength=dict(reports[-1].strength),
                ),
                measuring.result(
                    "reach.cost",
                    reach.seconds,
                    "s",
                    "plain PyTorch training of as many steps",
                    reach,
                    at_most=0.02,
                    steps=job.core.steps,
                    states=job.core.segments + 1,
                ),
            ],
        )
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
