# SPDX-License-Identifier: Apache-2.0
"""Trainings that are recorded with one thread and verified with two, with a cheat in between."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import potl

Cheat = Callable[[list[Tensor], list[Tensor]], None]
"""Changes the weights after a step; it is also given those before."""


class Cheated(potl.Task):
    """What a cheat does to the weights behind its third step."""

    cheat: Cheat | None = None
    taken = 0

    def step(self, batch: Any) -> Any:
        weights = list(self.model.parameters())
        before = [one.detach().clone() for one in weights]
        loss = super().step(batch)
        Cheated.taken += 1
        if Cheated.cheat is not None and Cheated.taken == 3:
            with torch.no_grad():
                Cheated.cheat(weights, before)
        return loss


def verdict(
    build: Callable[[], Cheated],
    folder: Path,
    mode: str = "ord32",
    cheat: Cheat | None = None,
    every: int = 3,
) -> str:
    """Of a run with a state after `every` steps."""
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        job = potl.Job.create(build, seed=5, checkpoint_every=every, arithmetic=mode)
        Cheated.taken, Cheated.cheat = 0, cheat
        try:
            run = potl.record(build, folder / "run", job=job)
        finally:
            Cheated.cheat = None
        torch.set_num_threads(2)
        checks = [potl.Replay(samples=2)]
        report = potl.verify(
            run, job=job, commitment=run.commit(), task=build, checks=checks, ledger=None
        )
    finally:
        torch.set_num_threads(threads)
    return str(report.verdict)
