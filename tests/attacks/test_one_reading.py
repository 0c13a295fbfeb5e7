# SPDX-License-Identifier: Apache-2.0
"""What was judged is what is used: after each single read of a verification, the file that was read
is swapped, and the verdict is never better for it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

import potl
from potl import _core
from potl._attacks import Forgery, Scene, _tasks
from potl._job._session import Session

pytestmark = pytest.mark.skipif(
    not hasattr(_core, "set_read_observer"), reason="POTL_HOOKS=1 loads the build that tells"
)

# What a verification ends with where the verifier's own memory was swapped.
OWN = {"UsageError"}


def build() -> potl.Task:
    task = _tasks.plain()
    task.epochs = 1
    return task


class Pair(NamedTuple):
    """An honest run, and one whose second half was invented, committed with the same key."""

    scene: Scene
    honest: Forgery
    forged: Forgery


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    scene = Scene(tmp_path_factory.mktemp("reading"), build, checkpoint_every=4, samples=24)

    def edit(session: Session, step: int) -> None:
        if step == 4:
            with torch.no_grad():
                next(session.task.model.parameters()).mul_(1.5)

    return Pair(scene, delivered(scene.honest), delivered(scene.forged("edited", rewrite=edit)))


def delivered(forgery: Forgery) -> Forgery:
    model = forgery.run.with_suffix(".safetensors")
    potl.Run(forgery.run).export(model)
    return Forgery(run=forgery.run, commitment=forgery.commitment, model=model)


class Reads:
    """The files below a folder in the order in which they are read."""

    def __init__(self, folder: Path, then: Callable[[int, Path], None] | None = None) -> None:
        self.folder, self.then = folder, then
        self.seen: list[Path] = []

    def __call__(self, path: str) -> None:
        if Path(path).is_relative_to(self.folder):
            self.seen.append(Path(path).relative_to(self.folder))
            if self.then is not None:
                self.then(len(self.seen) - 1, self.seen[-1])


@contextmanager
def observed(reads: Reads) -> Iterator[None]:
    _core.set_read_observer(reads)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        _core.set_read_observer(None)  # type: ignore[attr-defined]


def stage(folder: Path, source: Forgery) -> None:
    """What the verifier got: the run, the note and the model, and what it remembers."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir()
    shutil.copytree(source.run, folder / "run")
    (folder / "note.txt").write_text(source.commitment)
    assert source.model is not None
    shutil.copy(source.model, folder / "model.safetensors")


def verdict_of(scene: Scene, folder: Path) -> str:
    try:
        report = potl.verify(
            folder / "run",
            job=scene.job,
            commitment=folder / "note.txt",
            task=scene.build,
            model=folder / "model.safetensors",
            checks=scene.checks(),
            ledger=folder / "ledger.json",
        )
    except potl.PotlError as error:
        return type(error).__name__
    return report.verdict


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize("judged", ["honest", "forged"])
def test_a_swap_after_any_single_reading_makes_no_verdict_better(
    pair: Pair, tmp_path: Path, judged: str, everything: bool
) -> None:
    mine, theirs = (pair.honest, pair.forged) if judged == "honest" else (pair.forged, pair.honest)
    here, there = tmp_path / "here", tmp_path / "there"
    stage(here, mine)
    stage(there, theirs)
    (there / "ledger.json").write_text("{}")
    reads = Reads(here)
    with observed(reads):
        verdict = verdict_of(pair.scene, here)
    assert verdict == {"honest": "accepted", "forged": "rejected"}[judged]
    names = {str(path) for path in reads.seen}
    assert names >= {"run/transcript.log", "note.txt"}
    if judged == "honest":
        steps = range(0, pair.scene.job.steps + 1, 4)
        assert names >= {f"run/checkpoints/step-{step}.safetensors" for step in steps}
        assert "run/telemetry.log" in names

    def change(path: Path) -> None:
        (here / path).unlink(missing_ok=True)
        if (there / path).exists():
            shutil.copy(there / path, here / path)

    verdicts: dict[str, str] = {}
    for number, name in enumerate(reads.seen):

        def swap(index: int, path: Path, number: int = number) -> None:
            if index == number and everything:
                shutil.rmtree(here)
                shutil.copytree(there, here)
            elif index == number:
                change(path)

        stage(here, mine)
        with observed(Reads(here, swap)):
            verdicts[f"{number}: {name}"] = verdict_of(pair.scene, here)
    if judged == "forged":
        assert "accepted" not in verdicts.values(), verdicts
        return
    # What was read before it was swapped is what is used; what is read again is bound.
    assert set(verdicts.values()) <= {"accepted", "rejected", "inconclusive", *OWN}, verdicts
    if not everything:
        # The delivered file is read in pieces, and is the client's: a change is their trouble.
        changed = {"model.safetensors": "inconclusive"}
        for last in ("transcript.log", "note.txt", "telemetry.log", "model.safetensors"):
            found = {verdict for name, verdict in verdicts.items() if name.endswith(last)}
            assert found <= {changed.get(last, "accepted")}, verdicts


def test_a_log_that_changes_before_a_worker_reads_it_is_no_verdict(
    pair: Pair, tmp_path: Path
) -> None:
    """With processes of their own; the attack A39 plays the same in one."""
    stage(tmp_path / "here", pair.honest)
    log = tmp_path / "here" / "run" / "transcript.log"

    def grow(index: int, path: Path) -> None:
        if path.name == "telemetry.log":  # which the parent reads after the log
            log.write_bytes(log.read_bytes() + b"x")

    with observed(Reads(tmp_path / "here", grow)):
        report = potl.verify(
            tmp_path / "here" / "run",
            job=pair.scene.job,
            commitment=tmp_path / "here" / "note.txt",
            task=build,
            checks=pair.scene.checks(),
            ledger=None,
            workers=1,
        )
    assert report.verdict == "inconclusive", report.json()
    assert "is not the one that was judged" in report.json()
