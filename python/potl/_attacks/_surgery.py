# SPDX-License-Identifier: Apache-2.0
"""A17, A18, A25: cutting, reordering, repeating and hiding parts of an honest record."""

from __future__ import annotations

from collections.abc import Callable

from ._frames import Frames
from ._scene import Forgery, Scene, attack


def _recut(scene: Scene, name: str, cut: Callable[[Frames], None]) -> Forgery:
    run = scene.copy_of(scene.honest.run, name)
    frames = Frames.read(run)
    cut(frames)
    frames.write(run, chained=True)
    return Forgery(run=run, commitment=scene.sign(run))


@attack("A17", "duplicate steps", rule="transcript.sequence", in_demo=True)
def duplicate_steps(scene: Scene) -> Forgery:
    """Repeats a step's record, chained and committed anew, to look longer at work."""
    return _recut(scene, "A17-duplicate", Frames.repeat_a_step)


@attack(
    "A18",
    "truncated log",
    rule="agreed.step_count",
    found_by=("agreed.step_count", "transcript.withheld"),
    in_demo=True,
)
def truncated_log(scene: Scene) -> Forgery:
    """Ends the record two epochs early, closed and committed as if that were the whole run."""
    run = scene.forge(
        "A18-truncate", last_step=scene.job.core.steps - 2 * scene.job.core.steps_per_epoch
    )
    return Forgery(run=run, commitment=scene.commit(run))


@attack(
    "A18",
    "edited log",
    rule="transcript.chain",
    # Behind the break nothing can be believed, so the rest of the run is missing too.
    found_by=("transcript.chain", "transcript.sequence", "agreed.step_count"),
)
def edited_log(scene: Scene) -> Forgery:
    """Edits, after the commitment, what nothing recomputed can contradict: a duration."""
    forgery = scene.honest
    run = scene.copy_of(forgery.run, "A18-edit")
    frames = Frames.read(run)
    frames.edit_duration()
    frames.write(run, chained=False)
    return Forgery(run=run, commitment=forgery.commitment)


@attack(
    "A18",
    "dropped step",
    rule="transcript.sequence",
    found_by=("transcript.sequence", "agreed.step_count"),
)
def dropped_step(scene: Scene) -> Forgery:
    """Takes one record out and chains and commits the rest anew."""
    return _recut(scene, "A18-drop", Frames.drop_a_step)


@attack("A25", "withheld opening", rule="transcript.withheld", in_demo=True)
def withheld_opening(scene: Scene) -> Forgery:
    """Cheats in one segment, then loses the checkpoint that would show it and hopes for another
    draw.
    """
    from ._interpolation import glued_runs

    forgery = glued_runs(scene)
    job = scene.job.core
    middle = job.steps // 2
    step = next(s for s in range(middle, job.steps) if job.is_checkpoint(s))
    run = scene.copy_of(forgery.run, "A25", uncommitted=False)
    for path in (run / "checkpoints").glob(f"step-{step}.*"):
        path.unlink()
    return Forgery(run=run, commitment=forgery.commitment)
