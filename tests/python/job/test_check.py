# SPDX-License-Identifier: Apache-2.0
"""potl.check: what cannot be replayed is found before it is trained, and named with its remedy."""

import random
import time
from collections import deque
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
import tasks
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import IterableDataset, TensorDataset

from potl import Job, NotReplayable, Task, check


class ByCount(nn.Module):
    """Counts its calls in a Python attribute, and computes by the count."""

    def __init__(self):
        super().__init__()
        self.net, self.calls = tasks.mlp(), 0

    def forward(self, x):
        self.calls += 1
        return self.net(x) * (1 + 0.1 * self.calls)


class Placeholder(nn.Module):
    """Marks what it does not know yet with NaN, and masks with an infinity."""

    def __init__(self, best=torch.nan):
        super().__init__()
        self.net = tasks.mlp()
        self.register_buffer("best", torch.tensor(best))
        self.mask = nn.Parameter(torch.tensor(-torch.inf), requires_grad=False)

    def forward(self, x):
        return self.net(x)


class Filling(Placeholder):
    """Knows what is missing by a number that equals nothing."""

    def __init__(self):
        super().__init__(0.0)
        self.missing = torch.nan

    def forward(self, x):
        return self.net(x if self.missing != self.missing else 2 * x)


class Growing(nn.Module):
    """A buffer becomes longer with every batch, or with the second."""

    def __init__(self, first=1):
        super().__init__()
        self.net, self.first = tasks.mlp(), first
        self.register_buffer("seen", torch.zeros(4))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.calls += 1
        if self.training and self.calls >= self.first:
            self.seen = torch.cat([self.seen, x.detach()[0, :1]])
        return self.net(x)


class Sized(ByCount):
    """A buffer gets the size of the first batch, as observers of torch's quantisation do it."""

    def __init__(self):
        super().__init__()
        self.register_buffer("highest", torch.zeros(0))

    def forward(self, x):
        kept = self.highest if len(self.highest) else torch.zeros(x.shape[1])
        self.highest = torch.maximum(kept, x.detach().amax(0))
        return self.net(x)


class Stateful(Task):
    def step(self, batch):
        self.calls = getattr(self, "calls", 0) + 1
        x, y = batch
        return super().step([x * self.calls, y])


class Unfreezing(ByCount):
    """Counts, and does something else after 1,000 calls."""

    def forward(self, x):
        self.calls += 1
        return self.net(x) if self.calls < 1000 else self.net(2 * x)


class Logging(ByCount):
    """Counts for nothing."""

    def forward(self, x):
        self.calls += 1
        self.size = len(x)
        return self.net(x)


class Drawing(ByCount):
    """Mixes in what it saw before, once that is enough."""

    def __init__(self, most=None):
        super().__init__()
        self.seen = deque(maxlen=most)

    def forward(self, x):
        self.seen.append(x.detach().clone())
        return self.net(x if len(self.seen) < 4 else x + 0.1 * self.seen[0])


class Noting(ByCount):
    """Keeps a list that nothing reads."""

    def forward(self, x):
        self.sizes = [*getattr(self, "sizes", []), len(x)]
        return self.net(x)


class Remembering(ByCount):
    """Keeps numbers that it makes of the first batch: every training makes the same ones."""

    def __init__(self):
        super().__init__()
        self.width = None

    def forward(self, x):
        if self.width is None:
            self.width, self.scale = x.shape[1], x.shape[1] ** -0.5
        self.calls += 1
        return self.net(self.scale * x.reshape(-1, self.width))


class Paired(ByCount):
    """Keeps a log in two lists of one length."""

    def __init__(self):
        super().__init__()
        self.times, self.sizes = [], []

    def forward(self, x):
        self.times.append(len(self.times))
        self.sizes.append(len(x))
        self.log = dict(zip(self.times, self.sizes, strict=True))
        return self.net(x)


class ByEpoch(ByCount):
    """Counts epochs by the first of their four batches, and does something else after ten."""

    def __init__(self):
        super().__init__()
        self.epoch = 0

    def forward(self, x):
        self.epoch += self.calls % 4 == 0
        self.calls += 1
        return self.net(x if self.epoch <= 10 else 2 * x)


class Private(torch.utils.data.Dataset):
    """Augments with a generator of its own."""

    def __len__(self):
        return 12

    def __getitem__(self, index):
        return tasks.X[index] + float(_private.random()), tasks.Y[index]


class FromThe100th:
    """A transform that counts, and does something else from the 100th sample on."""

    calls = 0

    def __call__(self, sample):
        self.calls += 1
        return (2 * sample[0] if self.calls >= 100 else sample[0], sample[1])


def several_scales():
    """A collate function of some detectors: another size of images every ten batches."""
    batches = 0

    def collate(samples):
        nonlocal batches
        batches += 1
        x, y = torch.utils.data.default_collate(samples)
        return (x if batches <= 10 else x.roll(1, 1)), y

    return collate


class Memo(torch.utils.data.Dataset):
    """Keeps what it read, and counts hits and misses."""

    def __init__(self):
        self.kept, self.hits, self.log = {}, 0, []

    def __len__(self):
        return 48

    def __getitem__(self, index):
        self.hits += index in self.kept
        self.log.append(index)
        return self.kept.setdefault(index, (tasks.X[index].clone(), tasks.Y[index]))


class Spiking(Task):
    """Makes no update of a loss far above the average of those before."""

    average = torch.inf

    def step(self, batch):
        loss = self.compute_loss(batch)
        if loss.item() < 3 * self.average:
            self.optimizers[0].zero_grad()
            loss.backward()
            self.update(loss)
        self.average = min(loss.item(), 0.9 * self.average + 0.1 * loss.item())
        return loss.detach()


class LossWithMemory:
    def __init__(self):
        self.last = 0.0

    def __call__(self, output, target, reduction="mean"):
        loss = F.cross_entropy(output, target, reduction=reduction) + 0.1 * self.last
        self.last = float(loss.mean().detach())
        return loss


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(5))


class Closed(torch.optim.SGD):
    def step(self, closure):
        loss = closure()
        super().step()
        return loss


class DistributedDataParallel(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x)


class FullyShardedDataParallel(nn.Sequential): ...


class FSDPModule: ...


class Sharded(FSDPModule, nn.Linear):
    """What fully_shard makes of a module's class."""


class OtherLoss(Task):
    """Reports a loss that compute_loss does not give."""

    def step(self, batch):
        return super().step(batch) * 2


class Odd:
    def state_dict(self):
        return {"names": {"a", "b"}}

    def load_state_dict(self, state):
        pass


class Counting(Task):
    """A count that the class declares, and that acts now and then."""

    count, rest = 0, 0

    def step(self, batch):
        halved = self.count > 1 and self.count % 5 == self.rest
        self.count += 1
        (optimizer,) = self.optimizers
        optimizer.zero_grad()
        loss = self.compute_loss(batch)
        (loss * (0.5 if halved else 1.0)).backward()
        optimizer.step()
        return loss.detach()


class CountingFromOne(Counting):
    rest = 4


class Warming(torch.optim.SGD):
    """Makes half of its first 1,000 updates."""

    calls = 0

    def step(self, closure=None):
        self.calls += 1
        for parameter in self.param_groups[0]["params"] if self.calls <= 1000 else ():
            parameter.grad.mul_(0.5)
        return super().step(closure)


class WarmingByGroup(torch.optim.SGD):
    """The same with its count in view."""

    def __init__(self, parameters, **options):
        super().__init__(parameters, **options)
        self.param_groups[0]["calls"] = 0

    def step(self, closure=None):
        (group,) = self.param_groups
        group["calls"] += 1
        for parameter in group["params"] if group["calls"] <= 1000 else ():
            parameter.grad.mul_(0.5)
        return super().step(closure)


class LateAverage:
    """Copies the weights at first, and counts how often."""

    def __init__(self, model):
        self.updates = 0
        self.weights = [one.detach().clone() for one in model.parameters()]

    def update(self, model):
        self.updates += 1
        for kept, now in zip(self.weights, model.parameters(), strict=True):
            kept.lerp_(now.detach(), 1.0 if self.updates <= 1000 else 0.01)

    def state_dict(self):
        return {"weights": self.weights}

    def load_state_dict(self, state):
        for kept, now in zip(self.weights, state["weights"], strict=True):
            kept.copy_(now)


class LateAverageInView(LateAverage):
    def state_dict(self):
        return {"weights": self.weights, "updates": self.updates}

    def load_state_dict(self, state):
        super().load_state_dict(state)
        self.updates = state["updates"]


def averaged(kind):
    model = tasks.mlp()
    return tasks.task(model, ema=kind(model))


class Summing(Task):
    """Accumulates over several calls of the step, as loops of PyTorch do."""

    every = 4

    def step(self, batch):
        (optimizer,) = self.optimizers
        loss = self.compute_loss(batch)
        (loss / self.every).backward()
        self.model.calls += 1
        if int(self.model.calls) % self.every == 0:
            optimizer.step()
            optimizer.zero_grad()
        return loss.detach()


class SummingTwo(Summing):
    every = 2


class ClearingLast(Summing):
    every = 1


class Alternating(Task):
    """Trains two optimizers in turn; an encoder that nobody clears is in neither."""

    def step(self, batch):
        optimizer = self.optimizers[int(self.model.calls) % 2]
        self.model.calls += 1
        optimizer.zero_grad()
        loss = self.compute_loss(batch)
        trained = [p for group in optimizer.param_groups for p in group["params"]]
        loss.backward(inputs=[*trained, *self.model[0].parameters()])
        optimizer.step()
        return loss.detach()


def counted(kind):
    model = tasks.mlp(nn.Linear(6, 6))
    model.register_buffer("calls", torch.zeros((), dtype=torch.int64))
    parts = [model[1], model[3]] if kind is Alternating else [model]
    return kind(
        model=model, optimizer=[torch.optim.Adam(part.parameters()) for part in parts],
        dataset=TensorDataset(tasks.X, tasks.Y), loss=F.cross_entropy, batch_size=12, epochs=3,
    )  # fmt: skip


def nearly(sample):
    """Unseeded, and hardly seen in a loss."""
    return sample[0] * (1 + 1e-5 * _private.random()), sample[1]


_model = tasks.mlp()
_private = np.random.default_rng(0)


def erasing(sample):
    x, _ = sample
    if random.random() < 0.5:
        x[random.randrange(len(x))] = 0.0
    return sample


def with_optimizer(make):
    model = tasks.mlp()
    return tasks.task(model, make(model.parameters()))


def own(kind, **options):
    model = tasks.mlp()
    return kind(
        model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        dataset=TensorDataset(tasks.X, tasks.Y), loss=F.cross_entropy, batch_size=12, epochs=3,
        **options,
    )  # fmt: skip


class Recent(torch.optim.SGD):
    """Keeps what it saw last in a container."""

    def __init__(self, parameters, container):
        super().__init__(parameters, lr=0.1)
        self.container = container

    def step(self, closure=None):
        for parameter in self.param_groups[0]["params"]:
            kept = self.state[parameter].setdefault("recent", self.container())
            if isinstance(kept, deque):
                kept.append(parameter.grad.norm())
        return super().step(closure)


def recent(container, *, from_the_start=False):
    def build():
        built = with_optimizer(lambda p: Recent(p, container))
        for parameter in built.model.parameters() if from_the_start else ():
            built.optimizers[0].state[parameter]["recent"] = container()
        return built

    return build


class Norms(NamedTuple):
    first: float = 0.5


class MadeInFirstStep(torch.optim.SGD):
    def step(self, closure=None):
        if not self.state:
            self.scale = 0.5
        for parameter in self.param_groups[0]["params"]:
            self.state[parameter]["seen"] = True
            parameter.grad.mul_(self.scale)
        return super().step(closure)


class WithoutForward(Task):
    """Its model has parts alone, as one of two networks has."""

    def step(self, batch):
        inputs, labels = batch
        self.optimizers[0].zero_grad()
        loss = F.cross_entropy(self.model["net"](inputs), labels)
        loss.backward()
        self.update(loss)
        return loss.detach()


def parts():
    model = nn.ModuleDict({"net": tasks.mlp()})
    return WithoutForward(
        model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        dataset=TensorDataset(tasks.X, tasks.Y), loss=F.cross_entropy, batch_size=12, epochs=3,
    )  # fmt: skip


def shifted_by(number):
    def build():
        built = tasks.plain()
        with torch.no_grad():
            built.model[0].weight += number()
        return built

    return build


PROBLEMS = {
    "hidden state of a module": (
        lambda: tasks.task(ByCount()), "a restored state differs", "state_dict",
    ),
    "hidden state of a task": (lambda: own(Stateful), "a restored state differs", "buffer"),
    "hidden state of a loss": (
        lambda: tasks.task(tasks.mlp(), loss=LossWithMemory()),
        "a restored state differs", "state=",
    ),
    "a count that acts later": (
        lambda: tasks.task(Unfreezing()), "a number that counts up", "buffer",
    ),
    "a count of epochs by batches": (
        lambda: tasks.task(ByEpoch()), "a number that counts up", "buffer",
    ),
    "a list from which a step draws once it is long": (
        lambda: tasks.task(Drawing()), "a list that grows", "buffer",
    ),
    "a queue from which a step draws": (
        lambda: tasks.task(Drawing(8)), "a list that grows", "buffer",
    ),
    "a count of the class that acts now and then": (
        lambda: own(Counting), "a number that counts up", "buffer",
    ),
    "a count that acts before the next multiple": (
        lambda: own(CountingFromOne), "a number that counts up", "buffer",
    ),
    "a count of an optimizer": (
        lambda: with_optimizer(lambda p: Warming(p, lr=0.1)),
        "a number that counts up", "an option of its groups",
    ),
    "a count of an average": (
        lambda: averaged(LateAverage), "a number that counts up", "state_dict",
    ),
    "an average that tells a spike": (
        lambda: own(Spiking), "a number that moves", "buffer",
    ),
    "gradients summed over four steps": (
        lambda: counted(Summing), "adds to gradients that the one before left", "accumulate=",
    ),
    "gradients summed over two steps": (
        lambda: counted(SummingTwo), "adds to gradients that the one before left", "accumulate=",
    ),
    "an unseeded transform that losses hardly show": (
        lambda: own(Task, transform=nearly), "another one when it is made again", "potl seeds",
    ),
    # Erased again under the same randomness, a sample looks the same.
    "a transform that changes the data set": (
        lambda: tasks.task(
            tasks.mlp(), dataset=TensorDataset(tasks.X.clone(), tasks.Y), transform=erasing
        ),
        "changes TensorDataset", "clone",
    ),
    "unseeded reads": (
        lambda: tasks.task(tasks.mlp(), dataset=Private()), "differs between two reads", "seeds",
    ),
    "a count in a transform that acts late": (
        lambda: tasks.task(tasks.mlp(), transform=FromThe100th()),
        "another one when it is made again", "sampler=",
    ),
    "a count in a collate function that acts late": (
        lambda: tasks.task(tasks.mlp(), collate_fn=several_scales()),
        "another one when it is made again", "Task.step",
    ),
    "an iterable dataset": (
        lambda: tasks.task(tasks.mlp(), dataset=Stream()),
        "Stream is an IterableDataset", "map-style",
    ),
    "LBFGS": (lambda: with_optimizer(torch.optim.LBFGS), "LBFGS calls a closure", "override"),
    "an optimizer with a closure": (
        lambda: with_optimizer(lambda p: Closed(p, lr=0.1)), "Closed calls a closure", "override",
    ),
    "DDP": (
        lambda: tasks.task(DistributedDataParallel(tasks.mlp())), "DistributedDataParallel",
        "one device",
    ),
    "FSDP": (
        lambda: tasks.task(FullyShardedDataParallel(tasks.mlp())), "FullyShardedDataParallel",
        "one device",
    ),
    "SyncBatchNorm": (
        lambda: tasks.task(tasks.mlp(nn.SyncBatchNorm(6))), "SyncBatchNorm is not",
        "BatchNorm1d",
    ),
    "an inner module of FSDP2": (
        lambda: tasks.task(nn.Sequential(Sharded(8, 3))), "FSDPModule", "one device",
    ),
    "an unknown state type": (lambda: own(Task, state={"odd": Odd()}), "a set cannot be", "dicts"),
    "a model from outside": (lambda: tasks.task(_model), "return the same model", "inside"),
    "an unseeded initialiser": (shifted_by(_private.random), "two calls of build differ", "seeds"),
    "a clock": (
        shifted_by(lambda: time.time_ns() % 1_000_003), "two calls of build differ", "torch.empty",
    ),
    "an unseeded step": (
        lambda: tasks.task(
            tasks.mlp(), loss=lambda o, y: F.cross_entropy(o, y) * _private.random()
        ),
        "two trainings from the same seed differ", "draw random numbers",
    ),
    "NaN in a buffer": (
        lambda: tasks.task(Placeholder()), "model/buffers/best holds NaN", "get_buffer",
    ),
    "a buffer that grows": (
        lambda: tasks.task(Growing()), "model/buffers/seen: the state holds", "largest size",
    ),
    "a buffer that the first batch makes": (
        lambda: tasks.task(Sized()), "model/buffers/highest: the state holds", "run one batch",
    ),
    "a buffer that grows in the second step": (
        lambda: tasks.task(Growing(2)), "model/buffers/seen: the state holds", "largest size",
    ),
    "training that diverges": (
        lambda: with_optimizer(lambda p: torch.optim.SGD(p, lr=1e38)), "after two steps", "scaler=",
    ),
    "a step with another loss": (lambda: own(OtherLoss), "compute_loss gives", "override"),
    "a step of a model that is not called": (
        parts, "compute_loss fails where step does not: NotImplementedError", "override",
    ),
    "a queue that an optimizer makes": (
        recent(partial(deque, maxlen=4)), "a deque that the first steps make comes back", "build()",
    ),
    "a named tuple that an optimizer makes": (
        recent(Norms), "a Norms that the first steps make comes back", "tuples",
    ),
    "what the first step makes": (
        lambda: with_optimizer(lambda p: MadeInFirstStep(p, lr=0.1)),
        "a step from a restored state fails", "state=",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROBLEMS)
def test_what_cannot_be_replayed_is_found_and_named(name):
    build, what, remedy = PROBLEMS[name]
    problems = check(build)
    assert len(problems) == 1, problems
    assert what in problems[0].what and remedy in problems[0].remedy and problems[0].where
    with pytest.raises(NotReplayable) as refusal:
        Job.create(build, seed=1, checkpoint_every=4)
    assert what in str(refusal.value)


class Legible(ByCount):
    """The same with its state in view."""

    def get_extra_state(self):
        return {"calls": self.calls}

    def set_extra_state(self, state):
        self.calls = state["calls"]


class WithClosure(Task):
    """LBFGS, as its users use it."""

    def step(self, batch):
        losses = []

        def closure():
            self.optimizers[0].zero_grad()
            loss = self.compute_loss(batch)
            loss.backward()
            losses.append(loss.detach())
            return loss

        self.optimizers[0].step(closure)
        return losses[0]


def lbfgs():
    model = tasks.mlp()
    return WithClosure(
        model=model, optimizer=torch.optim.LBFGS(model.parameters(), max_iter=3),
        dataset=TensorDataset(tasks.X, tasks.Y), loss=F.cross_entropy, batch_size=12, epochs=3,
    )  # fmt: skip


def by_python_random():
    return tasks.task(
        tasks.mlp(),
        loss=lambda o, y: F.cross_entropy(o, y) * (1 + random.random() + np.random.rand()),
    )


def caching():
    class Caching(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.cache = tasks.mlp(), None

        def forward(self, x):
            if self.cache is None:
                self.cache = torch.arange(8.0)
            return self.net(x + self.cache)

    return tasks.task(Caching())


class CallsOf:
    """What a user writes beside a library's module that counts in an attribute."""

    def __init__(self, module):
        self.module = module

    def state_dict(self):
        return {"calls": self.module.calls}

    def load_state_dict(self, state):
        self.module.calls = state["calls"]


def kept_beside():
    model = ByCount()
    return tasks.task(model, state={"calls": CallsOf(model)})


def drawing_by_count():
    """A count that a checkpoint holds may decide what a sample is."""
    count = CallsOf(FromThe100th())
    return tasks.task(tasks.mlp(), transform=count.module, state={"calls": count})


def filled_in_build():
    model = Placeholder()
    with torch.no_grad():
        model.get_buffer("best").zero_()
    return tasks.task(model)


def sized_in_build():
    model = Sized()
    model(tasks.X[:1])
    return tasks.task(model)


@pytest.mark.parametrize("build", [
    # As the remedies say: nobody rewrites the module.
    kept_beside,
    filled_in_build,
    sized_in_build,
    recent(partial(deque, maxlen=4), from_the_start=True),
    recent(Norms, from_the_start=True),
    recent(tuple),
    lambda: counted(ClearingLast),
    lambda: counted(Alternating),
    lambda: with_optimizer(lambda p: WarmingByGroup(p, lr=0.1)),
    lambda: averaged(LateAverageInView),
    lambda: tasks.task(Legible()),
    lambda: tasks.task(Logging()),
    lambda: tasks.task(Noting()),
    lambda: tasks.task(Remembering()),
    lambda: tasks.task(Paired()),
    lambda: tasks.task(Placeholder(-torch.inf)),
    lambda: tasks.task(Filling()),
    lbfgs,
    by_python_random,
    caching,
    lambda: tasks.task(tasks.mlp(), dataset=Memo()),
    drawing_by_count,
    lambda: tasks.task(tasks.mlp(), loss=lambda o, y: F.cross_entropy(o, y)),
    lambda: tasks.task(tasks.mlp(), scaler=torch.amp.GradScaler("cpu", enabled=False)),
    lambda: tasks.task(tasks.mlp(), batch_size=48, epochs=1),
])  # fmt: skip
def test_what_can_be_replayed_is_not_refused(build):
    assert check(build) == []


class Noted:
    def __init__(self):
        self.calls, self.average, self.losses = 0, 1.0, []

    def __call__(self, output, target):
        loss = F.cross_entropy(output, target)
        self.calls += 1
        self.average = 0.9 * self.average + 0.1 * loss.item()
        self.losses.append(loss.item())
        return loss


def test_a_log_that_all_tasks_share_is_only_longer_by_the_steps_that_were_tried():
    log = Noted()
    assert check(lambda: tasks.task(tasks.mlp(), loss=log)) == []
    assert log.calls < 40 and log.average > 0.5
    assert 0 < len(log.losses) < 40


def test_checking_leaves_the_users_generators_alone():
    torch.manual_seed(4)
    check(tasks.dropout)
    after = torch.rand(2)
    torch.manual_seed(4)
    assert torch.equal(after, torch.rand(2))


def by_hook(make):
    """A schedule that no argument of the task names."""

    def build():
        model = tasks.mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scheduler = make(optimizer)
        optimizer.register_step_post_hook(lambda *_: scheduler.step())
        return tasks.task(model, optimizer)

    return build


def test_rates_that_something_else_sets_are_refused():
    build = by_hook(lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.5))
    with pytest.raises(
        NotReplayable, match=r"step 2 has the learning rates 0\.05, where .* 0\.1: "
    ):
        Job.create(build, seed=7, checkpoint_every=3)


def test_a_lazy_module_is_refused_with_a_remedy():
    model = nn.Sequential(nn.LazyLinear(6), nn.ReLU(), nn.Linear(6, 4))
    build = lambda: tasks.task(model)  # noqa: E731
    with pytest.raises(NotReplayable, match="run one batch through the model"):
        Job.create(build, seed=7, checkpoint_every=3)
