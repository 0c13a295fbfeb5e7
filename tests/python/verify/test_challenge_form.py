# SPDX-License-Identifier: Apache-2.0
"""What a challenge may say, and which states its questions need: without any training."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import potl
from potl import _core
from potl._verify import _challenge
from potl._verify._ledger import Challenge as Entry, Memory
from potl._verify._questions import Question

JOB, ROOT, NONCE = bytes([1] * 32), bytes([2] * 32), bytes([3] * 32)

DRAWN = potl.Challenge(
    job=JOB, root=ROOT, nonce=NONCE, checks=(("replay", {"samples": 3}),), states=(2, 10)
)


def job(store_every: int = 8) -> Any:
    """A state is stored every 8 steps."""
    return SimpleNamespace(
        id=JOB, store_every=store_every, is_checkpoint=lambda step: step % 8 == 0
    )


def asks(*plan: _core.Request, **options: Any) -> Question:
    return Question("replay", options, NONCE, False, plan)


def segment(start: int, end: int, **more: Any) -> _core.SegmentRequest:
    return _core.SegmentRequest(start=start, end=end, **more)


@pytest.mark.parametrize(
    "edit",
    [
        {"format": "potl-challenge-v2"},
        {"job": "ab" * 31},
        {"job": "ab" * 33},
        {"root": ""},
        {"nonce": "x" * 64},
        {"states": [-1]},
        {"states": [2.5]},
        {"states": [True]},
        {"states": {"2": 10}},
        {"checks": [{"check": "replay"}]},
    ],
)
def test_a_document_of_another_form_is_no_challenge(tmp_path: Path, edit: dict[str, Any]) -> None:
    path = tmp_path / "challenge.json"
    path.write_text(json.dumps(DRAWN.document()))
    assert potl.Challenge.read(path) == DRAWN
    path.write_text(json.dumps({**DRAWN.document(), **edit}))
    with pytest.raises(potl.MalformedError):
        potl.Challenge.read(path)


def test_states_between_the_stored_ones_are_wanted_where_a_replay_begins() -> None:
    questions = [
        asks(segment(2, 4), segment(8, 10), segment(14, 16)),
        asks(segment(18, 20, superseded=True)),
        asks(segment(22, 24, superseded=False)),
    ]
    assert _challenge.derived_states(questions, job()) == [2, 14, 22]


@pytest.mark.parametrize("tolerance", ["auto", "exact", "d_ref"])
def test_the_end_of_a_replay_is_wanted_where_it_is_measured_against(tolerance: str) -> None:
    ends = [] if tolerance in ("auto", "exact") else [4]
    wanted = _challenge.derived_states([asks(segment(2, 4), tolerance=tolerance)], job())
    assert wanted == [2, *ends]


def test_a_loss_is_recomputed_from_the_state_before_its_step() -> None:
    plan: list[_core.Request] = [_core.LossRequest(step=5), _core.LossRequest(step=9)]
    plan.append(_core.SubsetLossRequest(step=7))
    assert _challenge.derived_states([asks(*plan)], job()) == [4, 7]


# ---------------------------------------------------------------------- whose it is


@pytest.fixture
def note(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(_challenge, "root_of", lambda _: ROOT)
    return "note"


def test_a_challenge_is_about_one_job_and_one_commitment(
    note: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = potl.Challenge(**{**vars(DRAWN), "own": True})
    _challenge.require_own(own, job(), note, Memory())
    for other, message in (
        ({"job": ROOT}, "another job"),
        ({"root": JOB}, "another commitment"),
    ):
        changed = potl.Challenge(**{**vars(own), **other})
        with pytest.raises(potl.UsageError, match=message):
            _challenge.require_own(changed, job(), note, Memory())
    for known, of_note in ((None, note), (job(), None)):
        with pytest.raises(potl.UsageError, match="belongs to a job"):
            _challenge.require_own(own, known, of_note, Memory())


def test_a_challenge_out_of_a_file_is_the_one_that_the_ledger_remembers(note: str) -> None:
    def remembers(document: str | None) -> Memory:
        return Memory((Entry(NONCE.hex(), DRAWN.checks, 0.0, document),), ())

    _challenge.require_own(DRAWN, job(), note, remembers(DRAWN.digest()))
    for known in (Memory(), remembers(None), remembers("ab" * 32)):
        with pytest.raises(potl.UsageError, match="nothing shows that you drew"):
            _challenge.require_own(DRAWN, job(), note, known)


def test_only_what_was_asked_for_is_held_against_the_trainer() -> None:
    def evidence(*missing: int, store_every: int = 8) -> Any:
        return SimpleNamespace(
            job=job(store_every), missing_checkpoints=lambda: [{"step": one} for one in missing]
        )

    questions = [asks(segment(2, 4), segment(6, 8), segment(10, 12))]
    for held in (evidence(), evidence(2, 10), evidence(8), evidence(6, store_every=0)):
        _challenge.require_asked(DRAWN, questions, held)
    with pytest.raises(potl.UsageError, match="state of step 6 is not stored"):
        _challenge.require_asked(DRAWN, questions, evidence(6, 10))
