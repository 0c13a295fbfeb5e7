# SPDX-License-Identifier: Apache-2.0
"""What the processes of a data-parallel training run: `python rank_runs.py RANK SIZE SCENARIO DIR`.

Each scenario says what came of it for this rank; `together` runs one in a few processes.
"""

import datetime
import json
import os
import subprocess
import sys
from pathlib import Path

import programs
import tasks
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import potl
from potl._cli import _cli

# Tasks whose micro-batches share nothing but the weights, each with an arithmetic.
SHARED = {
    "accumulated stock": tasks.accumulated,
    "accumulated ord32": tasks.accumulated,
    "uneven ord32": tasks.uneven,
    "one number ord32": lambda: one_number(),
    "double ord32": lambda: double(),
    "tied ord32": tasks.tied,
    "averaged ord32": tasks.averaged,
    "negative zeros ord32": lambda: negative_zeros(),
    "sometimes ord32": lambda: sometimes(),
    "sometimes stock": lambda: sometimes(),
    "batch norm ord32": tasks.batch_norm,
    "batch norm stock": tasks.batch_norm,
    "cut batch norm ord32": lambda: checkpointed_norm(),
    "channels last stock": lambda: channels_last(),
    "frozen stock": tasks.frozen,
    "several stock": tasks.several,
    "plateau stock": tasks.plateau,
    "augmented stock": tasks.augmented,
    "scaled stock": tasks.scaled,
    "autocast stock": tasks.autocast,
}
UNSHARED = {
    "mean of all": lambda: mean_of_all(),
    "hidden_buffers": tasks.hidden_buffers,
    "extra_state": tasks.extra_state,
    "own_step": lambda: own_step(),
    "noisy_update": lambda: noisy_update(),
    "clipped sums": lambda: clipped_sums(),
    "read statistics": lambda: read_statistics(),
    "sparse": lambda: sparse(),
    "begins later": lambda: begins_later(),
}


class Sometimes(nn.Module):
    """Leaves out a layer, and with it the gradients of that, for some micro-batches."""

    def __init__(self):
        super().__init__()
        self.always, self.rarely, self.never = nn.Linear(8, 4), nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, x):
        y = self.always(x)
        return y + self.rarely(x) if x[0, 0] > 0 else y


def sometimes():
    return tasks.task(Sometimes())


class NegativeZeros(nn.Module):
    """All gradients are -0, which is in the momentum, and 0 + -0 is not."""

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(1, 8))

    def forward(self, x):
        return -(x.abs() * 0) * self.gain


def negative_zeros():
    return tasks.task(NegativeZeros(), loss=lambda output, y: output.mean(), accumulate=12)


def one_number():
    data = torch.utils.data.TensorDataset(tasks.X, tasks.X.sum(1, keepdim=True))
    return tasks.task(nn.Linear(8, 1), dataset=data, loss=F.mse_loss)


def double():
    data = torch.utils.data.TensorDataset(tasks.X.double(), tasks.Y)
    return tasks.task(tasks.mlp().double(), dataset=data)


def checkpointed_norm():
    """Its batch norm is called twice in a forward pass, and again in the backward pass."""
    norm = nn.BatchNorm1d(6, momentum=0.3)
    return tasks.task(Checkpointed(norm))


class Checkpointed(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 6), norm, nn.Linear(6, 4)

    def forward(self, x):
        inner = checkpoint(lambda y: self.norm(y).relu(), self.first(x), use_reentrant=False)
        return self.last(self.norm(inner))


def mean_of_all():
    return tasks.task(tasks.mlp(nn.BatchNorm1d(6, momentum=None)))


def channels_last():
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 4)
    )
    data = torch.utils.data.TensorDataset(tasks.IMAGES, tasks.Y)
    return tasks.task(model.to(memory_format=torch.channels_last), dataset=data)


class OwnStep(potl.Task):
    def step(self, batch):
        return super().step(batch)


def own_step():
    model = tasks.mlp()
    return OwnStep(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        dataset=torch.utils.data.TensorDataset(tasks.X, tasks.Y),
        loss=F.cross_entropy,
        batch_size=12,
        epochs=1,
    )


class Noisy(torch.optim.SGD):
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad.add_(torch.randn_like(parameter) * 1e-3)
        super().step(closure)


def noisy_update():
    model = tasks.mlp()
    return tasks.task(model, Noisy(model.parameters(), lr=0.1))


def clipped_sums():
    """Each backward pass clips the gradients that those before it added up."""

    def clip(parameter):
        parameter.grad.clamp_(-0.01, 0.01)

    model = tasks.mlp()
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(clip)
    return tasks.task(model)


class Clipper:
    """Of one process: clips what it adds up where it computes the whole first step by itself."""

    clips = False

    def __init__(self):
        self.calls = 0

    def __call__(self, parameter):
        self.calls += 1
        if Clipper.clips and 1 < self.calls <= 4:
            parameter.grad.clamp_(-0.01, 0.01)


def sums_of_one():
    model = tasks.mlp()
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(Clipper())
    return tasks.task(model)


class Reader(nn.Module):
    """Penalises weights by running statistics."""

    def __init__(self):
        super().__init__()
        self.norm, self.last = nn.BatchNorm1d(8), nn.Linear(8, 4)

    def forward(self, x):
        y = self.last(self.norm(x))
        return y + (self.last.weight * self.norm.running_var).sum()


def read_statistics():
    return tasks.task(Reader(), loss=lambda output, y: output.square().mean())


def sparse():
    model = nn.Sequential(nn.Embedding(12, 6, sparse=True), nn.Flatten(), nn.Linear(30, 4))
    data = torch.utils.data.TensorDataset(tasks.TOKENS, tasks.Y)
    return tasks.task(model, torch.optim.SGD(model.parameters(), lr=0.1), dataset=data)


class BeginsLater(nn.Module):
    """Counts forward passes from the third step on."""

    def __init__(self):
        super().__init__()
        self.net, self.age = tasks.mlp(), nn.Parameter(torch.zeros(()))
        self.register_buffer("passes", torch.zeros(()))

    def forward(self, x):
        if self.age.item() < -1.5:
            self.passes += 1
        return self.net(x) + 0 * self.passes + (self.age - self.age.detach())


def begins_later():
    model = BeginsLater()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    return tasks.task(model, optimizer, loss=lambda output, y: output.mean(1).mean())


def cut(make, parts=4):
    """`make` with its batches cut into micro-batches."""

    def build():
        task = make()
        task.accumulate = max(parts, task.accumulate)
        return task

    return build


def shared(folder, rank, group):
    for name, make in SHARED.items():
        run = potl.record(
            cut(make), folder / f"{name}.run", job=folder / f"{name}.json", group=group
        )
        assert (run is None) == (rank > 0)


def refused(folder, rank, group):
    """What every process says where a training cannot begin or go on."""

    def record(name, build, arithmetic="stock", agreed=None):
        # By rank 0 alone: the others get it from there.
        job = rank == 0 and potl.Job.create(
            agreed or build, seed=7, checkpoint_every=4, arithmetic=arithmetic
        )
        try:
            potl.record(build, folder / name, job=job, group=group)
        except potl.PotlError as error:
            return type(error).__name__, str(error)
        return None

    found = {name: record(name, cut(make)) for name, make in UNSHARED.items()}
    Clipper.clips = rank == 1
    found["sums of one"] = record("sums of one", cut(sums_of_one))
    found["one part"] = record("one part", cut(tasks.plain, 1))
    found["log64"] = record("log64", cut(tasks.plain), arithmetic="log64")
    found["wrapped"] = record("wrapped", wrapped, agreed=cut(tasks.plain))
    last = rank == group.size() - 1
    found["another task"] = record("another task", cut(tasks.adam if last else tasks.plain))
    (folder / "occupied").mkdir(exist_ok=True)
    (folder / "occupied/letter.txt").touch()
    found["occupied"] = record("occupied", cut(tasks.plain))
    Inexact.off = 1e-7 if rank == 1 else 0.0
    found["another machine"] = record("another machine", cut(inexact))
    return found


def wrapped():
    return tasks.task(nn.parallel.DistributedDataParallel(tasks.mlp()))


class Inexact(torch.optim.SGD):
    """Of a machine that rounds otherwise."""

    off = 0.0

    def step(self, closure=None):
        super().step(closure)
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.data.add_(self.off)


def inexact():
    model = tasks.mlp()
    return tasks.task(model, Inexact(model.parameters(), lr=0.1))


def interrupted(folder, rank, group):
    """Rank 1 fails after the second stored state."""
    run_step = potl.Session.run_step

    def fails(self, step, batch, **options):
        if step == 10:
            raise OSError("the disk is gone")
        return run_step(self, step, batch, **options)

    if rank == 1:
        potl.Session.run_step = fails
    try:
        resumed(folder, rank, group)
    except (OSError, potl.PotlError) as error:
        return type(error).__name__, str(error)


def resumed(folder, rank, group):
    potl.record(cut(tasks.accumulated), folder / "run", job=folder / "job.json", group=group)


def build():
    return cut(tasks.accumulated)()


def together(scenario, folder, size=3):
    """Runs a scenario in `size` processes; returns what it gave in each."""
    store = folder / f"{scenario}.store"
    processes = [
        subprocess.Popen(
            [programs.python(), __file__, str(rank), str(size), scenario, str(folder)],
            env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    try:
        for one in processes:
            _, errors = one.communicate(timeout=600)
            assert one.returncode == 0, errors
    finally:
        for one in processes:
            one.kill()
            one.wait()
        store.unlink(missing_ok=True)
    return [json.loads((folder / f"{scenario}.{rank}.json").read_text()) for rank in range(size)]


def command():
    """The command line, in a folder of each process's own."""
    os.chdir(os.environ["RANK"])
    sys.exit(_cli.run(sys.argv[2:]))


def main():
    if sys.argv[1] == "command":
        command()
    rank, size, scenario, folder = (
        int(sys.argv[1]),
        int(sys.argv[2]),
        sys.argv[3],
        Path(sys.argv[4]),
    )
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder / scenario}.store",
        rank=rank,
        world_size=size,
        timeout=datetime.timedelta(seconds=300),
    )
    found = globals()[scenario](folder, rank, dist.group.WORLD)
    (folder / f"{scenario}.{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
