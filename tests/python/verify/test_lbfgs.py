# SPDX-License-Identifier: Apache-2.0
"""LBFGS of torch keeps numbers as tensors, or not, as its line search ends."""

from pathlib import Path
from typing import Any

import driver_tasks as tasks
import torch

import potl


class Searching(potl.Task):
    """The first two steps end in a number, and the third in a tensor."""

    def step(self, batch: Any) -> torch.Tensor:
        losses = []

        def closure() -> torch.Tensor:
            self.optimizer.zero_grad()
            loss = self.compute_loss(batch)
            loss.backward()
            losses.append(loss.detach())
            return loss

        self.optimizer.step(closure)
        (kept,) = self.optimizer.state.values()
        number = float(kept["t"])
        kept["t"] = torch.tensor(number) if kept["func_evals"] > 4 else number
        return losses[0]


def build() -> potl.Task:
    options = tasks.options(max_steps=8)
    optimizer = torch.optim.LBFGS(options["model"].parameters(), lr=0.1, max_iter=2)
    return Searching(**{**options, "optimizer": optimizer, "scheduler": None})


def test_a_length_that_becomes_a_tensor_accuses_nobody(tmp_path: Path) -> None:
    job = potl.Job.create(build, seed=7, checkpoint_every=2)
    run = potl.record(build, tmp_path / "run", job=job)
    report = potl.verify(run, job=job, commitment=run.commit(), task=build, ledger=None)
    assert report.verdict == "accepted", report.sentence
