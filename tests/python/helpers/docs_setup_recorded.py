# SPDX-License-Identifier: Apache-2.0
"""A recorded run as the pages' examples verify it: `build`, `job`, `commitment`, runs/1 and
delivered.safetensors.
"""

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import potl

_digits = load_digits()
train_set = torch.utils.data.TensorDataset(
    torch.tensor(_digits.images, dtype=torch.float32) / 16, torch.tensor(_digits.target)
)


def build() -> potl.Task:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    return potl.Task(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        dataset=train_set,
        loss=F.cross_entropy,
        batch_size=64,
        epochs=2,
    )


job = potl.Job.create(build, seed=1, checkpoint_every=4, store_every=8)
_run = potl.record(build, "runs/1", job=job)
_run.commit().write("note.txt")
# As a client reads it: the process that signed it keeps no ledger.
commitment = potl.Commitment.read("note.txt")
_run.export("delivered.safetensors")
