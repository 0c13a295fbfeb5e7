# SPDX-License-Identifier: Apache-2.0
"""A34, A35, A40: the prover's records and files decide what can be drawn, and how much is done
again.
"""

from __future__ import annotations

import hashlib

from .. import _core
from .._job._session import Session
from ._scene import Forgery, Scene, assign, attack, drawn

_FEW = 6


def _diluted(scene: Scene, name: str) -> tuple[Forgery, int]:
    """Stores the state of every step, and in one of those steps becomes a stolen model."""
    jump = scene.job.core.steps // 2 + 1

    def rewrite(session: Session, step: int) -> None:
        if step == jump:
            assign(session, scene.stolen)

    return scene.forged(name, rewrite=rewrite, stored=lambda step: True), jump


@attack("A34", "dilution", rule="agreed.segments", in_demo=True)
def dilution(scene: Scene) -> Forgery:
    """Stores a state after every step, so that the one false transition is one of many more
    segments, and is rarely drawn.
    """
    forgery, jump = _diluted(scene, "A34")
    nonce = scene.lucky_draw(forgery.run, forgery.commitment, _FEW, jump)
    return scene.with_options(forgery, samples=_FEW, nonce=nonce)


@attack("A35", "remapped draw", rule="agreed.segments")
def remapped_draw(scene: Scene) -> Forgery:
    """Waits for the draw, then removes superfluous states that nothing binds until the same nonce
    means other segments.
    """
    forgery, jump = _diluted(scene, "A35")
    options = drawn(_FEW).options()

    def is_seen(nonce: bytes) -> bool:
        evidence = _core.Evidence.open(
            str(forgery.run), job=scene.job.core, commitment=forgery.commitment
        )
        plan = _core.plan_check("replay", evidence, options, nonce)
        return any(one.from_step < jump <= one.from_step + one.steps for one in plan)

    draws = (hashlib.sha256(bytes([number])).digest() for number in range(256))
    nonce = next(draw for draw in draws if is_seen(draw))
    for step in range(1, jump - 1):
        if not scene.job.core.is_checkpoint(step) and is_seen(nonce):
            (forgery.run / "checkpoints" / f"step-{step}.safetensors").unlink()
    return scene.with_options(forgery, samples=_FEW, nonce=nonce)


@attack("A40", "work without end", rule="transcript.resume")
def work_without_end(scene: Scene) -> Forgery:
    """Loses its states again and again just before the end and starts over, so that the verifier
    repeats many trainings instead of a few segments.
    """
    path, job = scene.path("A40"), scene.job.core
    recorder = _core.Recorder.create(str(path), job, scene.key, software="potl forger")
    with Session.open(scene.build, seed=scene.job.seed, job=scene.job) as session:
        recorder.append_initial(session.capture())
        for attempt in range(4):
            for step, ids, batch in session.batches(1, job.steps - (attempt < 3)):
                scene.append(recorder, session, step, ids, session.run_step(step, batch))
            if attempt == 3:
                break
            recorder.abandon()
            for file in (path / "checkpoints").glob("step-[1-9]*"):
                file.unlink()
            recorder, _, state = _core.Recorder.resume(
                str(path), job, scene.key, software="potl forger", past_limits=True
            )
            session.restore(state)
        recorder.close()
    return Forgery(run=path, commitment=scene.commit(path))
