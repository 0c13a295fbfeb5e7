# SPDX-License-Identifier: Apache-2.0
"""Elements whose gradients are rounding errors in the first segment, and in no other."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import potl
from potl._attacks import _tasks
from potl._attacks._scene import Scene
from potl._job._session import Session

EVERY = 4


class Late(nn.Module):
    """Attention whose biases of values are some of keys in the first segment: no output depends on
    them there.
    """

    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.asked, self.out = nn.Linear(8, 16), nn.Linear(16, 48), nn.Linear(16, 10)
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.count += 1
        rows = self.rows(x.view(-1, 8, 8))
        query, key, value = F.linear(rows, self.asked.weight).chunk(3, -1)
        of_query, of_key, of_value = self.asked.bias.chunk(3)
        first = int(self.count) <= EVERY
        key = key + (of_key + of_value if first else of_key)
        value = value if first else value + of_value
        seen = F.scaled_dot_product_attention(query + of_query, key, value)
        out: Tensor = self.out((rows + seen).mean(1))
        return out


def late() -> potl.Task:
    model = Late()
    task = _tasks._classifier(model, torch.optim.AdamW(model.parameters(), lr=2e-3))
    task.autocast = torch.bfloat16
    return task


def drift(session: Session, step: int) -> None:
    if step > EVERY:
        with torch.no_grad():
            session.task.model.get_parameter("asked.bias")[32:] += 0.008


def test_noise_of_the_first_segment_excuses_nothing_that_is_steady_in_the_second(
    tmp_path: Path,
) -> None:
    scene = Scene(tmp_path, late, checkpoint_every=EVERY, samples=4)
    report = scene.verify(scene.forged("late", rewrite=drift))
    rule, part = "replay.update_relative", "asked.bias where it is no noise"
    doubted = [f for f in report.findings if f.rule == rule and part in f.reason]
    assert {f.result for f in doubted} == {"inconclusive"}
