# SPDX-License-Identifier: Apache-2.0
"""A net of 16 MiB of weights, and twice as much of Adam's; as a program, the memory that a referee
takes who judges a dispute about it.

    heavy_net.py EVIDENCE JOB EVIDENCE_OF_MLP JOB_OF_MLP
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
import traced_nets
from torch import nn
from torch.utils.data import TensorDataset

import potl

LAYERS, WIDTH = 4, 1024
# The third one's: each layer is a transpose, a product, a ReLU and a detached view of it.
PRODUCT = 4 * 2 + 1
LARGEST = 4 * WIDTH * WIDTH
STATE = 3 * LAYERS * LARGEST


def heavy() -> potl.Task:
    x = torch.arange(8 * WIDTH).reshape(8, WIDTH).remainder(17) / 17
    y = torch.arange(8)
    layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    net = nn.Sequential(*layers, nn.Linear(WIDTH, 10))
    return potl.Task(
        model=net,
        optimizer=torch.optim.AdamW(net.parameters(), lr=1e-3),
        dataset=TensorDataset(x, y),
        loss=F.cross_entropy,
        batch_size=4,
        epochs=2,
        max_steps=3,
    )


def short_mlp() -> potl.Task:
    task = traced_nets.mlp()
    task.max_steps = 3
    return task


def memory() -> tuple[int, int]:
    """Bytes in memory now, and at most since the last reset."""
    rows = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    now, most = (int(rows[name].split()[0]) << 10 for name in ("VmRSS", "VmHWM"))
    return now, most


def main() -> None:
    evidence, job, of_mlp, job_of_mlp = sys.argv[1:]
    # Whatever is imported on the way is.
    potl.judge(of_mlp, job=job_of_mlp, task=short_mlp)
    Path("/proc/self/clear_refs").write_text("5")
    before, _ = memory()
    judged = potl.judge(evidence, job=job, task=heavy)
    print(judged.winner, judged.why, judged.believed, memory()[1] - before)


if __name__ == "__main__":
    main()
