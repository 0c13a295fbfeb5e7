# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning: both sides start from published weights, and only an adapter is trained.

Run it in an empty folder:  python finetune.py
A base model learns the digits 0 to 7. It is published as base.safetensors. Then somebody else
adapts it to all ten digits with a low-rank adapter, and has to show that this is what happened.
"""

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

import potl

digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32) / 16
labels = torch.tensor(digits.target)
few = labels < 8
first_digits, all_digits = TensorDataset(images[few], labels[few]), TensorDataset(images, labels)


class Adapted(nn.Module):
    """A linear layer with a low-rank correction; a rank of 0 is the layer alone."""

    def __init__(self, width: int, height: int, *, rank: int) -> None:
        super().__init__()
        self.base = nn.Linear(width, height)
        self.down = nn.Linear(width, rank, bias=False) if rank else None
        self.up = nn.Linear(rank, height, bias=False) if rank else None
        if self.up is not None:
            nn.init.zeros_(self.up.weight)
            self.base.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.base(x)
        if self.down is None or self.up is None:
            return out
        return out + self.up(self.down(x))


def network(rank: int) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), Adapted(64, 64, rank=rank), nn.ReLU(), Adapted(64, 10, rank=rank)
    )


def build_base() -> potl.Task:
    model = network(rank=0)
    return potl.Task(
        model=model,
        optimizer=torch.optim.Adam(model.parameters(), lr=3e-3),
        dataset=first_digits,
        loss=F.cross_entropy,
        batch_size=64,
        epochs=3,
    )


def build_adapter() -> potl.Task:
    model = network(rank=4)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return potl.Task(
        model=model,
        optimizer=torch.optim.AdamW(trained, lr=1e-2),
        dataset=all_digits,
        loss=F.cross_entropy,
        batch_size=64,
        epochs=3,
        init="base.safetensors",  # the job pins the state that it gives
    )


def accuracy(path: str, rank: int) -> float:
    """Of a delivered file, as anybody would load it."""
    from safetensors.torch import load_file

    model = network(rank)
    model.load_state_dict(load_file(path))
    return float((model(images).argmax(1) == labels).float().mean())


base = potl.record(build_base, "runs/base", seed=1, checkpoint_every=20, key="base.pem")
base.export("base.safetensors")

job = potl.Job.create(build_adapter, seed=2, checkpoint_every=10)
run = potl.record(build_adapter, "runs/adapter", job=job, key="adapter.pem")
commitment = run.commit()
run.export("adapted.safetensors")

report = potl.verify(
    run, job=job, commitment=commitment, task=build_adapter, model="adapted.safetensors"
)
print(
    f"base {accuracy('base.safetensors', 0):.3f}, adapted {accuracy('adapted.safetensors', 4):.3f}"
)
print(report.verdict)
print(report.sentence)
report.raise_for_verdict()
