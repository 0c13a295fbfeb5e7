# SPDX-License-Identifier: Apache-2.0
"""What an audit costs beside the training that it repeats, and what a dispute exchanges. ResNet-20
(batch 128, SGD with momentum) and a GPT of 4 layers of width 256 (8 x 64 characters, AdamW), in
ord32.

    python benchmarks/dispute_audit_bench.py
"""

from __future__ import annotations

import itertools
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dispute_trace_bench
import measuring

import potl
from potl import _core

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "python" / "helpers"))

ROUNDS = 9 if measuring.FULL else 3
DISPUTES = 12 if measuring.FULL else 4
STEPS, AT = 6, 4
COST_AT_MOST = 1.05


def shortened(name: str) -> Callable[[], potl.Task]:
    """A few steps of a net."""
    build = dispute_trace_bench.NETS[name]

    def short() -> potl.Task:
        task = build()
        task.max_steps = STEPS
        return task

    return short


def audit_cost(name: str, folder: Path) -> Iterator[dict[str, Any]]:
    """Recording a run against repeating and comparing it, both from the build on. In processor
    time: both do the same on as many threads, and other work on the machine does not count.
    """
    build = shortened(name)
    job = potl.Job.create(build, seed=1, checkpoint_every=2, arithmetic="ord32")
    run = potl.record(build, folder / "run", job=job)
    number = itertools.count()

    def repeat() -> float:
        log = folder / f"audit-{next(number)}"
        return measuring.processor_timed(lambda: potl.audit(run, job=job, task=build, log=log))

    def train() -> float:
        path = folder / f"run-{next(number)}"
        return measuring.processor_timed(lambda: potl.record(build, path, job=job))

    ratio = measuring.paired(repeat, train, rounds=ROUNDS)
    yield measuring.result(
        f"audit.cost.{name}",
        ratio.seconds / STEPS * 1e3,
        "ms/step",
        "recording the run, processor time",
        ratio,
        at_most=COST_AT_MOST,
    )


def exchanged(name: str, folder: Path) -> Iterator[dict[str, Any]]:
    """The largest transcript of disputes about drawn operators, and the referee's time."""
    from disputed import Liar, false_run

    build = shortened(name)
    key = _core.SigningKey.generate()
    job = potl.Job.create(build, seed=1, checkpoint_every=2, arithmetic="ord32")
    false = false_run(build, job, AT, folder / "false", key)
    potl.audit(false, job=job, task=build, log=folder / "log", to_the_end=True)
    auditor = potl.Party(folder / "log", job=job, task=build)
    story = auditor._story(AT)
    referee = potl.Referee(job, task=build)
    draw = random.Random(1)
    found: list[potl.Verdict] = []
    seconds = 0.0
    while len(found) < DISPUTES:
        operator = draw.randrange(len(story.leaves) - 1)
        if not story.content(f"operator/{operator}/0"):
            continue
        liar = Liar(false, job=job, task=build, key=key, at=AT, operator=operator)
        began = time.perf_counter()
        verdict = potl.dispute(trainer=liar, auditor=auditor, referee=referee)
        seconds = max(seconds, time.perf_counter() - began)
        assert verdict.winner == "auditor" or verdict.why == "referee", verdict.lines()
        found.append(verdict)
    state = max(path.stat().st_size for path in (folder / "log/checkpoints").iterdir())
    limit = 2 * state + 1_000_000
    yield measuring.result(
        f"dispute.bytes.{name}",
        max(len(one.evidence.transcript) for one in found) / 1e6,
        "MB",
        f"the largest of {DISPUTES} disputes; 2 checkpoints and 1 MB are {limit / 1e6:.1f} MB",
    )
    yield measuring.result(
        f"dispute.seconds.{name}",
        seconds,
        "s",
        "the longest, both parties and the referee in one process",
    )
    yield from judged(name, found, auditor, job)


def judged(
    name: str, found: list[potl.Verdict], auditor: potl.Party, job: potl.Job
) -> Iterator[dict[str, Any]]:
    """A third party without the task, on the largest evidence whose ruling it computes again: what
    `potl.judge` takes, where torch is there already, against the disputed step.
    """
    largest = max(
        (one.evidence for one in found if potl.judge(one.evidence, job=job).recomputed),
        key=lambda one: len(one.transcript),
    )
    before = auditor._state_before(AT)
    with auditor.open() as session, session.active():

        def step() -> float:
            session.restore(before)
            return measuring.timed(lambda: session.run_step(AT, session.sample_ids(AT)))

        ratio = measuring.paired(
            lambda: measuring.timed(lambda: potl.judge(largest, job=job)), step, rounds=ROUNDS
        )
    yield measuring.result(
        f"dispute.judge.seconds.{name}",
        ratio.seconds,
        "s",
        f"the disputed step; evidence of {len(largest.transcript) / 1e6:.2f} MB",
        ratio,
    )


def main() -> None:
    results: list[dict[str, Any]] = []
    for name in dispute_trace_bench.NETS:
        for measure in (audit_cost, exchanged):
            with tempfile.TemporaryDirectory() as folder:
                for found in measure(name, Path(folder)):
                    print(json.dumps(found), flush=True)
                    results.append(found)
    measuring.write("dispute_audit", results)


if __name__ == "__main__":
    main()
