# SPDX-License-Identifier: Apache-2.0
"""Which questions a verification asks, earlier ones included."""

from types import SimpleNamespace
from typing import Any

import pytest

from potl import _core
from potl._verify._ledger import Challenge, Memory
from potl._verify._questions import (
    Question,
    planned,
    request_key,
    settled_by,
    with_earlier,
    worth_asking,
)

NOW, THEN = bytes([1] * 32), bytes([2] * 32)


def replay(samples: int = 3, nonce: bytes = NOW, **more: Any) -> Question:
    return Question("replay", {"samples": samples, **more}, nonce)


def known(*checks: "tuple[str, dict[str, Any]]", nonce: bytes = THEN) -> Memory:
    return Memory((Challenge(nonce.hex(), tuple(checks), 0.0),), ())


def test_without_a_memory_only_the_present_questions_are_asked() -> None:
    assert with_earlier([replay()], Memory()) == [replay()]


def test_segments_of_an_earlier_draw_join_the_present_replay() -> None:
    (question,) = with_earlier([replay()], known(("replay", {"samples": 5})))
    assert question.options == {"samples": 3, "repeat": [f"{THEN.hex()}:5"]}
    assert question.nonce == NOW


def test_what_was_asked_to_be_repeated_stays() -> None:
    own = "ff" * 32
    (question,) = with_earlier([replay(repeat=[own])], known(("replay", {"samples": 5})))
    assert question.options["repeat"] == [own, f"{THEN.hex()}:5"]


def test_a_check_that_is_not_asked_now_is_asked_as_it_was_then() -> None:
    pev = ("pev", {"fraction": 0.5})
    present, earlier = with_earlier([replay()], known(pev))
    assert present == replay()
    assert earlier == Question("pev", {"fraction": 0.5}, THEN, earlier=True)


def test_a_replay_that_is_not_asked_now_is_asked_as_it_was_then() -> None:
    questions = with_earlier([], known(("replay", {"samples": 5})))
    assert questions == [Question("replay", {"samples": 5}, THEN, earlier=True)]


def test_the_present_question_is_not_asked_twice() -> None:
    assert with_earlier([replay()], known(("replay", {"samples": 3}), nonce=NOW)) == [replay()]


def test_the_same_checks_under_another_nonce_or_with_other_options_are_repeated() -> None:
    for then in (
        known(("replay", {"samples": 3}), nonce=THEN),
        known(("replay", {"samples": 4}), nonce=NOW),
    ):
        (question,) = with_earlier([replay()], then)
        ((_, options),) = then.challenges[0].checks
        assert question.options["repeat"] == [f"{then.challenges[0].nonce}:{options['samples']}"]


# ---------------------------------------------------------------------- what is asked for


def evidence(arithmetic: str = "ord32", *, rejected: bool = False) -> Any:
    return SimpleNamespace(job=SimpleNamespace(arithmetic=arithmetic), rejected=rejected)


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """A question asks for the segments in its options; what `screen` was is listed."""
    screened: list[bool] = []

    def plan(check: str, _: Any, options: Any, __: bytes, *, screen: bool) -> list[dict[str, Any]]:
        screened.append(screen)
        return [{"kind": "segment", "start": start, "why": check} for start in options["starts"]]

    monkeypatch.setattr(_core, "plan_check", plan)
    return screened


def asks(check: str, *starts: int, earlier: bool = False) -> Question:
    return Question(check, {"starts": starts}, NOW, earlier=earlier)


def test_earlier_questions_are_asked_where_they_want_more(plans: list[bool]) -> None:
    now = asks("replay", 1, 2)
    part = asks("replay", 2, 3, earlier=True)
    nothing_new = asks("pev", 3, 1, earlier=True)
    out = planned([now, part, nothing_new, asks("pev", 1)], evidence(), screen=False)
    assert [[one["start"] for one in question.plan] for question in out] == [[1, 2], [2, 3], [1]]
    assert plans == [False] * 4
    planned([now], evidence(), screen=True)
    assert plans[-1]


def test_of_a_run_that_the_audit_rejects_only_telemetry_is_looked_at(plans: list[bool]) -> None:
    questions = [asks("telemetry"), asks("replay", 1)]
    for rejected, left in ((False, ["telemetry", "replay"]), (True, ["telemetry"])):
        out = worth_asking(questions, evidence(rejected=rejected), screen=True)
        assert [one.check for one in out] == left


# ---------------------------------------------------------------------- what settles


SEGMENT = {"kind": "segment", "start": 4, "end": 8}


class Settled:
    """Two questions that ask for one segment; `rejecting` is the one whose judge rejects."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rejecting: str = "replay") -> None:
        self.judged: list[tuple[str, Any]] = []

        def judge(check: str, _: Any, __: Any, ___: bytes, measurements: Any) -> list[Any]:
            self.judged += [(check, one["request"]["why"]) for one in measurements]
            return [{"result": "note"}, {"result": "reject" if check == rejecting else "pass"}]

        monkeypatch.setattr(_core, "judge_check", judge)

    def by(self, arithmetic: str = "ord32", **measurement: Any) -> bool:
        questions = [
            Question(name, {}, NOW, [{**SEGMENT, "start": 0, "why": "first"}, request])
            for name, request in (
                ("pev", {**SEGMENT, "why": "here"}),
                ("replay", {**SEGMENT, "why": "random"}),
            )
        ]
        settles = settled_by(questions, evidence(arithmetic))
        return settles({"request": {**SEGMENT, "why": "here"}, "status": "ok", **measurement})


@pytest.mark.parametrize(
    ("measurement", "settled"),
    [
        ({"digest_equal": True}, False),
        ({"digest_equal": False}, True),
        ({"digest_equal": False, "arithmetic": "stock"}, False),
        ({}, False),  # a recomputed loss: its judge alone knows how far is too far
        ({"digest_equal": True, "not_finite": "w holds NaN"}, True),
        ({"not_finite": "w holds NaN", "arithmetic": "stock"}, True),
        ({"status": "withheld", "arithmetic": "stock"}, True),
        ({"status": "tampered"}, True),
        ({"status": "verifier_error"}, False),
        ({"status": "verifier_error", "digest_equal": False}, False),
    ],
)
def test_what_no_noise_excuses_settles(
    monkeypatch: pytest.MonkeyPatch, measurement: dict[str, Any], settled: bool
) -> None:
    scene = Settled(monkeypatch)
    assert scene.by(**measurement) is settled
    # Each question judges what it asked for, for its own reason, and nothing else.
    assert scene.judged == ([("pev", "here"), ("replay", "random")] if settled else [])


def test_what_no_judge_rejects_does_not_settle(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not Settled(monkeypatch, rejecting="none").by(status="withheld")
    scene = Settled(monkeypatch)
    request = {**SEGMENT, "end": 9, "why": "nobody asked"}
    assert not scene.by(status="withheld", request=request)
    assert scene.judged == []


def test_requests_are_the_same_whatever_their_reason() -> None:
    request = {"kind": "segment", "start": 4, "end": 8, "why": "random"}
    assert request_key(request) == request_key({**request, "why": "earlier challenge"})
    assert request_key(request) != request_key({**request, "end": 12})
