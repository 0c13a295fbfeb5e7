# SPDX-License-Identifier: Apache-2.0
"""Who computes the same in two ways accuses nobody."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

import driver_tasks as tasks
import pytest
import torch

import potl

# Of the last losses: nothing that a checkpoint holds.
_memory: deque[float] = deque(maxlen=4)


class Remembering(potl.Task):
    """Weighs a step by what others were worth."""

    def compute_loss(self, batch: Any, reduction: str = "mean") -> torch.Tensor:
        loss = super().compute_loss(batch, reduction)
        if len(_memory) == 4:
            loss = loss * (1 + _memory[0])
        _memory.append(float(loss.detach().mean()))
        return loss


def build() -> potl.Task:
    _memory.clear()
    return Remembering(**tasks.options())


@pytest.mark.parametrize("checks", [[potl.Replay(samples=4)], [potl.PEV(fraction=1.0)], None])
def test_a_task_with_a_memory_of_its_own_accuses_nobody(
    tmp_path: Path, checks: list[Any] | None
) -> None:
    # As a memory of more steps than a check trains.
    job = potl.Job.create(build, seed=7, checkpoint_every=4, arithmetic="ord32", check=False)
    run = potl.record(build, tmp_path / "run", job=job, key=tmp_path / "trainer.pem")
    report = potl.verify(
        run, job=job, commitment=run.commit(), task=build, checks=checks, ledger=None
    )
    assert report.verdict == "inconclusive", report.json()
    assert "in two ways here (if the task keeps something outside of its state" in report.json()
