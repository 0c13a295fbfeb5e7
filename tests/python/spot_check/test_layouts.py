# SPDX-License-Identifier: Apache-2.0
"""A guard whose weights do not lie as gradients come: its gradients are copies, as on a GPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from docs_setup_digits import train_set
from guarded import KEY, Cheat
from torch import nn

import potl

STEPS = 6


def last() -> potl.Task:
    """A net whose convolutions have their channels last in memory."""
    model = nn.Sequential(
        nn.Unflatten(1, (1, 8)),
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3),
        nn.Flatten(),
        nn.Linear(288, 10),
    ).to(memory_format=torch.channels_last)
    return potl.Task(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        dataset=train_set,
        loss=nn.functional.cross_entropy,
        batch_size=64,
        max_steps=STEPS,
        grad_clip=0.1,
    )


def weights(model: nn.Module) -> torch.Tensor:
    return torch.cat([one.detach().reshape(-1).double() for one in model.parameters()])


@pytest.fixture(scope="module")
def alone() -> tuple[potl.Job, torch.Tensor]:
    """A job, and where a training without a guard ends."""
    job = potl.Job.create(last, seed=3, checkpoint_every=10, arithmetic="stock")
    with potl.Session.open(last, seed=3, job=job) as session:
        for step, _, batch in session.batches(1, STEPS):
            session.run_step(step, batch)
        return job, weights(session.task.model)


def guarded(job: potl.Job, change: Callable[[torch.Tensor], object]) -> torch.Tensor:
    """Where a training ends in which every step is checked, and passes."""

    def changed(step: int, gradient: torch.Tensor, cheat: Cheat) -> None:
        change(gradient)

    with potl.SpotCheck(last, job=job, key=KEY, steps_at_risk=1, probability=0.999999) as guard:
        worker = potl.spot_check.Worker(last, wrap=lambda honest: Cheat(honest, changed))
        assert guard.train(worker).verdict == "accepted"
        return weights(guard.task.model)


def test_weights_of_another_layout_end_as_in_a_plain_training(
    alone: tuple[potl.Job, torch.Tensor],
) -> None:
    job, expected = alone
    assert torch.equal(guarded(job, lambda gradient: None), expected)


def test_what_is_scaled_so_that_torch_would_clip_it_to_nothing_moves_copies_too(
    alone: tuple[potl.Job, torch.Tensor],
) -> None:
    job, expected = alone
    assert float((guarded(job, lambda gradient: gradient.mul_(1e25)) - expected).norm()) < 1e-3
