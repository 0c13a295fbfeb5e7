# SPDX-License-Identifier: Apache-2.0
"""A2, A37, A38, A42: one or two false transitions, and true ones behind them."""

from __future__ import annotations

import torch

from .._checks._checks import PEV, Replay, Telemetry
from .._job._session import Session
from ._scene import Forgery, Scene, assign, attack, parameters

SAMPLES = 4

# Of the first layer.
_BELOW = "0.weight"


def stops(scene: Scene) -> tuple[int, int]:
    """Steps at the ends of the two false segments: a quarter and three quarters of the way."""
    every, steps = scene.job.core.checkpoint_every, scene.job.core.steps
    return steps // 4 // every * every, 3 * steps // 4 // every * every


@attack(
    "A38",
    "parking",
    rule="replay.reach",
    found_by=("replay.parameters", "replay.update_relative"),
    in_demo=True,
)
def parking(scene: Scene) -> Forgery:
    """Jumps to a net in which no neuron fires, so that its steps cost next to nothing, stays there
    for half of the training, and jumps to a stolen model at the end of it.
    """
    there, back = stops(scene)

    def jump(session: Session, step: int) -> None:
        if step == there:
            with torch.no_grad():
                for layer in session.task.model.modules():
                    if isinstance(layer, torch.nn.Linear):
                        layer.bias.sub_(100.0)
                        break
        elif step == back:
            assign(session, scene.stolen)

    return _undrawn(scene, scene.forged("A38", rewrite=jump))


@attack("A38", "closed mask", rule="replay.reach", found_by=("replay.buffers",), task="masked")
def closed_mask(scene: Scene) -> Forgery:
    """Closes a mask of booleans for half of the training, so that no gradient reaches a weight and
    no weight moves, and opens it again.
    """
    there, back = stops(scene)

    def flip(session: Session, step: int) -> None:
        if step in (there, back):
            session.task.model.get_buffer("keep").logical_not_()

    return _undrawn(scene, scene.forged("A38-mask", rewrite=flip))


@attack("A38", "silent layer", rule="replay.reach", found_by=("replay.optimizer",), task="gated")
def silent_layer(scene: Scene) -> Forgery:
    """Sets a number in a module's extra state to zero for half of the training, with the same
    effect.
    """
    there, back = stops(scene)

    def turn(session: Session, step: int) -> None:
        if step in (there, back):
            session.task.model.set_extra_state({"gain": 0.0 if step == there else 1.0})

    return _undrawn(scene, scene.forged("A38-extra", rewrite=turn))


@attack("A38", "hidden pixels", rule="replay.reach", found_by=("replay.optimizer",), task="guided")
def hidden_pixels(scene: Scene) -> Forgery:
    """Has an object of the user's own, which the state holds beside the model, hide all pixels for
    half of the training: nothing but biases is trained.
    """
    there, back = stops(scene)

    def hide(session: Session, step: int) -> None:
        if step in (there, back):
            shown = session.task.state["curriculum"].state_dict()["shown"]
            shown.fill_(0.0 if step == there else 1.0)

    return _undrawn(scene, scene.forged("A38-pixels", rewrite=hide))


@attack("A37", "rate of nothing", rule="replay.reach", found_by=("replay.optimizer",), task="owned")
def rate_of_nothing(scene: Scene) -> Forgery:
    """Sets the learning rate to 0 once, in the middle of a training whose own step may set it to
    anything: no weight moves again.
    """
    there, _ = stops(scene)

    def stop(session: Session, step: int) -> None:
        if step == there:
            session.task.optimizers[0].param_groups[0]["lr"] = 0.0

    return _undrawn(scene, scene.forged("A37-rate", rewrite=stop))


@attack(
    "A2",
    "a moment that true steps carry",
    rule="replay.reach",
    found_by=("replay.optimizer", "replay.parameters", "replay.update_relative"),
    task="adam",
)
def carried_moment(scene: Scene) -> Forgery:
    """Once gives the weights behind a pixel that is always 0 a first moment, far within reach, and
    next to no second one, by which true steps divide it: they carry these weights any distance.
    """
    there, _ = stops(scene)

    def push(session: Session, step: int) -> None:
        if step == there:
            weights = session.task.model.get_parameter(_BELOW)
            moments = session.task.optimizers[0].state[weights]
            moments["exp_avg"][:, 0] = -1e-4
            moments["exp_avg_sq"][:, 0] = 1e-12  # what averages over 10,000 gradients might be

    return _undrawn(scene, scene.forged("A2-carried", rewrite=push))


@attack(
    "A42",
    "other foundation",
    rule="replay.reach",
    found_by=("replay.parameters", "replay.update_relative"),
    task="tuned",
)
def other_foundation(scene: Scene) -> Forgery:
    """Trains a last layer as agreed, and once moves the layer below it, which is not trained, as
    little as layers that are trained move.
    """
    there, _ = stops(scene)

    def move(session: Session, step: int) -> None:
        if step == there:
            now = parameters(session)
            assign(session, {**now, _BELOW: torch.lerp(now[_BELOW], scene.stolen[_BELOW], 0.01)})

    return _undrawn(scene, scene.forged("A42", rewrite=move))


def _undrawn(scene: Scene, forgery: Forgery) -> Forgery:
    """Under a draw that misses both false transitions, with reach as by default."""
    there, back = stops(scene)
    nonce = scene.lucky_draw(forgery.run, forgery.commitment, SAMPLES, there, back)
    checks = [Telemetry(), PEV(fraction=0.25), Replay(samples=SAMPLES, top_q=0)]
    return scene.with_options(forgery, samples=SAMPLES, nonce=nonce, options={"checks": checks})
