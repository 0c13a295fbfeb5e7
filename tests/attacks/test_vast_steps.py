# SPDX-License-Identifier: Apache-2.0
"""A2: a false state within reach, from which true steps lead far, because the optimizer divides by
next to nothing there, or because of its momentum. They replay as they were recorded; what led to
them does not.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

from potl import Finding, Replay, Task
from potl._attacks import Scene, _tasks
from potl._attacks._scene import Weights
from potl._job._session import Session

FALSE = 46  # the step after which the state is false: the last two lead to what is delivered
RESTS = 24  # the same, where more follow
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


def a_mean_without_variance(session: Session, now: int, step: int) -> None:
    """As if every gradient had been that of a later step."""
    task = session.task
    here = session.capture()
    for before in range(now + 1, step):
        session.run_step(before, session.sample_ids(before))
    x, y = session.batch(step, session.sample_ids(step))
    (first, *_) = task.optimizers
    parameters = [p for group in first.param_groups for p in group["params"]]
    gradients = torch.autograd.grad(cross_entropy(task.model(x), y), parameters)
    session.restore(here)
    for p, gradient in zip(parameters, gradients, strict=True):
        state = first.state[p]
        state["grad_avg"].copy_(gradient)
        state["square_avg"].copy_(gradient.square() * (1 + 1e-5))


class InTurns(Task):
    """Each optimizer makes eight steps, and rests for eight."""

    def step(self, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        for one in self.optimizers:
            one.zero_grad()
        loss = cross_entropy(self.model(batch[0]), batch[1])
        loss.backward()
        turn = self.model.get_buffer("turn")
        self.optimizers[int(turn) % 16 // 8].step()
        turn += 1
        return loss.detach()


def in_turns() -> Task:
    model = _tasks.perceptron()
    model.register_buffer("turn", torch.zeros((), dtype=torch.int64))
    return InTurns(
        model=model,
        optimizer=[
            torch.optim.RMSprop(model[0].parameters(), lr=1e-3, alpha=0.9, centered=True),
            torch.optim.SGD(model[2].parameters(), lr=0.05),
        ],
        dataset=_tasks.digits(_tasks.SMALL),
        loss=cross_entropy,
        batch_size=32,
        epochs=6,
    )


def carried() -> Task:
    return task_with(lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9))


def a_momentum_towards(weights: Weights) -> Change:
    """Four times as long as it is."""

    def push(session: Session) -> None:
        for name, p in session.task.model.named_parameters():
            momentum = session.task.optimizers[0].state[p]["momentum_buffer"]
            way = p.detach() - weights[name]
            momentum.add_(way * (4 * momentum.norm() / way.norm()))

    return push


class ScheduleFree(torch.optim.Optimizer):
    """Copies of the parameters take the steps, and these follow them ever more slowly."""

    def __init__(self, parameters: list[torch.nn.Parameter]) -> None:
        super().__init__(parameters, {"lr": 0.1, "steps": 0})

    @torch.no_grad()
    def step(self) -> None:
        (group,) = self.param_groups
        group["steps"] += 1
        for p in group["params"]:
            z = self.state[p].setdefault("z", p.clone())
            z.sub_(p.grad, alpha=group["lr"])
            p.lerp_(z, 1 / group["steps"])


def followed() -> Task:
    return task_with(ScheduleFree)


def a_copy_to(weights: Weights) -> Change:
    def move(session: Session) -> None:
        for name, p in session.task.model.named_parameters():
            session.task.optimizers[0].state[p]["z"].copy_(weights[name])

    return move


def replays_of(
    scene: Scene, change: Change, *, false: int, top_q: int
) -> tuple[str, dict[object, Finding]]:
    """Of a run that changes once, under a draw that misses it."""

    def rewrite(session: Session, step: int) -> None:
        if step == false:
            change(session)

    forgery = scene.forged("vast", rewrite=rewrite)
    nonce = scene.lucky_draw(forgery.run, forgery.commitment, SAMPLES, false)
    checks = [Replay(samples=SAMPLES, top_q=top_q)]
    forgery = scene.with_options(forgery, samples=SAMPLES, nonce=nonce, options={"checks": checks})
    report = scene.verify(forgery)
    found = {one.details["segment"]: one for one in report.findings if "why" in one.details}
    return report.verdict, found


@pytest.mark.parametrize(
    ("build", "change", "false"),
    [
        (nadam, a_product_that_nears_one, FALSE),
        (centered, lambda one: a_mean_without_variance(one, FALSE, FALSE + 1), FALSE),
        (in_turns, lambda one: a_mean_without_variance(one, RESTS, RESTS + 9), RESTS),
    ],
    ids=["nadam", "centered", "rested"],
)
def test_what_led_to_a_vast_step_is_replayed_with_it(
    build: Callable[[], Task], change: Change, false: int, tmp_path: Path
) -> None:
    scene = Scene(tmp_path, build, checkpoint_every=2, arithmetic="ord32")
    verdict, replays = replays_of(scene, change, false=false, top_q=0)
    vast = f"{false}-{false + 2}" if false == FALSE else f"{false + 8}-{false + 10}"
    assert verdict == "rejected"
    assert replays[f"{false - 2}-{false}"].details["why"] == "reach"
    assert vast not in replays or replays[vast].result == "pass"


def test_what_led_to_the_furthest_steps_is_replayed_with_them(tmp_path: Path) -> None:
    scene = Scene(tmp_path, carried, checkpoint_every=4, arithmetic="ord32")
    change = a_momentum_towards(scene.stolen)
    verdict, replays = replays_of(scene, change, false=RESTS, top_q=1)
    assert verdict == "rejected"
    assert replays[f"{RESTS - 4}-{RESTS}"].details["why"] == "top-q"


def test_a_copy_that_an_optimizer_makes_is_measured_by_how_far_it_moves(tmp_path: Path) -> None:
    scene = Scene(tmp_path, followed, checkpoint_every=4, arithmetic="ord32")
    change = a_copy_to(scene.stolen)
    verdict, replays = replays_of(scene, change, false=RESTS, top_q=0)
    assert verdict == "rejected"
    assert replays[f"{RESTS - 4}-{RESTS}"].details["why"] == "reach"
