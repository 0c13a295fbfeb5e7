# SPDX-License-Identifier: Apache-2.0
"""A18, A26, A29, A32, A33: several histories, chosen continuations, hidden state, foreign keys and
jobs.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from .. import _core
from .._checks._checks import PEV
from .._job._job import Job
from .._job._session import Session
from .._task._task import Task
from ._scene import Arguments, Forgery, Scene, attack


@attack("A18", "two histories", rule="transcript.history")
def two_histories(scene: Scene) -> Forgery:
    """Commits to one run, shows it, and commits to another of the same job afterwards."""
    run = scene.record("A18-second")
    second = scene.commit(run)
    return Forgery(
        run=run, commitment=second, options={"other_commitments": (scene.honest.commitment,)}
    )


@attack("A18", "broken promise", rule="transcript.history", in_demo=True)
def broken_promise(scene: Scene) -> Forgery:
    """Publishes a root during one run and commits to another that does not extend it."""
    shown = scene.path("A18-shown")
    published = ""
    session = Session.open(scene.build, seed=scene.job.seed, job=scene.job)
    recorder = _core.Recorder.create(str(shown), scene.job.core, scene.key, software="potl forger")
    with session:
        recorder.append_initial(session.capture())
        for step, ids, batch in session.batches(1, scene.job.core.checkpoint_every):
            result = session.run_step(step, batch)
            scene.append(recorder, session, step, ids, result, loss=result.loss * 0.5)
        recorder.flush()
        published = recorder.publish()
        recorder.abandon()
    return scene.with_options(scene.honest, published=(published,))


@attack("A26", "resume grinding", rule="transcript.resume", in_demo=True)
def resume_grinding(scene: Scene) -> Forgery:
    """Crashes on purpose to try continuations, and goes on from the one it likes."""
    path = scene.path("A26")
    job = scene.job.core
    first = _core.Recorder.create(str(path), job, scene.key, software="potl forger")
    with Session.open(scene.build, seed=scene.job.seed, job=scene.job) as session:
        first.append_initial(session.capture())

        def run(recorder: _core.Recorder, begin: int, end: int) -> None:
            for step, ids, batch in session.batches(begin, end):
                scene.append(recorder, session, step, ids, session.run_step(step, batch))

        run(first, 1, job.checkpoint_every + 1)
        first.abandon()
        for _ in range(20):
            recorder, begin, state = _core.Recorder.resume(
                str(path), job, scene.key, software="potl forger", past_limits=True
            )
            session.restore(state)
            run(recorder, begin + 1, begin + job.checkpoint_every + 1)
            recorder.abandon()
        recorder, begin, state = _core.Recorder.resume(
            str(path), job, scene.key, software="potl forger", past_limits=True
        )
        session.restore(state)
        run(recorder, begin + 1, job.steps)
        recorder.close()
    return Forgery(run=path, commitment=scene.commit(path))


@attack("A32", "hidden state", rule="agreed.replayable", in_demo=True)
def hidden_state(scene: Scene) -> Forgery:
    """Keeps a count of its own calls in the task and trains differently by it; checkpoints do not
    hold it.
    """

    def by_count(task: Task, batch: Any) -> torch.Tensor:
        task.calls = getattr(task, "calls", 0) + 1  # type: ignore[attr-defined]
        x, y = batch
        return Task.step(task, [x if task.calls % 2 else 0.5 * x, y])  # type: ignore[attr-defined]

    def build() -> Task:
        task = scene.build()
        task.step = functools.partial(by_count, task)  # type: ignore[method-assign]
        return task

    # Creating the job is where this ends: the probe steps twice, restores into a fresh task, and
    # compares.
    agreed = scene.job.core
    job = Job.create(
        build,
        seed=agreed.seed,
        checkpoint_every=agreed.checkpoint_every,
        arithmetic=agreed.arithmetic,
        check=_core.rule_enabled("agreed.replayable"),
    )
    run = scene.record("A32", build=build, job=job)
    # PEV takes single steps of such a task, which the count would count.
    checks = [one for one in scene.checks() if not isinstance(one, PEV)]
    options: Arguments = {"task": build, "checks": checks}
    return Forgery(run=run, commitment=scene.commit(run), job=job, options=options)


@attack("A33", "foreign key", rule="agreed.trainer_key", in_demo=True)
def foreign_key(scene: Scene) -> Forgery:
    """Has the job done by somebody else, who signs with their own key."""
    other = _core.SigningKey.generate()
    run = scene.forge("A33-key", key=other)
    return Forgery(run=run, commitment=scene.commit(run, other))


@attack(
    "A33",
    "foreign job",
    rule="agreed.job",
    found_by=("agreed.job", "transcript.chain"),
    in_demo=True,
)
def foreign_job(scene: Scene) -> Forgery:
    """Presents a run that was made, and is consistent, under a job of the prover's own."""
    own = scene.job.replace(environment={"cloud": "another"})
    run = scene.record("A33-job", job=own)
    return Forgery(run=run, commitment=scene.commit(run))
