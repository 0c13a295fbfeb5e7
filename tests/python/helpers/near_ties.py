# SPDX-License-Identifier: Apache-2.0
"""A training in log64 with many sums near a tie, and trainers whose rounding logs are false."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

import potl
from potl import _core
from potl._arithmetic import _rounded_steps

FEATURES, HIDDEN, BATCH, STEPS = 48, 128, 48, 12


@functools.cache
def dataset(size: int = 70_000) -> TensorDataset:
    """Values of about that size, which the weights have to cancel: many sums are near a tie."""
    draw = torch.Generator().manual_seed(11)
    half = torch.randn(96, FEATURES // 2, generator=draw) + size
    other = torch.randn(96, FEATURES // 2, generator=draw) - half
    return TensorDataset(torch.cat([half, other], 1), torch.randint(4, (96,), generator=draw))


class Sum(nn.Module):
    """Adds up what passes, so that every rounding is seen in the end."""

    seen: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(BATCH, HIDDEN))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.seen.add_(x.detach())
        return x


def build() -> potl.Task:
    first, last = nn.Linear(FEATURES, HIDDEN, bias=False), nn.Linear(HIDDEN, 4)
    with torch.no_grad():
        first.weight[:, FEATURES // 2 :] = first.weight[:, : FEATURES // 2]
    groups: list[Any] = [
        {"params": first.parameters(), "lr": 1e-13},
        {"params": last.parameters(), "lr": 0.05},
    ]
    return potl.Task(
        model=nn.Sequential(first, Sum(), nn.ReLU(), last),
        optimizer=torch.optim.SGD(groups, lr=0.05, momentum=0.9),
        dataset=dataset(),
        loss=functional.cross_entropy,
        batch_size=BATCH,
        epochs=6,
    )


def job() -> potl.Job:
    """Of 12 steps."""
    return potl.Job.create(build, seed=3, checkpoint_every=3, arithmetic="log64")


def other_order(monkeypatch: pytest.MonkeyPatch, order: int = 6) -> None:
    """The trainer adds in another order than the auditor, as another device would."""
    monkeypatch.setattr(
        _rounded_steps, "Trainer", functools.partial(_rounded_steps.Trainer, order=order)
    )


def forge(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[bytes], bytes | None], at: int = 2
) -> None:
    """A trainer whose log of a step is another than that of its training."""

    class Forger(_rounded_steps.Trainer):
        _log = b""
        _last = 0

        @property  # type: ignore[override]
        def log(self) -> bytes | None:
            return change(self._log) if self._last == at else self._log

        @log.setter
        def log(self, value: bytes) -> None:
            self._log = value

        def around(self, step: int) -> Any:
            self._last = step
            return super().around(step)

    monkeypatch.setattr(_rounded_steps, "Trainer", Forger)


def with_entry(log: bytes) -> bytes:
    """One entry more, at the first element that has none."""
    decoded = _core.decode_rounding_log(log)
    taken = {position for position, _ in decoded["entries"]}
    free = next(at for at in range(BATCH * HIDDEN) if at not in taken)
    entries = sorted([*decoded["entries"], (free, True)])
    return _core.encode_rounding_log(bits=32, values=decoded["values"], entries=entries)


def changed(log: bytes, bits: int = 32, more: int = 0) -> bytes:
    """A log without entries; of another rounding, or of more values."""
    values = _core.decode_rounding_log(log)["values"] + more
    return _core.encode_rounding_log(bits=bits, values=values, entries=[])


def with_more_values(log: bytes) -> bytes:
    """One value more, the entries as they are."""
    found = _core.decode_rounding_log(log)
    return _core.encode_rounding_log(bits=32, values=found["values"] + 1, entries=found["entries"])


class Steered:
    """A trainer that rounds in one step as a log says that is not its own.

    Args:
        at: The step.
        rounded: The log that it follows.
        shown: The log that it records.
    """

    def __init__(self, at: int, rounded: bytes, shown: bytes) -> None:
        self._at, self._rounded, self._shown = at, rounded, shown
        self._own, self._follower = _rounded_steps.Trainer(), _rounded_steps.Follower()
        self.log = b""

    @property
    def values(self) -> int:
        return self._own.values

    @contextlib.contextmanager
    def around(self, step: int) -> Iterator[None]:
        if step != self._at:
            with self._own.around(step):
                yield
            self.log = self._own.log
            return
        self._follower.expect(self._rounded, _core.rounding_log_digest(self._rounded))
        with self._follower.around(step):
            yield
        self.log = self._shown


@functools.cache
def two_logs(at: int) -> tuple[bytes, bytes]:
    """What the default order of summation logs in a step, and another log that an honest trainer
    may write: the state after the step is another one.
    """
    agreed, own, follower = job(), _rounded_steps.Trainer(), _rounded_steps.Follower()
    with potl.Session.open(build, seed=agreed.seed, job=agreed) as session, session.active():
        for step in range(1, at):
            session.run_step(step, session.sample_ids(step), rounding=own)
        before, ids = session.capture(), session.sample_ids(at)
        session.run_step(at, ids, rounding=own)
        state, decoded = session.capture().digest(), _core.decode_rounding_log(own.log)
        for number, (position, up) in enumerate(decoded["entries"]):
            entries = list(decoded["entries"])
            entries[number] = position, not up
            log = _core.encode_rounding_log(bits=32, values=decoded["values"], entries=entries)
            session.restore(before)
            follower.expect(log, _core.rounding_log_digest(log))
            session.run_step(at, ids, rounding=follower)
            changed = session.capture().digest() != state
            if changed and follower.audit["corrections"] == 1 and not follower.audit["rejected"]:
                return own.log, log
    raise AssertionError("no entry is free")
