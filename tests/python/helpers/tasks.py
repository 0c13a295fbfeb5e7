# SPDX-License-Identifier: Apache-2.0
"""Small tasks, one for each thing that a state must carry."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import TensorDataset, default_collate

from potl import Task

_generator = torch.Generator().manual_seed(0)
X = torch.randn(48, 8, generator=_generator)
Y = torch.randint(0, 4, (48,), generator=_generator)
IMAGES = torch.randn(48, 3, 6, 6, generator=_generator)
TOKENS = torch.randint(0, 12, (48, 5), generator=_generator)


def task(model, optimizer=None, **options):
    options = {
        "dataset": TensorDataset(X, Y),
        "loss": F.cross_entropy,
        "batch_size": 12,
        "epochs": 3,
        **options,
    }
    if optimizer is None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return Task(model=model, optimizer=optimizer, **options)


def mlp(*middle):
    return nn.Sequential(nn.Linear(8, 6), *middle, nn.ReLU(), nn.Linear(6, 4))


def plain():
    return task(mlp())


def no_momentum():
    model = mlp()
    return task(model, torch.optim.SGD(model.parameters(), lr=0.1))


def adam():
    model = mlp()
    return task(model, torch.optim.Adam(model.parameters(), lr=1e-2, amsgrad=True))


def adamw_fused():
    model = mlp()
    return task(model, torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True))


def adagrad():
    model = mlp()
    return task(model, torch.optim.Adagrad(model.parameters(), lr=1e-2))


def rmsprop():
    model = mlp()
    return task(model, torch.optim.RMSprop(model.parameters(), lr=1e-2, centered=True))


def tensor_rate():
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), lr=torch.tensor(1e-2))
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    return task(model, optimizer, scheduler=schedule)


def dropout():
    return task(mlp(nn.Dropout(0.3)))


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 6), nn.Linear(6, 4)

    def hidden(self, x):
        return F.dropout(F.relu(self.first(x)), 0.3, self.training)

    def forward(self, x):
        return self.second(checkpoint(self.hidden, x, use_reentrant=False))


def checkpointed():
    return task(Checkpointed())


class Direct(Checkpointed):
    def forward(self, x):
        return self.second(self.hidden(x))


def direct():
    return task(Direct())


def convolution(memory_format=torch.contiguous_format):
    model = nn.Sequential(
        nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.ReLU(), nn.Flatten(), nn.Linear(80, 4)
    ).to(memory_format=memory_format)
    return task(model, dataset=TensorDataset(IMAGES, Y))


def batch_norm():
    return convolution()


def channels_last():
    return convolution(torch.channels_last)


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(12, 6)
        self.out = nn.Linear(6, 12, bias=False)
        self.out.weight = self.embedding.weight
        self.register_buffer("mask", torch.full((5, 5), -torch.inf).triu(1), persistent=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        x = F.scaled_dot_product_attention(x, x, x, attn_mask=self.mask)
        return self.out(x).mean(1)


def tied():
    model = Language()
    return task(
        model,
        torch.optim.Adam(model.parameters(), lr=1e-2),
        dataset=TensorDataset(TOKENS, TOKENS[:, 0]),
    )


def frozen():
    model = mlp()
    model[0].requires_grad_(False)
    return task(model)


class Counting(nn.Module):
    """A buffer that no state_dict holds, and one that appears while it runs."""

    def __init__(self):
        super().__init__()
        self.net = mlp()
        self.register_buffer("seen", torch.zeros(()), persistent=False)
        self.register_buffer("late", None)

    def forward(self, x):
        if self.training:
            self.seen += 1
            self.late = torch.full((2,), float(self.seen))
        return self.net(x) * (1 + 0.1 * self.seen)


def hidden_buffers():
    return task(Counting())


class Extra(nn.Module):
    """Python state, made visible by get_extra_state."""

    def __init__(self):
        super().__init__()
        self.net, self.calls = mlp(), 0

    def get_extra_state(self):
        return {"calls": self.calls, "name": "extra"}

    def set_extra_state(self, state):
        self.calls = state["calls"]

    def forward(self, x):
        self.calls += 1
        return self.net(x) * (1 + 0.1 * self.calls)


def extra_state():
    return task(Extra())


def normed():
    return task(mlp(nn.utils.parametrizations.weight_norm(nn.Linear(6, 6))))


def evaluated():
    """Batch norm that stays in evaluation mode."""
    built = convolution()
    built.model[1].eval()
    return built


def plateau(interval="step"):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.7)
    return task(model, optimizer, scheduler=schedule, scheduler_interval=interval)


def plateau_epoch():
    return plateau("epoch")


def scheduled(make, **options):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return task(model, optimizer, scheduler=make(optimizer), **options)


def cosine():
    return scheduled(lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 12))


def one_cycle():
    return scheduled(lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.2, total_steps=12))


def warm_up():
    def make(optimizer):
        lr = torch.optim.lr_scheduler
        warm = lr.LinearLR(optimizer, 0.1, total_iters=3)
        return lr.SequentialLR(optimizer, [warm, lr.MultiStepLR(optimizer, [2, 4])], [3])

    return scheduled(make)


def by_epoch():
    return scheduled(
        lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda e: 0.5**e),
        scheduler_interval="epoch",
    )


def scaled():
    """A scaler whose first scales overflow, so that it skips steps."""
    model = mlp()
    return task(
        model,
        torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9),
        loss=nn.CrossEntropyLoss(reduction="sum"),
        scaler=torch.amp.GradScaler("cpu", init_scale=3e38, backoff_factor=2.0**-60),
    )


def autocast():
    return task(mlp(), autocast=torch.bfloat16)


def accumulated():
    return task(mlp(nn.Dropout(0.3)), accumulate=3, grad_clip=0.5)


def several():
    model = mlp()
    lr = torch.optim.lr_scheduler
    one = torch.optim.SGD(model[0].parameters(), lr=0.1, momentum=0.9)
    two = torch.optim.Adam(model[2].parameters(), lr=1e-2)
    return task(model, [one, two], scheduler=[lr.StepLR(one, 2), lr.ExponentialLR(two, 0.9)])


def averaged():
    model = mlp()
    average = torch.optim.swa_utils.AveragedModel(model)
    return task(model, ema=average)


class Shift:
    """Something of the user's that changes while it trains."""

    def __init__(self):
        self.values = torch.zeros(3)
        self.history = []

    def state_dict(self):
        return {"values": self.values, "history": self.history}

    def load_state_dict(self, state):
        self.values, self.history = state["values"], list(state["history"])


class Shifted(Task):
    def compute_loss(self, batch, reduction="mean"):
        loss = super().compute_loss(batch, reduction)
        return loss * (1 + self.state["shift"].values.sum() * 0.01)

    def step(self, batch):
        loss = super().step(batch)
        self.state["shift"].values += 1
        self.state["shift"].history.append(float(loss.detach()))
        return loss


def own_state():
    model = mlp()
    return Shifted(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        dataset=TensorDataset(X, Y),
        loss=F.cross_entropy,
        batch_size=12,
        epochs=3,
        state={"shift": Shift()},
    )


def mixup(samples):
    x, y = default_collate(samples)
    share = float(torch.rand(()))
    other = torch.randperm(len(y))
    target = F.one_hot(y, 4).float()
    return [share * x + (1 - share) * x[other], share * target + (1 - share) * target[other]]


def jitter(sample):
    return sample[0] + 0.1 * torch.randn(8), sample[1]


def augmented():
    return task(mlp(), transform=jitter, collate_fn=mixup)


def class_weights():
    return task(mlp(), loss=nn.CrossEntropyLoss(torch.tensor([1.0, 2.0, 3.0, 4.0])))


def uneven():
    """The last batch of an epoch is smaller, in parts of unequal size."""
    return task(mlp(), batch_size=10, accumulate=3)


TASKS = [
    plain, no_momentum, adam, adamw_fused, adagrad, rmsprop, tensor_rate, dropout, checkpointed,
    batch_norm, channels_last, tied, frozen, hidden_buffers, extra_state, normed, evaluated,
    plateau, plateau_epoch, cosine, one_cycle, warm_up, by_epoch, scaled, autocast, accumulated,
    several, averaged, own_state, augmented, class_weights, uneven,
]  # fmt: skip
