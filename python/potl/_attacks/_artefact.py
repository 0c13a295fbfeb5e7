# SPDX-License-Identifier: Apache-2.0
"""A11, A12, A17, A30: edits of buffers, final weights, numbers and logs, and delivery of another
model or of other checkpoints.
"""

from __future__ import annotations

import hashlib
import math
import shutil

import torch

from .. import _core
from .._checks._checks import PEV, Replay, Telemetry
from .._job._session import Session
from .._record._run import Run
from ._scene import Forgery, Scene, Weights, assign, attack, blend, parameters


@attack("A11", "buffer tampering", rule="replay.buffers", task="momentum", in_demo=True)
def buffer_tampering(scene: Scene) -> Forgery:
    """Shifts the running statistics of batch norm at every checkpoint: training never reads them,
    inference does.
    """

    def tamper(session: Session, step: int) -> None:
        with torch.no_grad():
            for name, buffer in session.task.model.named_buffers():
                if name.endswith("running_mean"):
                    buffer.add_(0.5)

    return scene.forged("A11", rewrite=tamper)


@attack(
    "A11",
    "post-training edit",
    rule="replay.final_segment",
    found_by=("replay.parameters", "replay.update_relative"),
)
def post_training_edit(scene: Scene) -> Forgery:
    """Edits the weights once, after the last step, and commits to the edited model."""
    job = scene.job.core

    def edit(session: Session, step: int) -> None:
        if step == job.steps:
            with torch.no_grad():
                p = next(session.task.model.parameters())
                p.view(-1)[:8] += 0.05

    # The forger hopes that the last segment is not drawn: one random segment, under a draw where it
    # is not.
    forgery = scene.forged("A11-edit", rewrite=edit)
    return scene.with_options(forgery, samples=1, nonce=_quiet_draw(scene, forgery))


def _quiet_draw(scene: Scene, forgery: Forgery) -> bytes:
    """A draw of one segment that is not the last, should the last one be drawn like any other."""
    job = scene.job.core
    evidence = _core.Evidence.open(str(forgery.run), job=job, commitment=forgery.commitment)
    segments = -(-job.steps // job.checkpoint_every)
    for number in range(1000):
        nonce = hashlib.sha256(number.to_bytes(8, "little")).digest()
        if segments - 2 not in _core.draw_without_replacement(
            nonce, evidence.commitment_digest, "replay", segments - 1, 1
        ):
            return nonce
    raise RuntimeError("every draw looks at the last segment")


@attack("A12", "not a number", rule="transcript.finite", task="spare")
def not_a_number(scene: Scene) -> Forgery:
    """Writes NaN into a weight that no output depends on at every other checkpoint, so that every
    norm of a difference is NaN.
    """
    every = scene.job.core.checkpoint_every

    def poison(session: Session, step: int) -> None:
        with torch.no_grad():
            weight = next(session.task.model.parameters())
            weight[64].fill_(0.0 if step // every % 2 == 0 else math.nan)
            weight[:64].mul_(1.05)

    return scene.forged("A12", rewrite=poison)


@attack("A12", "dormant not a number", rule="transcript.finite", task="spare")
def dormant_not_a_number(scene: Scene) -> Forgery:
    """Writes NaN once into a weight that no output depends on, in a segment that nobody draws: all
    later replays end in the recorded bits, and the NaN is delivered. It lies beyond any reach.
    """
    hidden = 3 * scene.job.core.checkpoint_every

    def poison(session: Session, step: int) -> None:
        if step == hidden:
            with torch.no_grad():
                next(session.task.model.parameters())[64].fill_(math.nan)

    forgery = scene.forged("A12-dormant", rewrite=poison)
    nonce = scene.lucky_draw(forgery.run, forgery.commitment, 4, hidden)
    checks = [Telemetry(), PEV(fraction=0.25), Replay(samples=4, top_q=0)]
    return scene.with_options(forgery, samples=4, nonce=nonce, options={"checks": checks})


@attack(
    "A12",
    "scaled updates",
    rule="replay.magnitude",
    found_by=("replay.magnitude", "replay.parameters", "replay.update_relative"),
)
def scaled_updates(scene: Scene) -> Forgery:
    """Doubles what each segment did: the direction, and so the cosine, is perfect."""
    last: Weights = {}

    def keep_start(session: Session) -> None:
        last.update(parameters(session))

    def double(session: Session, step: int) -> None:
        doubled = blend(last, parameters(session), 2.0)
        assign(session, doubled)
        last.update(doubled)

    return scene.forged("A12-scale", start=keep_start, rewrite=double)


@attack("A17", "invented loss curve", rule="loss.recomputed", in_demo=True)
def invented_losses(scene: Scene) -> Forgery:
    """Trains honestly but logs a smooth curve of its own invention."""
    steps = scene.job.core.steps
    return scene.forged("A17", claimed_loss=lambda step, loss: 2.3 * math.exp(-3.0 * step / steps))


@attack("A30", "bait and switch", rule="model.delivered", in_demo=True)
def bait_and_switch(scene: Scene) -> Forgery:
    """Proves the honest run and delivers another model."""
    from safetensors.torch import save_file

    other = scene.directory / "A30.safetensors"
    with Session.open(scene.build, seed=scene.job.seed, job=scene.job) as session:
        buffers = {name: b.detach().clone() for name, b in session.task.model.named_buffers()}
    save_file({name: w.contiguous() for name, w in scene.stolen.items()} | buffers, str(other))
    return scene.with_options(scene.honest, model=other)


@attack("A30", "without statistics", rule="model.delivered", task="momentum")
def without_statistics(scene: Scene) -> Forgery:
    """Delivers the honest run's weights without the running statistics: what loads them infers with
    statistics that nobody trained.
    """
    from safetensors.torch import load_file, save_file

    whole, part = (scene.directory / f"A30-{name}.safetensors" for name in ("whole", "part"))
    Run(scene.honest.run).export(whole)
    tensors = {k: v for k, v in load_file(whole).items() if "running_" not in k}
    save_file(tensors, part)
    return scene.with_options(scene.honest, model=part)


@attack("A30", "swapped checkpoint", rule="transcript.checkpoint")
def swapped_checkpoint(scene: Scene) -> Forgery:
    """Signs a bought model's state into the last record, and shows the checkpoint of an honest run
    there, which every replay reaches.
    """

    def sign_for_another(session: Session, step: int) -> None:
        if step == scene.job.core.steps:
            assign(session, scene.stolen)

    forgery = scene.forged("A30-swap", rewrite=sign_for_another)
    name = f"checkpoints/step-{scene.job.core.steps}.safetensors"
    shutil.copyfile(scene.honest.run / name, forgery.run / name)
    return forgery
