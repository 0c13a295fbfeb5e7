# SPDX-License-Identifier: Apache-2.0
"""Trainings under log64 for the tables of rounding_tables.py: nets, steps, and a step under a
rounding session.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import workloads
from torch import nn
from torch.nn import functional

import potl
from potl._arithmetic._library import module as operators

Counts = dict[str, dict[str, int]]
QUICK = "--quick" in sys.argv  # tiny nets, to see that a table can be made


@dataclass
class Net:
    """A model, a fixed batch, an optimizer and the loss."""

    model: nn.Module
    x: torch.Tensor
    y: torch.Tensor
    optimizer: torch.optim.Optimizer

    def loss(self) -> torch.Tensor:
        out: Any = self.model(self.x)
        out = getattr(out, "logits", out)
        return functional.cross_entropy(out.flatten(0, -2), self.y.flatten())

    def step(self, between: Callable[[], None] = lambda: None) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss()
        between()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()

    @property
    def checkpoint_bytes(self) -> int:
        """What a full checkpoint after each step would hold."""
        held = [*self.model.parameters(), *self.model.buffers()]
        for state in self.optimizer.state.values():
            held += [one for one in state.values() if isinstance(one, torch.Tensor)]
        return sum(one.numel() * one.element_size() for one in held)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)


def resnet20(batch: int = 32, seed: int = 0) -> Net:
    batch = 2 if QUICK else batch
    torch.manual_seed(0)
    model = workloads.resnet20()
    torch.manual_seed(seed)
    return Net(model, torch.rand(batch, 3, 32, 32), torch.randint(10, (batch,)), sgd(model))


def resnet50(batch: int, size: int) -> Net:
    from transformers import ResNetConfig, ResNetForImageClassification

    torch.manual_seed(0)
    model = ResNetForImageClassification(ResNetConfig(num_labels=1000))
    return Net(model, torch.rand(batch, 3, size, size), torch.randint(1000, (batch,)), sgd(model))


def gpt2(batch: int = 8, length: int = 64, **smaller: Any) -> Net:
    """GPT-2 with random weights; 124 million parameters unless `smaller` says otherwise."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(use_cache=False, **smaller)
    model = GPT2LMHeadModel(config)
    tokens = torch.randint(config.vocab_size, (batch, length + 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    return Net(model, tokens[:, :-1], tokens[:, 1:], optimizer)


def small_gpt() -> Net:
    layers, width = (1, 64) if QUICK else (4, 256)
    return gpt2(vocab_size=96, n_positions=64, n_embd=width, n_layer=layers, n_head=4)


def session(role: str, *, bits: int = 32, order: int = 0) -> Any:
    return operators().RoundingSession(role, bits=bits, order=order)


@contextlib.contextmanager
def installed(one: Any) -> Iterator[None]:
    """log64 with this session (None: no log) in this thread."""
    before = operators().install_rounding(one)
    try:
        with potl.deterministic("log64"):
            yield
    finally:
        operators().install_rounding(before)


def trained_step(net: Net, trainer: Any, number: int) -> tuple[Any, Counts, Counts]:
    """A step's log, and the session's counts after the forward and the backward pass."""
    forward: Counts = {}
    torch.manual_seed(number)  # of dropout
    trainer.begin_step(number)
    with installed(trainer):
        net.step(lambda: forward.update(trainer.counts))
    return trainer.end_step(), forward, trainer.counts


def audited_step(net: Net, auditor: Any, log: Any) -> tuple[Any, Counts, Counts]:
    """The same for an auditor, who follows the log."""
    forward: Counts = {}
    torch.manual_seed(log["step"])
    auditor.begin_step(log["step"], log=log["bytes"], committed=log["digest"])
    with installed(auditor):
        net.step(lambda: forward.update(auditor.counts))
    audit = auditor.end_audit()
    faults = {each["fault"] for each in audit["rejections"]}
    assert not faults, f"an honest trainer is accused of {faults}"
    return audit, forward, auditor.counts


def total(counts: Counts, what: str) -> int:
    return sum(each[what] for each in counts.values())


def state_bytes(net: Net) -> bytes:
    return b"".join(p.detach().numpy().tobytes() for p in net.model.parameters())
