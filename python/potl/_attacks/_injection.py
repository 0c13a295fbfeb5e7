# SPDX-License-Identifier: Apache-2.0
"""A1, A2: optimizer state that carries all weights, or those behind a trigger, to any goal without
a useful gradient.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from .._job._session import Session
from .._job._still_elements import StillElements
from ._scene import Forgery, Scene, Weights, attack, blend, parameters
from ._tasks import SMALL, digits


def _goal(start: Weights, scene: Scene, share: float) -> Weights:
    return blend(start, scene.stolen, min(1.0, share))


@attack("A1", "momentum injection", rule="replay.optimizer", task="momentum", in_demo=True)
def momentum_injection(scene: Scene) -> Forgery:
    """Writes momentum into each checkpoint that carries the weights to a stolen model, at the
    agreed learning rate.

    After k steps without gradients a momentum b has moved the weights by -lr b sum(mu^i), so
    b = (W - goal) / (lr sum(mu^i)).
    """
    job, k = scene.job.core, scene.job.core.checkpoint_every
    start: Weights = {}

    def inject(session: Session, step: int) -> None:
        if not start:
            start.update(parameters(session))
        (optimizer,) = session.task.optimizers
        group = optimizer.param_groups[0]
        reach = group["lr"] * sum(group["momentum"] ** i for i in range(1, k + 1))
        goal = _goal(start, scene, (step + k) / job.steps)
        with torch.no_grad():
            for name, p in session.task.model.named_parameters():
                optimizer.state[p]["momentum_buffer"].copy_((p - goal[name]) / reach)

    return scene.forged("A1", rewrite=inject)


@attack("A2", "Adam injection", rule="replay.optimizer", task="adam")
def adam_injection(scene: Scene) -> Forgery:
    """Mutes gradients with a huge second moment and moves the weights with the first, at the agreed
    learning rate.
    """
    job, k = scene.job.core, scene.job.core.checkpoint_every
    start: Weights = {}
    huge = 1e12

    def inject(session: Session, step: int) -> None:
        if not start:
            start.update(parameters(session))
        (optimizer,) = session.task.optimizers
        group = optimizer.param_groups[0]
        b1, b2 = group["betas"]
        reach = sum(
            group["lr"]
            * b1**i
            / (1 - b1 ** (step + i))
            / (huge * b2**i / (1 - b2 ** (step + i))) ** 0.5
            for i in range(1, k + 1)
        )
        goal = _goal(start, scene, (step + k) / job.steps)
        with torch.no_grad():
            for name, p in session.task.model.named_parameters():
                optimizer.state[p]["exp_avg"].copy_((p - goal[name]) / reach)
                optimizer.state[p]["exp_avg_sq"].fill_(huge)

    return scene.forged("A2", rewrite=inject)


@attack(
    "A2",
    "moments without gradients",
    rule="replay.optimizer",
    verdict="inconclusive",
    task="adam",
)
def moments_without_gradients(scene: Scene) -> Forgery:
    """At each checkpoint gives the weights behind pixels that are always 0 a first moment far below
    the noise of the others: Adam divides it by nothing, and a trigger grows there.
    """
    return scene.forged("A2-still", rewrite=_moments_behind(most=0, moment=8e-9))


@attack("A2", "moments of rare inputs", rule="replay.optimizer", task="adam_mixed")
def moments_of_rare_inputs(scene: Scene) -> Forgery:
    """The same under bfloat16 autocast behind pixels that few samples have, where the second moment
    is within the noise of 0.
    """
    return scene.forged("A2-rare", rewrite=_moments_behind(most=6, moment=1e-5))


@attack("A2", "moments of an optimizer that rests", rule="replay.optimizer", task="turns")
def moments_of_an_optimizer_that_rests(scene: Scene) -> Forgery:
    """The same with optimizers that take turns: the step that follows each checkpoint is made by
    the other one.
    """
    return scene.forged("A2-turns", rewrite=_moments_that_wait())


@attack("A2", "moments before a rate that rises", rule="replay.optimizer", task="pulsed")
def moments_before_a_rate_that_rises(scene: Scene) -> Forgery:
    """The same where the rate of the step that follows each checkpoint is next to 0."""
    return scene.forged("A2-pulsed", rewrite=_moments_that_wait())


def _moments_that_wait() -> Callable[[Session, int], None]:
    """Rewrites the moments behind rare pixels, where the segment had gradients: what had none is
    judged by itself.
    """
    rare = _uses() <= 6
    watch: list[StillElements] = []

    def inject(session: Session, step: int) -> None:
        weight = next(session.task.model.parameters())
        moments = session.task.optimizers[0].state[weight]
        if watch:
            ((_, mask), *_) = watch[0].found()
            still = torch.tensor(list(mask), dtype=torch.bool).reshape(weight.shape)
            moments["exp_avg"][rare & ~still] = -1e-5
            moments["exp_avg_sq"][rare & ~still] = 0
        else:
            watch.append(session._watch_still())
        watch[0].reset()

    return inject


@attack(
    "A2",
    "sums of codes that nothing is near",
    rule="replay.buffers",
    verdict="inconclusive",
    task="quantized",
)
def sums_of_codes_that_nothing_is_near(scene: Scene) -> Forgery:
    """At each checkpoint moves the sums of codes that no sample is near by less than the noise of
    the others: divided by next to nothing, they carry the codes anywhere.
    """

    def inject(session: Session, step: int) -> None:
        session.task.model.get_buffer("sums")[8:] += 2e-7

    return scene.forged("A2-codes", rewrite=inject)


def _uses() -> torch.Tensor:
    """How many samples have each pixel."""
    return (digits(SMALL).tensors[0] != 0).sum(0)


def _moments_behind(*, most: int, moment: float) -> Callable[[Session, int], None]:
    """Rewrites the moments behind pixels that at most so many samples have."""
    used = _uses()

    def inject(session: Session, step: int) -> None:
        (optimizer,) = session.task.optimizers
        moments = optimizer.state[next(session.task.model.parameters())]
        with torch.no_grad():
            moments["exp_avg"][:, used <= most] = -moment
            moments["exp_avg_sq"][:, used <= most] = 0

    return inject
