# SPDX-License-Identifier: Apache-2.0
"""The trainings that the adversary lies about: nets of a few hundred parameters, each with other
state, and what honest trainers of them recorded.
"""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pure_format as pure
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import lr_scheduler
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import TensorDataset

from potl import Job, Task, _core
from potl._job._session import Session

from . import nodes

SAMPLES, BATCH, EPOCHS, EVERY = 48, 8, 4, 2


@functools.cache
def _data() -> TensorDataset:
    generator = torch.Generator().manual_seed(11)
    x = torch.randn(SAMPLES, 6, generator=generator)
    return TensorDataset(x, (x @ torch.randn(6, 4, generator=generator)).argmax(1))


class Masked(nn.Module):
    """A net with batch norm whose outputs pass a mask of large negative numbers, as attention's."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 10), nn.BatchNorm1d(10), nn.ReLU(), nn.Linear(10, 5))
        self.register_buffer("mask", torch.tensor([0.0, 0.0, 0.0, 0.0, -1e9]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x) + self.mask


def _net(dropout: float = 0.0) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(6, 10), nn.BatchNorm1d(10), nn.ReLU(), nn.Dropout(dropout), nn.Linear(10, 4)
    )


def _task(model: nn.Module, optimizer: torch.optim.Optimizer, **more: Any) -> Task:
    return Task(
        model=model,
        optimizer=optimizer,
        dataset=_data(),
        loss=F.cross_entropy,
        batch_size=BATCH,
        epochs=EPOCHS,
        **more,
    )


def cycle() -> Task:
    """SGD with momentum, whose rate and momentum OneCycleLR moves."""
    model = _net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    steps = SAMPLES // BATCH * EPOCHS
    return _task(
        model,
        optimizer,
        scheduler=lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=steps),
    )


def plateau() -> Task:
    """Adam, whose rate follows the loss, and a gradient scaler."""
    model = _net()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    return _task(
        model,
        optimizer,
        scheduler=lr_scheduler.ReduceLROnPlateau(optimizer, patience=1),
        scheduler_interval="epoch",
        scaler=torch.amp.GradScaler("cpu", growth_interval=5),
    )


def follows() -> Task:
    """The same without a scaler."""
    task = plateau()
    task.scaler = None
    return task


def averaged() -> Task:
    """SGD with momentum, a mask among the buffers, and an average of the weights."""
    model = Masked()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
    return _task(model, optimizer, ema=ema)


def warm() -> Task:
    """AdamW with dropout, clipping and a rate in two phases."""
    model = _net(dropout=0.1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    scheduler = lr_scheduler.SequentialLR(
        optimizer,
        [
            lr_scheduler.LinearLR(optimizer, 0.2, total_iters=4),
            lr_scheduler.CosineAnnealingLR(optimizer, 20),
        ],
        [4],
    )
    return _task(model, optimizer, scheduler=scheduler, grad_clip=1.0)


_TASKS = {
    "cycle": cycle,
    "plateau": plateau,
    "follows": follows,
    "averaged": averaged,
    "warm": warm,
}
# A scaler's operators in exact modes came later than the adversary.
NAMES = [f"{name}.stock" for name in _TASKS if name != "follows"] + [
    f"{name}.ord32" for name in _TASKS if name != "plateau"
]
# Every third boundary is stored, and the verifier derives the states between.
SPARSE = [f"{name}.sparse" for name in NAMES if name.endswith("ord32")]


class World:
    """One training under a job: keys, honest recordings, and a session that can be led astray."""

    def __init__(self, name: str, directory: Path) -> None:
        kind, self.arithmetic, *sparse = name.split(".")
        self.name = name
        self.build = _TASKS[kind]
        self.order_is_free = kind != "warm"  # dropout falls on places of the batch
        self.directory = directory
        self.key = _core.SigningKey.generate()
        self.job = Job.create(
            self.build,
            seed=7,
            checkpoint_every=EVERY,
            trainer=self.key.public_key,
            arithmetic=self.arithmetic,
            store_every=3 * EVERY if sparse else None,
            check=False,
        )
        self.exact = self.arithmetic != "stock"
        self.session = self._opened()
        self.honest = self.recording(self.session)
        self.last = self.job.steps
        self.segments = -(-self.last // EVERY)
        every = 3 * EVERY if sparse else EVERY
        self.stored = {*range(every, self.last + 1, every), self.last}

    def _opened(self) -> Session:
        return Session.open(self.build, seed=self.job.seed, job=self.job)

    def renew(self) -> None:
        """Opens a session in the place of one that was led astray: what a lie did to its objects (a
        list of a scheduler that it emptied) would be in all later ones.
        """
        self.session.close()
        self.session = self._opened()

    @functools.cached_property
    def other(self) -> Recording:
        """Somebody else's training: the same recipe, another seed."""
        job = Job.create(
            self.build, seed=8, checkpoint_every=EVERY, arithmetic=self.arithmetic, check=False
        )
        with Session.open(self.build, seed=8, job=job) as session:
            return self.recording(session)

    @functools.cached_property
    def foreign(self) -> Recording | None:
        """An honest recording in stock arithmetic whose bits are another machine's, because it adds
        up in another order; None where there is but one result.
        """
        if self.exact:
            return None
        if self.order_is_free:
            return self.recording(self.session, turned=True)
        self.session._arithmetic.name = "ord32"
        try:
            with self.session.active():
                self.session.restore(self.honest.kept[0])
            return self.recording(self.session)
        finally:
            self.session._arithmetic.name = self.arithmetic

    def recording(self, session: Session, turned: bool = False) -> Recording:
        """What an honest trainer holds after every step."""
        with session.active():
            if turned:
                session.restore(self.honest.kept[0])
            kept = [session.capture()]
            results = []
            for step in range(1, self.job.steps + 1):
                ids = session.sample_ids(step)
                batch = session.batch(step, ids[::-1] if turned else ids)
                results.append(session.run_step(step, batch))
                kept.append(session.capture())
        return Recording(kept, results)

    def batch(self, step: int, ids: list[int] | None = None) -> Any:
        return self.session.batch(step, ids or self.session.sample_ids(step))


class Recording:
    """States after every step (0: before the first), and what the steps reported."""

    def __init__(self, kept: list[Any], results: list[Any]) -> None:
        self.kept = kept
        self.results = results
        self.trees = [nodes.plain(state.tree()) for state in kept]

    def digest(self, step: int) -> bytes:
        return pure.state_digest(pure.encode_tree(self.trees[step]))


@functools.cache
def world(name: str) -> World:
    folder = tempfile.mkdtemp(prefix="potl-adversary-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return World(name, Path(folder))
