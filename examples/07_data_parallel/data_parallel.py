# SPDX-License-Identifier: Apache-2.0
"""Several processes train together, and one process verifies what they did.

Run it in an empty folder:  torchrun --nproc-per-node 2 data_parallel.py
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

import potl

digits = load_digits()
train_set = TensorDataset(
    torch.tensor(digits.images, dtype=torch.float32) / 16, torch.tensor(digits.target)
)


def build() -> potl.Task:
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 48), nn.LayerNorm(48), nn.ReLU(), nn.Linear(48, 10)
    )
    return potl.Task(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=2e-3),
        dataset=train_set,
        loss=F.cross_entropy,
        batch_size=64,  # of all processes together
        accumulate=4,  # micro-batches: up to four processes share a step
        epochs=3,
    )


if __name__ == "__main__":
    dist.init_process_group()
    run = potl.record(
        build,
        "runs/1",
        seed=7,
        checkpoint_every=20,
        key="trainer.pem",
        group=dist.group.WORLD,
    )
    dist.destroy_process_group()
    if run is not None:  # rank 0, which has the run
        report = potl.verify(run, job=run.job, commitment=run.commit(), task=build)
        print(report.verdict)
