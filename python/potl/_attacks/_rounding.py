# SPDX-License-Identifier: Apache-2.0
"""A20: rounding logs of log64 that leave the trainer more choices than arithmetic does."""

from __future__ import annotations

from .. import _core
from .._job._job import Job
from ._scene import Forgery, Scene, attack

FLOOD = 64  # one entry in so many values


@attack("A20", "flooded rounding log", rule="replay.rounding")
def flooded_log(scene: Scene) -> Forgery:
    """Trains honestly in log64, but logs results as near a tie that are far from one, so that their
    direction would be its own choice.
    """
    job = Job.create(
        scene.build,
        seed=scene.job.seed,
        checkpoint_every=scene.job.core.checkpoint_every,
        trainer=str(scene.directory / "trainer.pub"),
        arithmetic="log64",
    )
    run = scene.forge("A20", client_job=job, rounding_log=flooded)
    return Forgery(run=run, commitment=scene.commit(run), job=job)


def flooded(log: bytes) -> bytes:
    """The log with an entry, upwards, at every value of many that has none."""
    decoded = _core.decode_rounding_log(log)
    entries = dict(decoded["entries"])
    for position in range(0, decoded["values"], FLOOD):
        entries.setdefault(position, True)
    return _core.encode_rounding_log(
        bits=32, values=decoded["values"], entries=sorted(entries.items())
    )
