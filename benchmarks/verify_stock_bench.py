# SPDX-License-Identifier: Apache-2.0
"""What the verifier's own noise costs in stock arithmetic: a verification of an honest run that was
recorded with two threads, by one thread, against that of the same training recorded with one, whose
bits are equal, so that its segments are replayed once and no more. All segments are drawn; the net
is a ResNet-20.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import measuring
import torch
import workloads
from torch.nn import functional

import potl

ROUNDS = 5 if measuring.FULL else 3
AT_MOST = 1.5


def sgd() -> potl.Task:
    """Nothing divides: no step behind a segment."""
    model = workloads.resnet20()
    return task(model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))


def adam() -> potl.Task:
    """A step behind each segment, too."""
    model = workloads.resnet20()
    return task(model, torch.optim.Adam(model.parameters(), lr=1e-3))


def task(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> potl.Task:
    return potl.Task(
        model=model,
        optimizer=optimizer,
        dataset=workloads.images(480),
        loss=functional.cross_entropy,
        batch_size=32,
        epochs=2,
    )


def measured(build: Callable[[], potl.Task], folder: Path) -> dict[str, Any]:
    verdicts: list[str] = []
    job = potl.Job.create(build, seed=7, checkpoint_every=2, arithmetic="stock")
    notes = {}
    for threads in (1, 2):
        torch.set_num_threads(threads)
        run = potl.record(build, folder / str(threads), job=job, key=folder / "trainer.pem")
        notes[threads] = run.commit()
    torch.set_num_threads(1)

    def verified(threads: int) -> potl.Report:
        every = potl.Replay(samples=job.core.segments, top_q=0)
        return potl.verify(
            folder / str(threads),
            job=job,
            commitment=notes[threads],
            task=build,
            checks=[every],
            ledger=None,
        )

    def other() -> None:
        report = verified(2)
        if all(replay["equal"] for replay in report.document["replays"]):
            raise RuntimeError("two threads give the bits of one here: nothing is measured")
        verdicts.append(report.verdict)

    def same() -> None:
        report = verified(1)
        if not all(replay["equal"] for replay in report.document["replays"]):
            raise RuntimeError("one thread gives other bits at each run here")

    ratio = measuring.paired(
        lambda: measuring.processor_timed(other),
        lambda: measuring.processor_timed(same),
        rounds=ROUNDS,
    )
    asked = {"at_most": AT_MOST} if build is sgd else {}
    return measuring.result(
        "verify.cost.stock" if build is sgd else "verify.cost.stock.adam",
        ratio.seconds,
        "s of processor time",
        "the same segments replayed once",
        ratio,
        segments=job.core.segments,
        verdicts=sorted(set(verdicts)),
        **asked,
    )


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="potl-verify-stock-bench-"))
    try:
        results = []
        for build in (sgd, adam):
            (folder / build.__name__).mkdir()
            results.append(measured(build, folder / build.__name__))
        measuring.write("verify_stock", results)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
