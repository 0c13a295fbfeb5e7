# SPDX-License-Identifier: Apache-2.0
"""Which questions a verification asks, earlier ones included."""

from typing import Any

from potl._ledger import Challenge, Memory
from potl._questions import Question, request_key, with_earlier

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


def test_requests_are_the_same_whatever_their_reason() -> None:
    request = {"kind": "segment", "start": 4, "end": 8, "why": "random"}
    assert request_key(request) == request_key({**request, "why": "earlier challenge"})
    assert request_key(request) != request_key({**request, "end": 12})
