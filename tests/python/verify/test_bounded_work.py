# SPDX-License-Identifier: Apache-2.0
"""What a prover sends decides neither how much is replayed nor how much is read: counts, no
times.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import potl
from potl import Session, _core
from potl._attacks import Forgery, Scene, _tasks as tasks
from potl._attacks._frames import Frames
from potl._attacks._pool import dilution, work_without_end
from potl._remote._remote import Place
from potl._verify._answers import Answers
from potl._verify._schema import Schema

STEP, EPOCH, FLAGS = 34, 42, 98  # where the fields of a step record begin


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return Scene(tmp_path_factory.mktemp("scene"), tasks.plain, checkpoint_every=2, samples=12)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The steps that a verifier runs."""
    out: list[int] = []
    run_step = potl.Session.run_step

    def counted(self: potl.Session, step: int, *others: object, **options: object) -> object:
        out.append(step)
        return run_step(self, step, *others, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(potl.Session, "run_step", counted)
    return out


def crafted(scene: Scene, change: Callable[[list[bytes]], None]) -> Forgery:
    run = scene.copy_of(scene.honest.run, "crafted")
    frames = Frames.read(run)
    change(frames.payloads)
    frames.write(run, chained=True)
    return Forgery(run=run, commitment=scene.sign(run))


def with_field(payload: bytes, at: int, field: bytes) -> bytes:
    return payload[:at] + field + payload[at + len(field) :]


def last_step_is(number: int) -> Callable[[list[bytes]], None]:
    def change(payloads: list[bytes]) -> None:
        payloads[-2] = with_field(payloads[-2], STEP, struct.pack("<Q", number))

    return change


def epochs_are_vast(payloads: list[bytes]) -> None:
    payloads[2:-1] = [with_field(one, EPOCH, b"\xff" * 8) for one in payloads[2:-1]]


def all_is_flagged(payloads: list[bytes]) -> None:
    payloads[2:-1] = [with_field(one, FLAGS, struct.pack("<I", 8)) for one in payloads[2:-1]]


def all_comes_again(payloads: list[bytes]) -> None:
    payloads[2:-1] = payloads[2:-1] * 10


def resumes_come_again(payloads: list[bytes]) -> None:
    resume = b"\x04\x01" + payloads[2][2:34] + bytes(8 * 4 + 32 + 32 + 64)
    payloads[2:-1] = [resume, *payloads[2:-1]] * 10


def test_an_honest_run_costs_what_was_drawn(scene: Scene, steps: list[int]) -> None:
    honest = scene.honest
    steps.clear()  # recording it took some too
    assert scene.verify(honest).verdict == "accepted"
    own = 2  # steps from the verifier's own start, which say what a state holds
    assert 0 < len(steps) <= 2 * (scene.samples + 2) + own


@pytest.mark.parametrize(
    "change",
    [
        last_step_is(10**9),
        last_step_is(2**63),
        last_step_is(2**64 - 1),
        epochs_are_vast,
        all_is_flagged,
        all_comes_again,
        resumes_come_again,
    ],
    ids=["1e9", "2^63", "2^64-1", "epochs", "flags", "steps", "resumes"],
)
def test_a_record_that_is_rejected_is_not_replayed(
    scene: Scene, steps: list[int], change: Callable[[list[bytes]], None]
) -> None:
    forgery = crafted(scene, change)
    steps.clear()
    report = scene.verify(forgery)
    assert report.verdict == "rejected"
    assert steps == []
    assert any("nothing was recomputed" in one.reason for one in report.findings)


@pytest.mark.parametrize("forge", [dilution, work_without_end])
def test_forgeries_that_would_cost_more_cost_nothing(
    scene: Scene, steps: list[int], forge: Callable[[Scene], Forgery]
) -> None:
    forgery = forge(scene)
    steps.clear()
    assert scene.verify(forgery).verdict == "rejected"
    assert steps == []


def test_states_too_large_to_be_read_hide_no_lie_in_exact_arithmetic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path, tasks.plain, checkpoint_every=2, samples=2, arithmetic="ord32")
    capture, padding = Session.capture, bytes(1 << 17)

    def padded(session: Session, **options: bool) -> _core.State:
        tree = session.tree()
        tree["state"] = {"padding": padding}
        return _core.State.capture(tree) if session.step else capture(session, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Session, "capture", padded)
        run = scene.record("padded")
    forgery = Forgery(run=run, commitment=scene.commit(run))
    checks = [potl.Replay(samples=2)]
    report = scene.verify(forgery, checks=checks, max_checkpoint_bytes=1 << 17)
    assert report.verdict == "rejected", report.sentence
    found = {(one.rule, one.result) for one in report.findings}
    assert ("replay.parameters", "reject") in found
    assert ("replay.random_segments", "inconclusive") in found  # no other segment has a start


def test_a_draw_is_the_same_whatever_lies_in_the_folder(scene: Scene) -> None:
    run = scene.copy_of(scene.honest.run, "folder", uncommitted=False)

    def drawn() -> list[tuple[int, int]]:
        evidence = potl._core.Evidence.open(
            str(run), job=scene.job.core, commitment=scene.honest.commitment
        )
        plan = potl._core.plan_check(
            "replay", evidence, potl.Replay(samples=6, top_q=0, reach=0).options(), bytes([1]) * 32
        )
        return [(one.from_step, one.from_step + one.steps) for one in plan]

    before = drawn()
    folder = run / "checkpoints"
    (folder / "step-7.safetensors").write_bytes((folder / "step-8.safetensors").read_bytes())
    assert drawn() == before
    for step in (4, 20, 22):
        (folder / f"step-{step}.safetensors").unlink()
        assert drawn() == before


def test_telemetry_beyond_the_job_is_left_alone(scene: Scene, tmp_path: Path) -> None:
    def change(payloads: list[bytes]) -> None:
        payloads[-1] = payloads[-1][:-32] + bytes([7]) * 32

    forgery = crafted(scene, change)
    with (forgery.run / "telemetry.log").open("r+b") as file:
        file.truncate(1 << 30)  # a hole
    report = scene.verify(forgery)
    assert report.verdict == "accepted", report.sentence
    assert any("larger than what is read" in one.reason for one in report.findings)


@pytest.mark.parametrize("workers", [0, 1])
def test_nothing_is_replayed_after_what_rejects_by_itself(
    scene: Scene, steps: list[int], workers: int
) -> None:
    run = scene.copy_of(scene.honest.run, f"settled-{workers}", uncommitted=False)
    for state in (run / "checkpoints").glob("step-[1-9]*"):
        state.write_bytes(state.read_bytes()[:-1] + b"?")
    forgery = Forgery(run=run, commitment=scene.honest.commitment, options={"workers": workers})
    steps.clear()
    report = scene.verify(forgery)
    assert report.verdict == "rejected"
    rejecting = [one for one in report.findings if one.result == "reject" and one.check != "model"]
    # A worker may have begun with what follows.
    assert len(rejecting) == 1 if workers == 0 else len(rejecting) < 4
    own = 2
    assert len(steps) <= 2 + own
    assert any("more requests were not looked at" in one.reason for one in report.findings)


class Epochs(potl.Request):
    kind = "epochs"

    def __init__(self, step: int) -> None:
        self.from_step = step

    def measure(self, replayer: potl._core.Replayer) -> int:
        replayer.restore(self.from_step)
        return int(replayer.task.epochs)


def test_an_unlawful_last_state_is_restored_for_nobody(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence = potl._core.Evidence.open(
        str(scene.honest.run), job=scene.job.core, commitment=scene.honest.commitment
    )
    restored: list[object] = []
    restore = potl.Session.restore

    def counted(self: potl.Session, state: potl._core.State) -> None:
        restored.append(state.digest())
        restore(self, state)

    last = evidence.load_state(scene.job.core.steps).digest()
    asked = Epochs(scene.job.core.steps)

    def answer() -> Any:
        with Answers(
            Place.of(scene.honest.run),
            evidence,
            job=scene.job,
            note=scene.honest.commitment,
            task=scene.build,
        ) as answers:
            return answers.here(asked)

    assert answer().value > 0
    monkeypatch.setattr(potl.Session, "restore", counted)
    state = potl._core.State.capture({"x": {"y": 1}})
    unlawful = potl._core.unlawful(state, ("map", {"x": ("map", {}, [])}, []))
    monkeypatch.setattr(Schema, "problem", lambda *_, **__: unlawful)
    refused = answer()
    assert (refused.status, "x/y: " in refused.message) == ("unknown_form", True)
    assert last not in restored
