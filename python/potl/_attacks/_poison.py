# SPDX-License-Identifier: Apache-2.0
"""A13, A36, A37: one false transition that puts a state where every later step is true, and cheap
or useless. Nobody draws the segment that ends there.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from .._job._session import Session
from ._scene import Forgery, Scene, attack

SAMPLES = 4


def poisoned(scene: Scene, name: str, poison: Callable[[Session], None]) -> Forgery:
    """A run that is honest but for one checkpoint, under a draw that does not look at it."""
    every = scene.job.core.checkpoint_every
    hidden = scene.job.core.steps // every // 2 * every

    def rewrite(session: Session, step: int) -> None:
        if step == hidden:
            poison(session)

    forgery = scene.forged(name, rewrite=rewrite)
    nonce = scene.lucky_draw(forgery.run, forgery.commitment, SAMPLES, hidden)
    return scene.with_options(forgery, samples=SAMPLES, nonce=nonce)


@attack("A36", "unknown tensor", rule="agreed.schema", task="momentum")
def unknown_tensor(scene: Scene) -> Forgery:
    """Keeps a tensor of 1e20 under a key of the optimizer's state that the optimizer does not know:
    it lifts every norm that it is part of.
    """

    def stash(session: Session) -> None:
        for kept in session.task.optimizers[0].state.values():
            kept["stash"] = torch.full((4,), 1e20)

    return poisoned(scene, "A36-stash", stash)


@attack("A13", "moments in bfloat16", rule="agreed.schema", task="momentum")
def moments_in_bfloat16(scene: Scene) -> Forgery:
    """Keeps momentum in half the agreed bytes from one checkpoint on: later steps replay as they
    were computed.
    """

    def shrink(session: Session) -> None:
        for kept in session.task.optimizers[0].state.values():
            kept["momentum_buffer"] = kept["momentum_buffer"].bfloat16()

    return poisoned(scene, "A13-moments", shrink)


@attack("A37", "infinite scale", rule="agreed.recipe_state", task="scaled")
def infinite_scale(scene: Scene) -> Forgery:
    """Sets the gradient scaler to infinity once: every gradient overflows, every update is left
    out, and no weight moves again.
    """

    def overflow(session: Session) -> None:
        scaler = session.task.scaler
        assert scaler is not None
        scaler.load_state_dict({**scaler.state_dict(), "scale": math.inf})

    return poisoned(scene, "A37-scale", overflow)


@attack("A37", "exhausted plateau", rule="agreed.recipe_state", task="plateau")
def exhausted_plateau(scene: Scene) -> Forgery:
    """Tells a ReduceLROnPlateau once that the loss was as low as it can be, and lowers the rate to
    nothing: it follows a metric, so that no table in the job says otherwise.
    """

    def exhaust(session: Session) -> None:
        scheduler = session.task.schedulers[0]
        scheduler.best = -1.0
        scheduler._last_lr = [1e-30]
        session.task.optimizers[0].param_groups[0]["lr"] = 1e-30

    return poisoned(scene, "A37-plateau", exhaust)


@attack("A37", "other cycle", rule="agreed.recipe_state", task="cycled")
def other_cycle(scene: Scene) -> Forgery:
    """Makes the phases that a OneCycleLR keeps in its state cycle between other momenta than
    agreed; the rates, which the job pins, stay.
    """

    def rename(session: Session) -> None:
        for phase in session.task.schedulers[0]._schedule_phases:
            phase["start_momentum"] = phase["end_momentum"] = "dampening"

    return poisoned(scene, "A37-cycle", rename)
