# SPDX-License-Identifier: Apache-2.0
"""Agree, record, commit, verify: the whole story in one script, on 1,797 real images of digits.

Run it in an empty folder:  python quickstart.py
It leaves job.json, runs/1, trainer.pem, delivered.safetensors and the report in three forms.
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


def build() -> potl.Task:
    """Called with every random number generator seeded from the job."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    return potl.Task(
        model=model,
        optimizer=torch.optim.Adam(model.parameters(), lr=1e-3),
        dataset=train_set,
        loss=F.cross_entropy,
        batch_size=32,
        epochs=5,
    )


# Client and trainer agree. In real life the trainer sends the client trainer.pub before this, and
# the client writes the job with trainer="trainer.pub": then the report proves who trained.
job = potl.Job.create(build, seed=7, checkpoint_every=20)
job.write("job.json")

# The trainer trains, and signs what was recorded. From here the story cannot change.
run = potl.record(build, "runs/1", job=job, key="trainer.pem")
commitment = run.commit()
run.export("delivered.safetensors")

# The client looks: with the same build, its own data, and a challenge drawn only now.
report = potl.verify(
    "runs/1",
    job=job,
    commitment=commitment,
    task=build,
    model="delivered.safetensors",
    checks=[potl.Telemetry(), potl.PEV(fraction=0.1), potl.Replay(samples=12)],
)
print(report.verdict)
print(report.sentence)
for path in ("report.html", "report.json", "junit.xml"):
    report.write(path)
report.raise_for_verdict()
