# SPDX-License-Identifier: Apache-2.0
"""A39: evidence that changes between two readings."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import torch

from .._job._session import Session
from ._scene import Forgery, Scene, attack


class _Swapping(Executor):
    """Workers that find another run in the place of the one that the parent judged.

    It works in this process, where a test can switch rules off, and as soon as it is asked.
    """

    def __init__(self, judged: Path, other: Path) -> None:
        self._judged, self._other = judged, other

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        with self._swapped():
            try:
                done.set_result(fn(*args, **kwargs))
            except Exception as error:
                done.set_exception(error)
        return done

    @contextlib.contextmanager
    def _swapped(self) -> Iterator[None]:
        aside = self._judged.with_name(self._judged.name + "-aside")
        self._judged.rename(aside)
        shutil.copytree(self._other, self._judged)
        try:
            yield
        finally:
            shutil.rmtree(self._judged)
            aside.rename(self._judged)


@attack(
    "A39",
    "swapped evidence",
    rule="transcript.one_reading",
    # Nobody can tell a liar from a disk that is still being copied to: no verdict, the same again.
    found_by=("", "replay.random_segments"),
    verdict="inconclusive",
)
def swapped_evidence(scene: Scene) -> Forgery:
    """Commits to a run whose last weights were edited, and puts an honest run in its place whenever
    a worker process looks.
    """
    last = scene.job.core.steps

    def edit(session: Session, step: int) -> None:
        if step == last:
            with torch.no_grad():
                next(session.task.model.parameters()).mul_(1.5)

    forgery = scene.forged("A39-edited", rewrite=edit)
    workers = _Swapping(forgery.run, scene.honest.run)
    return scene.with_options(forgery, options={"executor": workers})
