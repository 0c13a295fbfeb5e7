# SPDX-License-Identifier: Apache-2.0
"""A29: noise that is made up where nobody asks from what it follows."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F

from .. import _core
from .._job._session import Session
from ._scene import Forgery, Scene, attack, parameters


@attack(
    "A29",
    "noise of a superseded branch",
    rule="replay.parameters",
    found_by=("replay.parameters", "replay.update_relative", "replay.magnitude"),
    verdict="inconclusive",
)
def noise_of_a_superseded_branch(scene: Scene) -> Forgery:
    """Invents a state in which every gradient is rounding, goes on from it in steps that a resume
    replaces, and drifts in all the others within the noise that is measured there.
    """
    path, job = scene.path("A29-superseded"), scene.job.core
    every = job.checkpoint_every
    recorder = _core.Recorder.create(str(path), job, scene.key, software="potl forger")
    with Session.open(scene.build, seed=scene.job.seed, job=scene.job) as session:
        recorder.append_initial(session.capture())
        last = parameters(session)

        def drift() -> None:
            with torch.no_grad():
                for name, p in session.task.model.named_parameters():
                    if name.endswith("weight"):
                        way = scene.stolen[name] - p
                        way[p == last[name]] = 0
                        p.add_(way, alpha=0.02 * float((p - last[name]).norm() / way.norm()))
            last.update(parameters(session))

        def run(begin: int, end: int, *, honest: bool = False) -> None:
            for step, ids, batch in session.batches(begin, end):
                result = session.run_step(step, batch)
                if honest and job.is_checkpoint(step):
                    drift()
                elif not honest and step == 2 * every:
                    _learn_by_heart(session, step + 1, step + every)
                elif not honest and step == end:
                    _disturb(session)
                scene.append(recorder, session, step, ids, result)

        run(1, every, honest=True)
        # Several, because only some of all segments are repeated.
        for _ in range(4):
            run(every + 1, 2 * every)
            recorder.abandon()
            recorder = _resumed(scene, path, session)
            run(2 * every + 1, 3 * every)
            recorder.abandon()
            kept = {
                file: file.read_bytes()
                for step in (2 * every, 3 * every)
                for file in (path / "checkpoints").glob(f"step-{step}.*")
            }
            for file in kept:
                file.unlink()
            recorder = _resumed(scene, path, session)
            for file, content in kept.items():
                file.write_bytes(content)
        run(every + 1, job.steps, honest=True)
        recorder.close()
    return Forgery(run=path, commitment=scene.commit(path))


def _resumed(scene: Scene, path: Path, session: Session) -> _core.Recorder:
    """Goes on from the last state that is there."""
    recorder, _, state = _core.Recorder.resume(
        str(path), scene.job.core, scene.key, software="potl forger", past_limits=True
    )
    session.restore(state)
    return recorder


def _learn_by_heart(session: Session, first: int, last: int) -> None:
    """Makes the model so sure of the samples of some steps that their gradients are rounding."""
    model = session.task.model
    batches = [batch for _, _, batch in session.batches(first, last)]
    x, y = (torch.cat([batch[i] for batch in batches]) for i in range(2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with torch.enable_grad():
        for _ in range(300):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    optimizer.zero_grad()
    head = list(model.parameters())[-2:]
    with torch.no_grad():
        while F.cross_entropy(model(x), y) > 2e-6:
            for p in head:
                p.mul_(1.1)


def _disturb(session: Session) -> None:
    """So that a replay ends in other bits, and its noise is measured."""
    with torch.no_grad():
        next(session.task.model.parameters()).view(-1)[0] += 1e-6
