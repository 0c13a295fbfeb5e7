# SPDX-License-Identifier: Apache-2.0
"""A step in which the order of ties decides is told from one that rounding moves too far."""

from __future__ import annotations

import functools

import pytest
import torch
from docs_setup_digits import train_set
from guarded import KEY
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

import potl


class Packed(nn.Module):
    """Reads images in rows, up to four of them, with a dropout that depends on the order."""

    def __init__(self, *, stable: bool) -> None:
        super().__init__()
        self.stable = stable
        self.cells = nn.LSTM(8, 8, num_layers=2, dropout=0.5, batch_first=True)
        self.head = nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, lengths = x.view(-1, 8, 8), 1 + (x.flatten(1) > 0.5).sum(1) % 4
        if self.stable:
            lengths, order = lengths.sort(descending=True, stable=True)
            rows = rows[order]
        packed = pack_padded_sequence(
            rows, lengths.cpu(), batch_first=True, enforce_sorted=self.stable
        )
        last: torch.Tensor = self.head(self.cells(packed)[1][0][-1])
        return last[order.argsort()] if self.stable else last


def build(*, stable: bool) -> potl.Task:
    model = Packed(stable=stable)
    return potl.Task(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        dataset=torch.utils.data.Subset(train_set, range(64)),
        loss=nn.functional.cross_entropy,
        batch_size=32,
        epochs=1,
        grad_clip=1.0,
    )


def test_what_sorts_ties_otherwise_is_refused_with_a_remedy_that_works() -> None:
    first = functools.partial(build, stable=False)
    job = potl.Job.create(first, seed=3, checkpoint_every=2, arithmetic="stock")
    with pytest.raises(potl.UnsupportedError, match="a quarter of the clip") as refused:
        potl.SpotCheck(first, job=job, key=KEY)
    assert "enforce_sorted=True" in refused.value.remedy
    mended = functools.partial(build, stable=True)
    job = potl.Job.create(mended, seed=3, checkpoint_every=2, arithmetic="stock")
    potl.SpotCheck(mended, job=job, key=KEY).close()
