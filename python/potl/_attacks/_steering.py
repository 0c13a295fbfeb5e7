# SPDX-License-Identifier: Apache-2.0
"""A28, A41: what is false in one segment steers every true step after it. Nobody draws it."""

from __future__ import annotations

from collections.abc import Callable

from .._checks._checks import PEV, Replay, Telemetry
from .._job._session import Session
from ._scene import Forgery, Scene, Weights, assign, attack, parameters

SAMPLES = 4


def steered(scene: Scene, forge: Callable[[int, int], Forgery]) -> Forgery:
    """`forge(before, end)` falsifies the segment between these two, under a draw that misses it."""
    every = scene.job.core.checkpoint_every
    hidden = scene.job.core.steps // every // 2 * every
    forgery = forge(hidden - every, hidden)
    nonce = scene.lucky_draw(forgery.run, forgery.commitment, SAMPLES, hidden)
    checks = [Telemetry(), PEV(fraction=0.25), Replay(samples=SAMPLES, top_q=0)]
    return scene.with_options(forgery, samples=SAMPLES, nonce=nonce, options={"checks": checks})


@attack("A28", "spike", rule="replay.reach", found_by=("replay.optimizer",), task="adam")
def spike(scene: Scene) -> Forgery:
    """Gives Adam's second moments once what one vast gradient leaves there: the weights hardly move
    for thousands of steps.
    """

    def forge(before: int, end: int) -> Forgery:
        def swell(session: Session, step: int) -> None:
            if step == end:
                for kept in session.task.optimizers[0].state.values():
                    kept["exp_avg_sq"].fill_(1e6)

        return scene.forged("A28", rewrite=swell)

    return steered(scene, forge)


@attack(
    "A41",
    "false loss",
    rule="replay.reach",
    found_by=("loss.recomputed", "replay.optimizer"),
    task="plateau",
)
def false_loss(scene: Scene) -> Forgery:
    """Logs one loss that is lower than any can be, and tells it to a ReduceLROnPlateau, which
    lowers the rate from then on.
    """

    def forge(before: int, end: int) -> Forgery:
        def tell(session: Session, step: int) -> None:
            if step == end:
                session.task.schedulers[0].best = -1000.0
                session.task.schedulers[0].num_bad_epochs = 0

        return scene.forged(
            "A41-loss",
            rewrite=tell,
            claimed_loss=lambda step, loss: -1000.0 if step == end else loss,
        )

    return steered(scene, forge)


@attack(
    "A41",
    "claimed skips",
    rule="replay.reach",
    found_by=("replay.magnitude", "replay.optimizer", "replay.parameters"),
    task="scaled",
)
def claimed_skips(scene: Scene) -> Forgery:
    """Says that the gradients of a segment overflowed, leaves its updates out, and lowers the
    gradient scaler's scale as often as that: gradients of half precision vanish after it.
    """

    def forge(before: int, end: int) -> Forgery:
        start: Weights = {}

        def leave_out(session: Session, step: int) -> None:
            if step == before:
                start.update(parameters(session))
            if step != end:
                return
            assign(session, start)
            scaler = session.task.scaler
            assert scaler is not None
            lowered = scaler.get_scale() * 0.5 ** (end - before)
            scaler.load_state_dict({**scaler.state_dict(), "scale": lowered, "_growth_tracker": 0})

        return scene.forged(
            "A41-skips", rewrite=leave_out, skipped=lambda step: before < step <= end
        )

    return steered(scene, forge)
