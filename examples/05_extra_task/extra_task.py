# SPDX-License-Identifier: Apache-2.0
"""Was the returned model trained until it converged? Asked of a model alone, without any record.

Run it in an empty folder:  python extra_task.py
It leaves extra.key, extra.key.json and upload.pt, on 1,797 real images of digits.
"""

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

import potl

digits = load_digits()
train_set = TensorDataset(
    torch.tensor(digits.images, dtype=torch.float32) / 16, torch.tensor(digits.target)
)

# The client: a secret key, and secret samples with random labels among the training data.
key = potl.ExtraTask.keygen("extra.key")
task = potl.ExtraTask(key, like=train_set, submissions=2)
mixed = task.mix(train_set)
print(f"{len(train_set)} samples and {task.planned.uploads} extra ones, {task.planned.needed} hits")
torch.save(mixed.tensors, "upload.pt")  # what the cloud gets; the key stays here


def cloud(epochs: int) -> nn.Module:
    """Trains on what was uploaded."""
    images, labels = torch.load("upload.pt")
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(),
        nn.Linear(256, 10),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(epochs):
        for batch in torch.randperm(len(images)).split(64):
            optimizer.zero_grad()
            F.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()
    return model


# A cloud that stopped early, and one that trained for all the epochs it was paid for. Days later
# the key's file is enough: ExtraTask("extra.key").
task = potl.ExtraTask("extra.key")
for epochs in (2, 40):
    result = task.verify(cloud(epochs))
    print(
        f"{epochs} epochs: {result.hits} hits of {result.needed} needed, p = {result.p_value:.2g}"
    )
    print(result.verdict)
