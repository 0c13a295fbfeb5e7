# SPDX-License-Identifier: Apache-2.0
"""The training loop in your own hands: evaluate, publish intermediate roots, stop and go on.

Run it in an empty folder:  python own_loop.py
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
train_set = TensorDataset(images[:1500], labels[:1500])


class SmoothedTask(potl.Task):
    """Your own step: this method trains and replays, so it is all that there is to change."""

    def step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        """One update; returns the loss before it."""
        (optimizer,) = self.optimizers
        optimizer.zero_grad()
        loss = self.compute_loss(batch)
        loss.backward()
        optimizer.step()
        return loss.detach()

    def compute_loss(self, batch: list[torch.Tensor], reduction: str = "mean") -> torch.Tensor:
        """What `step` reports: the PEV check asks for it again at stored states."""
        x, y = batch
        return F.cross_entropy(self.model(x), y, label_smoothing=0.1, reduction=reduction)


def build() -> potl.Task:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10))
    return SmoothedTask(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        dataset=train_set,
        loss=F.cross_entropy,
        batch_size=50,
        epochs=4,
    )


def accuracy(model: nn.Module) -> float:
    """On images that the training does not see."""
    model.eval()  # put back before the next step
    with torch.no_grad():
        return float((model(images[1500:]).argmax(1) == labels[1500:]).float().mean())


job = potl.Job.create(build, seed=11, checkpoint_every=10)
published: list[str] = []

# A loop that is left early leaves a run that can be resumed.
with potl.Prover(build, "runs/2", job=job, key="trainer.pem") as prover:
    for step in prover.steps():
        if step.number == 45:
            break

# The same lines again go on from the last stored state; the record says that they did.
with potl.Prover(build, "runs/2", job=job, key="trainer.pem") as prover:
    for step in prover.steps():
        if step.number % 40 == 0:
            held_out = accuracy(prover.task.model)
            print(f"step {step.number}: loss {step.loss:.3f}, held out {held_out:.3f}")
            published.append(prover.publish())
run = prover.run
commitment = run.commit()

report = potl.verify(run, job=job, commitment=commitment, task=build, published=published)
print(report.verdict)
print(report.sentence)
report.raise_for_verdict()
