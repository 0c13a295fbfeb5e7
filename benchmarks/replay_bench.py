# SPDX-License-Identifier: Apache-2.0
"""What replaying costs: a ResNet-20 segment of 100 steps, replayed / trained, build and loading
apart.

Training is the plain PyTorch loop over a DataLoader, in the same process and in turn with the
replay.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from pathlib import Path

import measuring
import workloads
from record_bench import plain_steps

import potl
from potl import _core
from potl._verify._schema import Schema
from potl._verify._workload import replayer_of

SEGMENT = 100
ROUNDS = 5 if measuring.FULL else 2
WARM_UP = 3


def build() -> potl.Task:
    return workloads.resnet20_task(epochs=-(-SEGMENT // 20))


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="potl-replay-bench-"))
    try:
        job = potl.Job.create(build, seed=7, checkpoint_every=SEGMENT, arithmetic="stock")
        run = potl.record(build, folder / "run", job=job)
        note = str(run.commit())
        evidence = _core.Evidence.open(str(run.path), job=job.core, commitment=note)
        request = _core.SegmentRequest(start=0, end=SEGMENT, why="first")
        pairs = []
        with potl.Session.open(build, seed=job.core.seed, job=job) as session:
            schema = Schema(session, evidence)
            assert schema.largest_bytes > 0  # taken by the verifier.s own first steps
            replayer = replayer_of(
                session, schema, evidence, timeout=None, derive=False, own_job=True
            )
            plain = plain_steps(build(), (ROUNDS + 1) * SEGMENT)
            for step, _, batch in session.batches(1, WARM_UP):
                session.run_step(step, batch)
                next(plain)
            for _ in range(ROUNDS):
                trained = measuring.timed(lambda: sum(itertools.islice(plain, SEGMENT)))
                with session.active():
                    answer = replayer.answer(request)
                assert isinstance(answer, _core.SegmentMeasurement) and answer.digest_equal, answer
                pairs.append((answer.replay_seconds, trained))
        ratio = measuring.of_pairs(pairs)
        measuring.write(
            "replay",
            [
                measuring.result(
                    "replay.cost",
                    ratio.seconds / SEGMENT * 1e3,
                    "ms/step",
                    "plain PyTorch loop over a DataLoader",
                    ratio,
                    at_most=1.10,
                    steps=SEGMENT,
                    load_seconds=answer.load_seconds,
                )
            ],
        )
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
