# SPDX-License-Identifier: Apache-2.0
"""The bits of a NaN are the processor's: by them a dispute convicts nobody, and excuses no lie."""

from __future__ import annotations

import base64
import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from disputed import Liar
from elsewhere import STEPS, Elsewhere, Lost, Overflowing, measured, normalised, overflowing

import potl
from potl import Task, _core
from potl._dispute._answers import read_answer
from potl._dispute._outline import StateOutline
from potl._dispute._shown_nan import shown_nan, shows_nan


def disputed(
    run: potl.Run, job: potl.Job, tmp_path: Path, *, build: Callable[[], Task] = overflowing
) -> potl.Verdict:
    """Where the trainer, the auditor and the referee are on one machine."""
    log = tmp_path / "own"
    run.commit()
    potl.audit(run, job=job, task=build, log=log, to_the_end=True)
    return potl.dispute(
        trainer=potl.Party(run, job=job, task=build),
        auditor=potl.Party(log, job=job, task=build),
        referee=potl.Referee(job, task=build, key=tmp_path / "referee.pem"),
    )


def test_a_dispute_convicts_nobody_by_the_bits_of_a_nan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = potl.Job.create(overflowing, seed=7, checkpoint_every=3)
    with monkeypatch.context() as there:
        there.setattr(Elsewhere, "there", True)
        run = potl.record(overflowing, tmp_path / "run", job=job)
    verdict = disputed(run, job, tmp_path)
    assert verdict.winner is None and verdict.why == "referee"
    assert "the bits of a NaN are the processor's" in str(verdict.facts["undecided"])


def recorded_elsewhere(first: int, job: potl.Job, path: Path) -> potl.Run:
    with pytest.MonkeyPatch.context() as there:
        there.setattr(Elsewhere, "there", True)
        return potl.record(functools.partial(normalised, first), path, job=job)


def nan_job(first: int) -> potl.Job:
    build = functools.partial(normalised, first)
    return potl.Job.create(build, seed=7, checkpoint_every=3, arithmetic="ord32")


def false_run(
    build: Callable[[], Task],
    at: int,
    change: Callable[[torch.Tensor], object],
    job: potl.Job,
    path: Path,
) -> potl.Run:
    """Of somebody who changes the weights after step `at`."""
    true = Lost.step

    def lying(self: Lost, batch: Any) -> torch.Tensor:
        loss = true(self, batch)
        for parameter in self.model.parameters() if self.model.get_buffer("done") == at else ():
            change(parameter.detach())
        return loss

    with pytest.MonkeyPatch.context() as cheat:
        cheat.setattr(Lost, "step", lying)
        run = potl.record(build, path, job=job, check_job=False)
    run.commit()
    return run


@pytest.mark.parametrize("first", [18, STEPS // 2, STEPS])
def test_a_dispute_convicts_nobody_by_the_first_nan_of_an_update(
    first: int, tmp_path: Path
) -> None:
    build, job = functools.partial(normalised, first), nan_job(first)
    verdict = disputed(recorded_elsewhere(first, job, tmp_path / "run"), job, tmp_path, build=build)
    assert verdict.winner is None and verdict.why == "referee"
    assert verdict.facts["step"] == first
    assert "the bits of a NaN are the processor's" in str(verdict.facts["undecided"])
    assert potl.judge(verdict.evidence, job=job, task=build).believed == 0


@pytest.mark.parametrize("first", [STEPS // 2, STEPS])
def test_who_lies_about_a_nan_convicts_nobody_on_another_machine(
    first: int, tmp_path: Path
) -> None:
    """The auditor has numbers there, and shows an end that is not that of its operators."""
    build, job = functools.partial(normalised, first), nan_job(first)
    run = recorded_elsewhere(first, job, tmp_path / "run")
    run.commit()
    false = false_run(build, first, lambda one: one.nan_to_num_(nan=0.5), job, tmp_path / "own")
    verdict = potl.dispute(
        trainer=potl.Party(run, job=job, task=build),
        auditor=Liar(false, job=job, task=build, at=first, operator=None),
        referee=potl.Referee(job, task=build, key=tmp_path / "referee.pem"),
    )
    assert (verdict.winner, verdict.why, verdict.step) == ("trainer", "value", first)
    assert any(line.endswith("A dispute is no verification") for line in verdict.lines())


@pytest.mark.parametrize(
    ("first", "at", "change"),
    [
        (0, STEPS // 2, lambda one: one.mul_(math.nan)),
        (0, STEPS, lambda one: one.mul_(math.nan)),
        (STEPS // 2, STEPS // 2, lambda one: one.nan_to_num_(nan=0.5)),
        (STEPS, STEPS, lambda one: one.nan_to_num_(nan=0.5)),
    ],
    ids=["invented", "invented in the last", "repaired", "repaired in the last"],
)
def test_a_nan_of_one_alone_excuses_no_step(
    first: int,
    at: int,
    change: Callable[[torch.Tensor], object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    build, job = functools.partial(normalised, first), nan_job(first)
    run = false_run(build, at, change, job, tmp_path / "run")

    def forged(self: potl.Party, _: int, story: Any) -> object:
        """Of the one state that has a NaN, twice."""
        before, after = story.ends()
        states = after, self._evidence.load_state(STEPS)
        return next((shown for one in states if (shown := shown_nan(before, [one, one]))), None)

    monkeypatch.setattr(potl.Party, "_nan", forged)
    verdict = disputed(run, job, tmp_path, build=build)
    assert (verdict.winner, verdict.why, verdict.step) == ("auditor", "structure", at)
    assert verdict.operator is not None and verdict.operator[1] == "capture"


@pytest.mark.parametrize("at", [STEPS // 2, STEPS])
def test_a_nan_that_a_step_leaves_as_it_was_excuses_nobody(at: int, tmp_path: Path) -> None:
    """Whoever moves the weights beside it has no NaN of another machine."""
    job = potl.Job.create(measured, seed=7, checkpoint_every=3, arithmetic="ord32")
    run = false_run(measured, at, lambda one: one.add_(1), job, tmp_path / "run")
    verdict = disputed(run, job, tmp_path, build=measured)
    assert (verdict.winner, verdict.why, verdict.step) == ("auditor", "structure", at)


def test_a_trainer_alone_with_its_nan_is_convicted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = potl.Job.create(overflowing, seed=7, checkpoint_every=3)
    with monkeypatch.context() as cheat:
        cheat.setattr(Overflowing, "lying", True)
        cheat.setattr(Elsewhere, "there", True)  # or the runs would end in the same state
        run = potl.record(overflowing, tmp_path / "run", job=job, check_job=False)
    verdict = disputed(run, job, tmp_path)
    assert (verdict.winner, verdict.step) == ("auditor", 1)


def state_with(*places: int) -> _core.State:
    """A state with a NaN at these places of its weight."""
    weight = torch.zeros(20_000)
    weight[list(places)] = math.nan
    tensor = _core.Tensor("float32", (20_000,), "contiguous", weight.data_ptr(), 80_000, weight)
    return _core.State.capture({"model": {"weight": tensor, "count": 3}})


def test_a_nan_is_shown_at_one_place_of_all_states() -> None:
    states = state_with(1, 9_000), state_with(4_904, 9_000)
    digests = [one.digest() for one in states]
    before = state_with(1)
    shown = shown_nan(before, states)
    assert shown is not None and shows_nan(shown, StateOutline.of(before), digests)
    assert shown_nan(before, [states[0], state_with(4_904)]) is None
    with pytest.raises(potl.MismatchError):
        shows_nan(shown, StateOutline.of(before), digests[::-1])


def test_a_nan_of_a_tensor_that_the_state_before_does_not_have_is_shown() -> None:
    before, state = _core.State.capture({"model": {"count": 3}}), state_with(9_000)
    shown = shown_nan(before, [state, state])
    assert shown is not None and shown["before"] is None
    assert shows_nan(shown, StateOutline.of(before), [state.digest()] * 2)
    with pytest.raises(potl.MalformedError):
        shows_nan(shown, StateOutline.of(state_with(1)), [state.digest()] * 2)


def test_a_nan_that_was_there_before_is_not_shown() -> None:
    states, digests = [state_with(9_000)] * 2, [state_with(9_000).digest()] * 2
    assert shown_nan(states[0], states) is None
    shown = shown_nan(state_with(1), states)
    assert shown is not None
    own = shown_nan(state_with(), states[:1])
    assert own is not None
    forged = {**shown, "before": own["states"][0]}  # type: ignore[index]
    assert not shows_nan(forged, StateOutline.of(states[0]), digests)


@pytest.mark.parametrize(
    "change",
    [
        lambda shown: None,
        lambda shown: {**shown, "before": None},
        lambda shown: {**shown, "before": shown["states"][0]},
        lambda shown: {
            **shown,
            "before": shown_nan(state_with(), [state_with(1)])["states"][0],  # type: ignore[index]
        },
        lambda shown: {**shown, "path": "model/count"},
        lambda shown: {**shown, "path": 3},
        lambda shown: {**shown, "states": shown["states"][:1]},
        lambda shown: {**shown, "states": [*shown["states"], shown["states"][0]]},
        lambda shown: {**shown, "states": [{**one, "index": 1 << 52} for one in shown["states"]]},
        lambda shown: {**shown, "states": [{**one, "index": 0} for one in shown["states"]]},
        lambda shown: {**shown, "states": [{**one, "proof": []} for one in shown["states"]]},
        lambda shown: {
            **shown,
            "states": [
                {**one, "bytes": base64.b64encode(b"\xff" * 16384).decode()}
                for one in shown["states"]
            ],
        },
        lambda shown: {
            **shown,
            "states": [
                shown["states"][0],
                shown_nan(state_with(), [state_with(4_904, 9_000)])["states"][0],
            ],  # type: ignore[index]
        },
    ],
)
def test_what_shows_no_nan_excuses_nobody(change: Callable[[Any], Any]) -> None:
    """Whatever somebody writes there is no trouble of the referee's."""
    states = state_with(1, 9_000), state_with(4_904, 9_000)
    before, digests = state_with(1), [one.digest() for one in states]
    given = change(shown_nan(before, states))

    def read(document: Any) -> bool:
        return shows_nan(document["nan"], StateOutline.of(before), digests)

    assert not read_answer(read, _core.canonical_json({"nan": given}))
