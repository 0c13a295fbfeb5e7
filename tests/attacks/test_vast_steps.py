# SPDX-License-Identifier: Apache-2.0
"""A2: a false state within reach, from which one true step leads anywhere, because the optimizer
divides by next to nothing there. The step replays as it was recorded; what led to it does not.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

from potl import Replay, Task
from potl._attacks import Scene, _tasks
from potl._job._session import Session

FALSE = 46  # the step after which the state is false: the last two lead to what is delivered
SAMPLES = 2

Change = Callable[[Session], None]


def task_with(optimizer: Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]) -> Task:
    model = _tasks.perceptron()
    return Task(
        model=model,
        optimizer=optimizer([*model.parameters()]),
        dataset=_tasks.digits(_tasks.SMALL),
        loss=cross_entropy,
        batch_size=32,
        epochs=6,
    )


def nadam() -> Task:
    return task_with(lambda p: torch.optim.NAdam(p, lr=2e-3, momentum_decay=0.5))


def a_product_that_nears_one(session: Session) -> None:
    """The next step multiplies it by both of these, and divides by what is missing to 1."""
    optimizer = session.task.optimizers[0]
    group = optimizer.param_groups[0]
    first, second = (
        group["betas"][0] * (1 - 0.5 * 0.96 ** (step * group["momentum_decay"]))
        for step in (FALSE + 1, FALSE + 2)
    )
    for state in optimizer.state.values():
        state["mu_product"].fill_((1 - 1e-4) / (first * second))


def centered() -> Task:
    return task_with(lambda p: torch.optim.RMSprop(p, lr=1e-3, alpha=0.9, centered=True))


def a_mean_without_variance(session: Session) -> None:
    """As if every gradient had been that of the next step."""
    task, step = session.task, FALSE + 1
    x, y = session.batch(step, session.sample_ids(step))
    task.optimizers[0].zero_grad()
    cross_entropy(task.model(x), y).backward()
    for p in task.model.parameters():
        state = task.optimizers[0].state[p]
        state["grad_avg"].copy_(p.grad)
        state["square_avg"].copy_(p.grad.square() * (1 + 1e-5))
    task.optimizers[0].zero_grad()


@pytest.mark.parametrize(
    ("build", "change"),
    [(nadam, a_product_that_nears_one), (centered, a_mean_without_variance)],
    ids=["nadam", "centered"],
)
def test_what_led_to_a_vast_step_is_replayed_with_it(
    build: Callable[[], Task], change: Change, tmp_path: Path
) -> None:
    scene = Scene(tmp_path, build, checkpoint_every=2, arithmetic="ord32")

    def rewrite(session: Session, step: int) -> None:
        if step == FALSE:
            change(session)

    forgery = scene.forged("vast", rewrite=rewrite)
    nonce = scene.lucky_draw(forgery.run, forgery.commitment, SAMPLES, FALSE)
    forgery = scene.with_options(
        forgery,
        samples=SAMPLES,
        nonce=nonce,
        options={"checks": [Replay(samples=SAMPLES, top_q=0)]},
    )
    report = scene.verify(forgery)
    replays = {one.details["segment"]: one for one in report.findings if "why" in one.details}
    vast, false = (f"{step}-{step + 2}" for step in (FALSE, FALSE - 2))
    assert report.verdict == "rejected", report.sentence
    assert replays[false].details["why"] == "reach"
    assert vast not in replays or replays[vast].result == "pass"
